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
    message:
        "downloading {wildcards.name}/{wildcards.file}"
    shell:
        "fedrepro stage download --dataset {wildcards.name} --file {wildcards.file:q}"
        " --out {output:q} 2> {log:q}"


rule prepare:
    input:
        raw_files,
    output:
        directory("results/{scale}/datasets/dataset={dataset}"),
    log:
        "results/{scale}/logs/datasets/dataset={dataset}.log",
    conda:
        "../../envs/environment.yaml"
    resources:
        mem_mb=growing(3000),
        runtime=growing(120),
    params:
        dataset=lambda wildcards: full_token(wildcards, "dataset"),
        raw=lambda wildcards: f"resources/{spec_of(wildcards, 'dataset').name}",
        resolved=resolved("dataset"),
        features=features_of,
    message:
        "preparing {wildcards.dataset}"
    shell:
        "fedrepro stage prepare --dataset {params.dataset:q} --raw {params.raw:q}"
        " --out {output:q} 2> {log:q}"
