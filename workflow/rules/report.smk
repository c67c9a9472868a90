def selected_files(wildcards):
    return [f"reports/{wildcards.scale}/{key}.csv" for key in selected_keys(wildcards)]


def selected_timings(wildcards):
    plan = plan_of(wildcards.scale)
    runs = dict.fromkeys(path for e in plan.selected for path in plan.metrics_files(e))
    return [str(Path(path).with_name("timings.parquet")) for path in runs]


rule report:
    input:
        exhibits=selected_files,
        timings=selected_timings,
    output:
        "reports/{scale}/index.html",
    log:
        "results/{scale}/logs/report.log",
    params:
        exhibits=selected_keys,
        seed=CONFIG.seed,
        methods=CONFIG.granularity.methods_per_job,
    resources:
        mem_mb=1000,
        runtime=20,
    conda:
        "../../envs/environment.yaml"
    message:
        "writing reports/{wildcards.scale}/index.html"
    shell:
        "fedrepro stage report --scale {wildcards.scale} --seed {params.seed}"
        " --methods-per-job {params.methods} --exhibits {params.exhibits} --times {input.timings:q} --out {output:q} 2> {log:q}"
