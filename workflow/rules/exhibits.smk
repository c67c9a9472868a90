def metrics_files(wildcards):
    return plan_of(wildcards.scale).metrics_files(exhibit_of(wildcards))


def timings_files(wildcards):
    return [str(Path(path).with_name("timings.parquet")) for path in metrics_files(wildcards)]


def exhibit_settings(wildcards):
    """Everything that the drawing depends on; a changed label redraws and recomputes nothing."""
    return exhibit_of(wildcards).settings.model_dump_json()


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
    params:
        settings=exhibit_settings,
        seed=CONFIG.seed,
        methods=CONFIG.granularity.methods_per_job,
        out="reports/{scale}/{paper}/{exhibit}",
    resources:
        mem_mb=1000,
        runtime=20,
    conda:
        "../../envs/environment.yaml"
    message:
        "drawing {wildcards.paper} {wildcards.exhibit} at scale {wildcards.scale}"
    shell:
        "fedrepro stage exhibit --scale {wildcards.scale} --seed {params.seed}"
        " --methods-per-job {params.methods} --exhibit {wildcards.paper}/{wildcards.exhibit} --metrics {input.metrics:q}"
        " --out {params.out:q} 2> {log:q}"
