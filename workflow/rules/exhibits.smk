rule exhibit:
    input:
        metrics=metrics_files,
        timings=timings_files,
    output:
        multiext(
            "reports/{scale}/{paper}/{exhibit}",
            ".svg",
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
        mem_mb=1000,
        runtime=20,
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


use rule exhibit as table with:
    input:
        metrics=metrics_files,
        timings=timings_files,
        published=published_values,
    output:
        multiext(
            "reports/{scale}/{paper}/{exhibit}",
            ".html",
            ".md",
            ".tex",
            ".csv",
            ".choice.csv",
            ".printed.csv",
            ".json",
            ".metrics.parquet",
        ),
    wildcard_constraints:
        exhibit=TABLES,
    message:
        "writing {wildcards.paper} {wildcards.exhibit} at scale {wildcards.scale}"
