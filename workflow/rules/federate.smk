rule federate:
    input:
        data=data_folder,
        members=partition_file,
    output:
        metrics=f"results/{{scale}}/seed={{seed}}/federated/{SCENARIO_FOLDER}/methods={{methods}}/every={{every}}/trials={{trials}}/metrics.parquet",
        timings=f"results/{{scale}}/seed={{seed}}/federated/{SCENARIO_FOLDER}/methods={{methods}}/every={{every}}/trials={{trials}}/timings.parquet",
        model=f"results/{{scale}}/seed={{seed}}/federated/{SCENARIO_FOLDER}/methods={{methods}}/every={{every}}/trials={{trials}}/global.pt",
    log:
        f"results/{{scale}}/logs/federated/seed={{seed}}/{SCENARIO_FOLDER}/methods={{methods}}/every={{every}}/trials={{trials}}.log",
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
        splits=measured_splits,
        device=CONFIG.device,
        resolved=resolved(*WITHOUT_GRAPH, "methods"),
    message:
        "{wildcards.methods}: {wildcards.dataset}, {wildcards.partition}, trials {wildcards.trials}"
    shell:
        "fedrepro stage federate {params.scenario:q} --method {params.method:q}"
        " --data {input.data:q} --members {input.members:q} --trials {wildcards.trials}"
        " --seed {wildcards.seed} --device {params.device} --threads {threads}"
        " --measure-every {wildcards.every} {params.splits:q}"
        " --out {output.metrics:q}"
        " --timings {output.timings:q} --global-model {output.model:q} 2> {log:q}"
