rule train:
    input:
        data=read_by("train", "data"),
        members=read_by("train", "members"),
    output:
        models="results/{scale}/train/{job}/local.parquet",
        timings="results/{scale}/train/{job}/timings.parquet",
    log:
        "results/{scale}/logs/train/{job}.log",
    conda:
        "../../envs/environment.yaml"
    threads: 1
    resources:
        mem_mb=growing(3000),
        runtime=growing(240),
        gpu=GPUS,
    params:
        job=text_of("train"),
        digest=digest_of("train"),
        device=CONFIG.device,
    message:
        "{rule} {wildcards.job}"
    shell:
        "fedrepro job {params.job:q} --device {params.device} --threads {threads} 2> {log:q}"


use rule train as aggregate with:
    input:
        data=read_by("aggregate", "data"),
        members=read_by("aggregate", "members"),
        models=read_by("aggregate", "local"),
        public=read_by("aggregate", "public"),
    output:
        metrics="results/{scale}/aggregate/{job}/metrics.parquet",
        timings="results/{scale}/aggregate/{job}/timings.parquet",
    log:
        "results/{scale}/logs/aggregate/{job}.log",
    resources:
        mem_mb=growing(4000),
        runtime=growing(240),
        gpu=GPUS,
    params:
        job=text_of("aggregate"),
        digest=digest_of("aggregate"),


use rule aggregate as federate with:
    input:
        data=read_by("federate", "data"),
        members=read_by("federate", "members"),
    output:
        metrics="results/{scale}/federate/{job}/metrics.parquet",
        timings="results/{scale}/federate/{job}/timings.parquet",
        model="results/{scale}/federate/{job}/global.pt",
    log:
        "results/{scale}/logs/federate/{job}.log",
    params:
        job=text_of("federate"),
        digest=digest_of("federate"),


use rule aggregate as peer with:
    input:
        data=read_by("peer", "data"),
        members=read_by("peer", "members"),
    output:
        metrics="results/{scale}/peer/{job}/metrics.parquet",
        timings="results/{scale}/peer/{job}/timings.parquet",
        confusion="results/{scale}/peer/{job}/confusion.parquet",
        nodes="results/{scale}/peer/{job}/nodes.pt",
    log:
        "results/{scale}/logs/peer/{job}.log",
    params:
        job=text_of("peer"),
        digest=digest_of("peer"),


rule simulate:
    output:
        metrics="results/{scale}/simulate/{job}/metrics.parquet",
        timings="results/{scale}/simulate/{job}/timings.parquet",
    log:
        "results/{scale}/logs/simulate/{job}.log",
    conda:
        "../../envs/environment.yaml"
    threads: 1
    resources:
        mem_mb=growing(2000),
        runtime=growing(60),
    params:
        job=text_of("simulate"),
        digest=digest_of("simulate"),
    message:
        "{rule} {wildcards.job}"
    shell:
        "fedrepro job {params.job:q} --threads {threads} 2> {log:q}"
