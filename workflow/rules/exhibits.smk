rule exhibit:
    input:
        metrics=metrics_files,
        timings=timings_files,
    output:
        report(
            "reports/{scale}/{paper}/{exhibit}.svg",
            caption="../report/exhibit.rst",
            category="{paper}",
            labels={"exhibit": "{exhibit}", "scale": "{scale}"},
        ),
        multiext(
            "reports/{scale}/{paper}/{exhibit}",
            ".png",
            ".csv",
            ".choice.csv",
            ".json",
            ".metrics.parquet",
        ),
    log:
        "results/{scale}/logs/exhibits/{paper}/{exhibit}.log",
    conda:
        "../../envs/environment.yaml"
    resources:
        mem_mb=growing(1000),
        runtime=growing(20),
    params:
        settings=exhibit_settings,
        seed=CONFIG.seed,
        trials=CONFIG.granularity.trials_per_job,
        out="reports/{scale}/{paper}/{exhibit}",
        schema=SCHEMA_VERSION,
    message:
        "drawing {wildcards.paper} {wildcards.exhibit} at scale {wildcards.scale}"
    shell:
        "fedrepro stage exhibit --scale {wildcards.scale} --seed {params.seed}"
        " --trials-per-job {params.trials} --exhibit {wildcards.paper}/{wildcards.exhibit}"
        " --out {params.out:q} 2> {log:q}"
