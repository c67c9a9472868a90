use rule download as exhibit with:
    input:
        metrics=metrics_files,
        timings=timings_files,
    output:
        multiext(f"{DRAWN}/{{paper}}/{{exhibit}}", *FIGURE),
    log:
        "results/{scale}/logs/exhibits/{paper}/{exhibit}.log",
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


use rule exhibit as table with:
    output:
        multiext(f"{DRAWN}/{{paper}}/{{exhibit}}", *TABLE),
    wildcard_constraints:
        exhibit=TABLES,
    message:
        "writing {wildcards.paper} {wildcards.exhibit} at scale {wildcards.scale}"


rule report_maps:
    input:
        f"{DRAWN}/{{maps}}",
    output:
        directory("reports/{scale}/{maps}"),
    log:
        "results/{scale}/logs/reports/{maps}.log",
    wildcard_constraints:
        maps="partitions|graphs",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        drawn=lambda wildcards, input: input[0],
        to="reports/{scale}",
    message:
        "{params.drawn} goes to {params.to}"
    shell:
        "cp -r {params.drawn} {params.to} 2> {log:q}"


# The drawing's inputs are inputs of this rule as well: a drawing that failed leaves no file, and
# Snakemake would not notice that it is missing while the earlier figure exists.
use rule report_maps as report_exhibit with:
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
    params:
        drawn=f"{DRAWN}/{{paper}}/{{exhibit}}.*",  # with .times.csv, if there is one
        to="reports/{scale}/{paper}",
        settings=exhibit_settings,
        caption=caption_of,
        schema=SCHEMA_VERSION,


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
    localrule: True


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
