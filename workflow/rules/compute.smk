# What a stage asks for, in MB, and the files that a job of it writes. A job that failed gets more.
# Later stages have longer jobs, and run first, so that none is left for the end.
STAGES = {
    "train": (3000, ["local.parquet", TIMINGS]),
    "aggregate": (4000, [METRICS, TIMINGS]),
    "federate": (4000, [METRICS, TIMINGS, "global.pt"]),
    "peer": (4000, [METRICS, TIMINGS, "confusion.parquet", "nodes.pt"]),
}
for stage, (memory, files) in STAGES.items():

    rule:
        name:
            stage
        input:
            of_job(stage, "inputs"),
        output:
            expand(f"results/{{{{scale}}}}/{stage}/{{{{job}}}}/{{file}}", file=files),
        log:
            f"results/{{scale}}/logs/{stage}/{{job}}.log",
        priority: list(STAGES).index(stage)
        conda:
            "../../envs/environment.yaml"
        threads: 1
        resources:
            mem_mb=growing(memory),
            runtime=growing(240),
            gpu=int(CONFIG.device == "cuda"),
        params:
            job=of_job(stage, "text"),
            digest=of_job(stage, "digest"),
            device=CONFIG.device,
        message:
            "{rule} {wildcards.job}"
        shell:
            "fedrepro job {params.job:q} --device {params.device} --threads {threads} 2> {log:q}"


rule simulate:
    output:
        expand("results/{{scale}}/simulate/{{job}}/{file}", file=[METRICS, TIMINGS]),
    log:
        "results/{scale}/logs/simulate/{job}.log",
    conda:
        "../../envs/environment.yaml"
    threads: 1
    resources:
        mem_mb=growing(2000),
        runtime=growing(60),
    params:
        job=of_job("simulate", "text"),
        digest=of_job("simulate", "digest"),
    message:
        "{rule} {wildcards.job}"
    shell:
        "fedrepro job {params.job:q} --threads {threads} 2> {log:q}"
