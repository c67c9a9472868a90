rule partition:
    input:
        data=data_files,
    output:
        "results/{scale}/seed={seed}/partitions/dataset={dataset}/partition={partition}/trials={trials}/partition.parquet",
    log:
        "results/{scale}/logs/partitions/seed={seed}/dataset={dataset}/partition={partition}/trials={trials}.log",
    conda:
        "../../envs/environment.yaml"
    resources:
        mem_mb=1000,
        runtime=30,
    params:
        data=data_folder,
        partition=lambda wildcards: full_token(wildcards, "partition"),
        resolved=resolved("dataset", "partition"),
    message:
        "partition {wildcards.partition} of {wildcards.dataset}"
    shell:
        "fedrepro stage partition --data {params.data:q} --partition {params.partition:q}"
        " --trials {wildcards.trials} --seed {wildcards.seed} --out {output:q} 2> {log:q}"
