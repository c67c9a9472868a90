rule peer:
    input:
        data=data_folder,
        members=partition_file,
    output:
        metrics=f"results/{{scale}}/seed={{seed}}/peer/{PEER_FOLDER}/methods={{methods}}/every={{every}}/trials={{trials}}/metrics.parquet",
        timings=f"results/{{scale}}/seed={{seed}}/peer/{PEER_FOLDER}/methods={{methods}}/every={{every}}/trials={{trials}}/timings.parquet",
        confusion=f"results/{{scale}}/seed={{seed}}/peer/{PEER_FOLDER}/methods={{methods}}/every={{every}}/trials={{trials}}/confusion.parquet",
        nodes=f"results/{{scale}}/seed={{seed}}/peer/{PEER_FOLDER}/methods={{methods}}/every={{every}}/trials={{trials}}/nodes.pt",
    log:
        f"results/{{scale}}/logs/peer/seed={{seed}}/{PEER_FOLDER}/methods={{methods}}/every={{every}}/trials={{trials}}.log",
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
        resolved=resolved(*SCENARIO, "methods"),
    message:
        "{wildcards.methods} on {wildcards.graph}: {wildcards.dataset}, {wildcards.partition}, trials {wildcards.trials}"
    shell:
        "fedrepro stage peer {params.scenario:q} --method {params.method:q}"
        " --data {input.data:q} --members {input.members:q} --trials {wildcards.trials}"
        " --seed {wildcards.seed} --device {params.device} --threads {threads}"
        " --measure-every {wildcards.every} {params.splits:q}"
        " --out {output.metrics:q}"
        " --timings {output.timings:q} --confusion {output.confusion:q}"
        " --nodes {output.nodes:q} 2> {log:q}"


rule graph_maps:
    output:
        directory(f"{DRAWN}/graphs"),
    log:
        "results/{scale}/logs/graph-maps.log",
    conda:
        "../../envs/environment.yaml"
    resources:
        mem_mb=growing(1000),
        runtime=growing(30),
    params:
        exhibits=selected_keys,
        graphs=resolved_graphs,
        seed=CONFIG.seed,
        trials=CONFIG.granularity.trials_per_job,
        schema=SCHEMA_VERSION,
    message:
        "drawing the graphs of scale {wildcards.scale}"
    shell:
        "fedrepro stage graph-maps --scale {wildcards.scale} --seed {params.seed}"
        " --trials-per-job {params.trials} --exhibits {params.exhibits}"
        " --out {output:q} 2> {log:q}"
