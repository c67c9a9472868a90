rule tokens:
    output:
        "results/{scale}/tokens.csv",
    log:
        "results/{scale}/logs/tokens.log",
    conda:
        "../../envs/environment.yaml"
    resources:
        mem_mb=growing(500),
        runtime=growing(5),
    params:
        shortened=shortened_tokens,
        seed=CONFIG.seed,
        trials=CONFIG.granularity.trials_per_job,
    message:
        "names behind shortened tokens"
    shell:
        "fedrepro stage tokens --scale {wildcards.scale} --seed {params.seed}"
        " --trials-per-job {params.trials} --out {output:q} 2> {log:q}"


rule site:
    input:
        tokens="results/{scale}/tokens.csv",
        exhibits=selected_files,
        maps="reports/{scale}/partitions",
        graphs=graph_maps_of_selected,
        claims=claims_of_selected,
        boards=boards_of_selected,
        timings=selected_timings,
    output:
        index="reports/{scale}/index.html",
        pages=directory("reports/{scale}/site"),
    log:
        "results/{scale}/logs/site.log",
    conda:
        "../../envs/environment.yaml"
    resources:
        mem_mb=growing(1000),
        runtime=growing(20),
    params:
        exhibits=shown_keys,
    message:
        "writing reports/{wildcards.scale}/index.html"
    shell:
        "fedrepro stage site --scale {wildcards.scale} --reports reports/{wildcards.scale}"
        " --exhibits {params.exhibits} --maps {input.maps:q} --graphs {input.graphs:q}"
        " --out {output.index:q} 2> {log:q}"
