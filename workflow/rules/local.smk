rule train:
    input:
        data=data_folder,
        members=partition_file,
    output:
        models=f"results/{{scale}}/seed={{seed}}/models/{SCENARIO_FOLDER}/trials={{trials}}/clients={{clients}}/local.parquet",
        timings=f"results/{{scale}}/seed={{seed}}/models/{SCENARIO_FOLDER}/trials={{trials}}/clients={{clients}}/timings.parquet",
    log:
        f"results/{{scale}}/logs/models/seed={{seed}}/{SCENARIO_FOLDER}/trials={{trials}}/clients={{clients}}.log",
    conda:
        "../../envs/environment.yaml"
    threads: 1
    resources:
        mem_mb=growing(3000),
        runtime=growing(240),
        gpu=GPUS,
    params:
        scenario=scenario_options,
        device=CONFIG.device,
        resolved=resolved(*WITHOUT_GRAPH),
    message:
        "local models: {wildcards.dataset}, {wildcards.partition}, trials {wildcards.trials}, clients {wildcards.clients}"
    shell:
        "fedrepro stage train {params.scenario:q} --data {input.data:q}"
        " --members {input.members:q} --trials {wildcards.trials}"
        " --clients {wildcards.clients} --seed {wildcards.seed} --device {params.device}"
        " --threads {threads} --out {output.models:q} --timings {output.timings:q} 2> {log:q}"
