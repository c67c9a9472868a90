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
        job=drawing(
            "exhibit",
            exhibit="{paper}/{exhibit}",
            scale="{scale}",
            **OF_PLAN,
            out=f"{DRAWN}/{{paper}}/{{exhibit}}",
        ),
        settings=exhibit_settings,
        caption=caption_of,
        schema=SCHEMA_VERSION,
    message:
        "drawing {wildcards.paper} {wildcards.exhibit} at scale {wildcards.scale}"
    shell:
        "fedrepro job {params.job:q} 2> {log:q}"


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
        data=read_by_exhibit("data"),
        partitions=read_by_exhibit("members"),
        models=read_by_exhibit("local"),
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
        job=drawing(
            "models",
            exhibit="{paper}/{exhibit}",
            scale="{scale}",
            **OF_PLAN,
            reports="reports/{scale}",
            out="reports/{scale}/{paper}/{exhibit}.models",
        ),
        device=CONFIG.device,
    message:
        "keeping the chosen models of {wildcards.paper} {wildcards.exhibit}"
    shell:
        "fedrepro job {params.job:q} --device {params.device} --threads {threads} 2> {log:q}"
