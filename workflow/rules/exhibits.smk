rule exhibit:
    input:
        metrics=metrics_files,
        timings=timings_files,
    output:
        multiext(f"{DRAWN}/{{paper}}/{{exhibit}}", *FIGURE),
    log:
        "results/{scale}/logs/exhibits/{paper}/{exhibit}.log",
    conda:
        "../../envs/environment.yaml"
    resources:
        mem_mb=growing(1000),
        runtime=growing(20),
    params:
        settings=exhibit_settings,
        caption=caption_of,
        seed=CONFIG.seed,
        trials=CONFIG.granularity.trials_per_job,
        out=f"{DRAWN}/{{paper}}/{{exhibit}}",
        schema=SCHEMA_VERSION,
    message:
        "drawing {wildcards.paper} {wildcards.exhibit} at scale {wildcards.scale}"
    shell:
        "fedrepro stage exhibit --scale {wildcards.scale} --seed {params.seed}"
        " --trials-per-job {params.trials} --exhibit {wildcards.paper}/{wildcards.exhibit}"
        " --out {params.out:q} 2> {log:q}"


use rule exhibit as table with:
    output:
        multiext(f"{DRAWN}/{{paper}}/{{exhibit}}", *TABLE),
    wildcard_constraints:
        exhibit=TABLES,
    message:
        "writing {wildcards.paper} {wildcards.exhibit} at scale {wildcards.scale}"


# What a figure is drawn from is asked for as well: drawing that failed leaves nothing behind, which
# alone would not be missed while the earlier figure is there.
rule report_exhibit:
    input:
        multiext(f"{DRAWN}/{{paper}}/{{exhibit}}", *FIGURE),
        metrics=metrics_files,
        timings=timings_files,
    output:
        report(
            "reports/{scale}/{paper}/{exhibit}.svg",
            caption="../report/exhibit.rst",
            category=name_of_paper,
            subcategory="Figures",
            labels=labels_of,
        ),
        multiext("reports/{scale}/{paper}/{exhibit}", *FIGURE[1:]),
    log:
        "results/{scale}/logs/reports/{paper}/{exhibit}.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        settings=exhibit_settings,
        caption=caption_of,
        schema=SCHEMA_VERSION,
    message:
        "{wildcards.paper} {wildcards.exhibit} goes to reports/{wildcards.scale}"
    shell:
        # with .times.csv, where it has measured times
        "cp results/drawn/{wildcards.scale}/{wildcards.paper}/{wildcards.exhibit}.*"
        " reports/{wildcards.scale}/{wildcards.paper} 2> {log:q}"


use rule report_exhibit as report_table with:
    input:
        multiext(f"{DRAWN}/{{paper}}/{{exhibit}}", *TABLE),
        metrics=metrics_files,
        timings=timings_files,
    output:
        report(
            "reports/{scale}/{paper}/{exhibit}.html",
            caption="../report/exhibit.rst",
            category=name_of_paper,
            subcategory="Tables",
            labels=labels_of,
        ),
        multiext("reports/{scale}/{paper}/{exhibit}", *TABLE[1:]),
    wildcard_constraints:
        exhibit=TABLES,


rule models:
    input:
        numbers="reports/{scale}/{paper}/{exhibit}.csv",
        about="reports/{scale}/{paper}/{exhibit}.json",
        data=data_of_exhibit,
        partitions=partitions_of_exhibit,
        models=models_of_exhibit,
    output:
        directory("reports/{scale}/{paper}/{exhibit}.models"),
    log:
        "results/{scale}/logs/chosen-models/{paper}/{exhibit}.log",
    conda:
        "../../envs/environment.yaml"
    resources:
        mem_mb=growing(4000),
        runtime=growing(240),
        gpu=GPUS,
    params:
        seed=CONFIG.seed,
        trials=CONFIG.granularity.trials_per_job,
        clients=CONFIG.granularity.clients_per_job,
        device=CONFIG.device,
    message:
        "keeping the chosen models of {wildcards.paper} {wildcards.exhibit}"
    shell:
        "fedrepro stage models --scale {wildcards.scale} --seed {params.seed}"
        " --trials-per-job {params.trials} --clients-per-job {params.clients}"
        " --exhibit {wildcards.paper}/{wildcards.exhibit}"
        " --reports reports/{wildcards.scale} --device {params.device} --threads {threads}"
        " --out {output:q} 2> {log:q}"
