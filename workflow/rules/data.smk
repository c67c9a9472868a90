rule download:
    output:
        "resources/{name}/{file}",
    log:
        "results/logs/download/{name}/{file}.log",
    wildcard_constraints:
        name="|".join(components("dataset")),
        file="[^/]+",
    conda:
        "../../envs/environment.yaml"
    resources:
        mem_mb=growing(500),
        runtime=growing(120),
    params:
        job=drawing(
            "download", dataset="{name}", file="{file}", out="resources/{name}/{file}"
        ),
    message:
        "downloading {wildcards.name}/{wildcards.file}"
    shell:
        "fedrepro job {params.job:q} 2> {log:q}"


use rule download as prepare with:
    input:
        raw_files,
    output:
        directory("results/{scale}/prepare/{job}"),
    log:
        "results/{scale}/logs/prepare/{job}.log",
    resources:
        mem_mb=growing(3000),
        runtime=growing(120),
    params:
        job=of_job("prepare", "text"),
        digest=of_job("prepare", "digest"),
    message:
        "{rule} {wildcards.job}"


use rule download as partition with:
    input:
        of_job("partition", "inputs"),
    output:
        "results/{scale}/partition/{job}/partition.parquet",
    log:
        "results/{scale}/logs/partition/{job}.log",
    resources:
        mem_mb=growing(1000),
        runtime=growing(30),
    params:
        job=of_job("partition", "text"),
        digest=of_job("partition", "digest"),
    message:
        "{rule} {wildcards.job}"
