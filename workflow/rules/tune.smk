rule tune:
    input:
        data=data_folder,
        members=partition_file,
        models=model_files,
        public=public_folder,
    output:
        metrics=f"results/{{scale}}/seed={{seed}}/tuned/{SCENARIO_FOLDER}/methods={{methods}}/tune={{tune}}/trials={{trials}}/metrics.parquet",
        timings=f"results/{{scale}}/seed={{seed}}/tuned/{SCENARIO_FOLDER}/methods={{methods}}/tune={{tune}}/trials={{trials}}/timings.parquet",
    log:
        f"results/{{scale}}/logs/tuned/seed={{seed}}/{SCENARIO_FOLDER}/methods={{methods}}/tune={{tune}}/trials={{trials}}.log",
    conda:
        "../../envs/environment.yaml"
    threads: 1
    resources:
        mem_mb=growing(4000),
        runtime=growing(240),
        gpu=GPUS,
    params:
        scenario=scenario_options,
        method=lambda wildcards: full_token(wildcards, "methods"),
        tune=lambda wildcards: full_token(wildcards, "tune"),
        models=model_options,
        splits=splits_and_public_inputs,
        device=CONFIG.device,
        resolved=resolved(*WITHOUT_GRAPH, "methods", "tune"),
    message:
        "{wildcards.methods}, tuned: {wildcards.dataset}, {wildcards.partition}, trials {wildcards.trials}"
    shell:
        "fedrepro stage aggregate {params.scenario:q} --method {params.method:q}"
        " --tune {params.tune:q}"
        " --data {input.data:q} --members {input.members:q} {params.models:q} {params.splits:q}"
        " --trials {wildcards.trials} --seed {wildcards.seed} --device {params.device}"
        " --threads {threads} --out {output.metrics:q} --timings {output.timings:q} 2> {log:q}"
