rule partition:
    input:
        data=data_folder,
    output:
        "results/{scale}/seed={seed}/partitions/dataset={dataset}/partition={partition}/trials={trials}/partition.parquet",
    log:
        "results/{scale}/logs/partitions/seed={seed}/dataset={dataset}/partition={partition}/trials={trials}.log",
    conda:
        "../../envs/environment.yaml"
    resources:
        mem_mb=growing(1000),
        runtime=growing(30),
    params:
        partition=lambda wildcards: full_token(wildcards, "partition"),
        resolved=resolved("dataset", "partition"),
    message:
        "partition {wildcards.partition} of {wildcards.dataset}, trials {wildcards.trials}"
    shell:
        "fedrepro stage partition --data {input.data:q} --partition {params.partition:q}"
        " --trials {wildcards.trials} --seed {wildcards.seed} --out {output:q} 2> {log:q}"


rule partition_maps:
    input:
        data=data_of_selected,
        partitions=partitions_of_selected,
    output:
        directory(f"{DRAWN}/partitions"),
    log:
        "results/{scale}/logs/partition-maps.log",
    conda:
        "../../envs/environment.yaml"
    resources:
        mem_mb=growing(1000),
        runtime=growing(30),
    params:
        exhibits=selected_keys,
        seed=CONFIG.seed,
        trials=CONFIG.granularity.trials_per_job,
        schema=SCHEMA_VERSION,
    message:
        "drawing the partitions of scale {wildcards.scale}"
    shell:
        "fedrepro stage partition-maps --scale {wildcards.scale} --seed {params.seed}"
        " --trials-per-job {params.trials} --exhibits {params.exhibits}"
        " --out {output:q} 2> {log:q}"


rule report_maps:
    input:
        f"{DRAWN}/{{maps}}",
    output:
        directory("reports/{scale}/{maps}"),
    log:
        "results/{scale}/logs/reports/{maps}.log",
    wildcard_constraints:
        maps="partitions|graphs",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    message:
        "drawings of {wildcards.maps} go to reports/{wildcards.scale}"
    shell:
        "cp -r {input:q} {output:q} 2> {log:q}"
