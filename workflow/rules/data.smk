from fedrepro.registry import components


def raw_files(wildcards):
    """The files that a data set is made from; none if it is embedded in a package."""
    spec = spec_of(wildcards, "dataset")
    return [f"resources/{spec.name}/{name}" for name in spec.component.meta["files"]]


rule download:
    output:
        "resources/{name}/{file}",
    log:
        "results/logs/download/{name}/{file}.log",
    wildcard_constraints:
        name="|".join(components("dataset")),
        file="[^/]+",
    params:
        mirror=CONFIG.mirror_folder(),
    resources:
        mem_mb=500,
        runtime=120,
    conda:
        "../../envs/environment.yaml"
    message:
        "downloading {wildcards.name}/{wildcards.file}"
    shell:
        "fedrepro stage download --dataset {wildcards.name} --file {wildcards.file:q}"
        " --mirror {params.mirror:q} --out {output:q} 2> {log:q}"


rule prepare:
    input:
        raw_files,
    output:
        expand(
            "results/{{scale}}/datasets/dataset={{dataset}}/{file}", file=PREPARED_FILES
        ),
    log:
        "results/{scale}/logs/datasets/dataset={dataset}.log",
    benchmark:
        "results/{scale}/benchmarks/datasets/dataset={dataset}.tsv"
    params:
        dataset=lambda wildcards: full_token(wildcards, "dataset"),
        raw=lambda wildcards: f"resources/{spec_of(wildcards, 'dataset').name}",
        out=subpath(output[0], parent=True),
        resolved=resolved("dataset"),
    resources:
        mem_mb=2000,
        runtime=30,
    conda:
        "../../envs/environment.yaml"
    message:
        "preparing {wildcards.dataset}"
    shell:
        "fedrepro stage prepare --dataset {params.dataset:q} --raw {params.raw:q}"
        " --out {params.out:q} 2> {log:q}"
