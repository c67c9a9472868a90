# All that draws asks for little; what has other inputs and outputs takes this rule over.
use rule download as site with:
    input:
        read_by_site,
    output:
        "reports/{scale}/index.html",
        directory("reports/{scale}/site"),
    log:
        "results/{scale}/logs/site.log",
    priority: 9
    resources:
        mem_mb=growing(1000),
        runtime=growing(20),
    params:
        job=drawing(
            "site",
            scale="{scale}",
            exhibits=shown_keys,
            reports="reports/{scale}",
            out="reports/{scale}/index.html",
        ),
    message:
        "writing reports/{wildcards.scale}/index.html"


use rule site as exhibit with:
    input:
        read_by_exhibit,
    output:
        multiext(f"{DRAWN}/{{paper}}/{{exhibit}}", *FIGURE),
    log:
        "results/{scale}/logs/exhibits/{paper}/{exhibit}.log",
    params:
        job=drawing(
            "exhibit",
            exhibit="{paper}/{exhibit}",
            scale="{scale}",
            seed=CONFIG.seed,
            granularity=CONFIG.granularity.model_dump(),
            also=lambda wildcards: CONFIG.also.get(wildcards.paper, []),
            out=f"{DRAWN}/{{paper}}/{{exhibit}}",
        ),
        settings=exhibit_config,
        schema=SCHEMA_VERSION,
    message:
        "drawing {wildcards.paper} {wildcards.exhibit} at scale {wildcards.scale}"


use rule exhibit as table with:
    output:
        multiext(f"{DRAWN}/{{paper}}/{{exhibit}}", *TABLE),
    wildcard_constraints:
        exhibit=TABLES,


# The drawing's inputs are inputs of this rule as well: a drawing that failed leaves no file, and
# Snakemake would not notice that it is missing while the earlier figure exists.
rule report_exhibit:
    input:
        multiext(f"{DRAWN}/{{paper}}/{{exhibit}}", *FIGURE),
        read_by_exhibit,
    output:
        multiext("reports/{scale}/{paper}/{exhibit}", *FIGURE),
    log:
        "results/{scale}/logs/reports/{paper}/{exhibit}.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        drawn=f"{DRAWN}/{{paper}}/{{exhibit}}.*",  # with .times.csv, if there is one
        to="reports/{scale}/{paper}",
        settings=exhibit_config,
        schema=SCHEMA_VERSION,
    message:
        "{params.drawn} goes to {params.to}"
    shell:
        "cp -r {params.drawn} {params.to} 2> {log:q}"


use rule report_exhibit as report_table with:
    input:
        multiext(f"{DRAWN}/{{paper}}/{{exhibit}}", *TABLE),
        read_by_exhibit,
    output:
        multiext("reports/{scale}/{paper}/{exhibit}", *TABLE),
    wildcard_constraints:
        exhibit=TABLES,
    localrule: True


use rule site as claims with:
    input:
        selected_tables_of_paper,
    output:
        multiext(f"{DRAWN}/{{paper}}/claims", ".csv", ".json"),
    log:
        "results/{scale}/logs/claims/{paper}.log",
    params:
        job=drawing(
            "claims",
            paper="{paper}",
            exhibits=shown_keys_of_paper,
            reports="reports/{scale}",
            out=f"{DRAWN}/{{paper}}/claims.csv",
        ),
        says=claims_said,
    message:
        "claims of {wildcards.paper} at scale {wildcards.scale}"


use rule report_exhibit as report_claims with:
    input:
        multiext(f"{DRAWN}/{{paper}}/claims", ".csv", ".json"),
        selected_tables_of_paper,
    output:
        multiext("reports/{scale}/{paper}/claims", ".csv", ".json"),
    log:
        "results/{scale}/logs/reports/{paper}/claims.log",
    localrule: True
    params:
        drawn=f"{DRAWN}/{{paper}}/claims.*",
        settings=claims_said,
        exhibits=shown_keys_of_paper,


use rule site as board with:
    input:
        parts_of_board,
    output:
        multiext(f"{DRAWN}/{{paper}}/{{board}}", *BOARD),
    log:
        "results/{scale}/logs/boards/{paper}/{board}.log",
    params:
        job=drawing(
            "board",
            board="{paper}/{board}",
            scale="{scale}",
            reports="reports/{scale}",
            out=f"{DRAWN}/{{paper}}/{{board}}",
        ),
        settings=board_settings,
        schema=SCHEMA_VERSION,
    message:
        "leaderboard {wildcards.paper}/{wildcards.board} at scale {wildcards.scale}"


use rule report_exhibit as report_board with:
    input:
        multiext(f"{DRAWN}/{{paper}}/{{board}}", *BOARD),
        parts_of_board,
    output:
        multiext("reports/{scale}/{paper}/{board}", *BOARD),
    log:
        "results/{scale}/logs/reports/{paper}/{board}.log",
    localrule: True
    params:
        drawn=f"{DRAWN}/{{paper}}/{{board}}.*",
        settings=board_settings,
