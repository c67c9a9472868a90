rule simulate:
    output:
        metrics="results/{scale}/seed={seed}/simulations/methods={methods}/trials={trials}/metrics.parquet",
        timings="results/{scale}/seed={seed}/simulations/methods={methods}/trials={trials}/timings.parquet",
    log:
        "results/{scale}/logs/simulations/seed={seed}/methods={methods}/trials={trials}.log",
    conda:
        "../../envs/environment.yaml"
    threads: 1
    resources:
        mem_mb=growing(2000),
        runtime=growing(60),
    params:
        method=lambda wildcards: full_token(wildcards, "methods"),
        resolved=resolved("methods"),
    message:
        "{wildcards.methods}: trials {wildcards.trials}"
    shell:
        "fedrepro stage simulate --method {params.method:q} --trials {wildcards.trials}"
        " --seed {wildcards.seed} --threads {threads}"
        " --out {output.metrics:q} --timings {output.timings:q} 2> {log:q}"
