rule claims:
    input:
        exhibits=selected_tables_of_paper,
    output:
        table=f"{DRAWN}/{{paper}}/claims.csv",
        about=f"{DRAWN}/{{paper}}/claims.json",
    log:
        "results/{scale}/logs/claims/{paper}.log",
    conda:
        "../../envs/environment.yaml"
    resources:
        mem_mb=growing(1000),
        runtime=growing(10),
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
    shell:
        "fedrepro job {params.job:q} 2> {log:q}"


rule report_claims:
    input:
        exhibits=selected_tables_of_paper,
        table=f"{DRAWN}/{{paper}}/claims.csv",
        about=f"{DRAWN}/{{paper}}/claims.json",
    output:
        table=report(
            "reports/{scale}/{paper}/claims.csv",
            caption="../report/claims.rst",
            category=name_of_paper,
            subcategory="Claims",
            labels={"exhibit": "claims", "shows": "every claim", "scale": "{scale}"},
        ),
        about="reports/{scale}/{paper}/claims.json",
    log:
        "results/{scale}/logs/reports/{paper}/claims.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        exhibits=shown_keys_of_paper,
        says=claims_said,
    message:
        "claims of {wildcards.paper} go to reports/{wildcards.scale}"
    shell:
        "cp {input.table:q} {input.about:q} reports/{wildcards.scale}/{wildcards.paper} 2> {log:q}"


rule board:
    input:
        parts_of_board,
    output:
        multiext(f"{DRAWN}/{{paper}}/{{board}}", *BOARD),
    log:
        "results/{scale}/logs/boards/{paper}/{board}.log",
    conda:
        "../../envs/environment.yaml"
    resources:
        mem_mb=growing(1000),
        runtime=growing(20),
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
    shell:
        "fedrepro job {params.job:q} 2> {log:q}"


rule report_board:
    input:
        parts_of_board,
        drawn=multiext(f"{DRAWN}/{{paper}}/{{board}}", *BOARD),
    output:
        report(
            "reports/{scale}/{paper}/{board}.groups.svg",
            caption="../report/board.rst",
            category=name_of_paper,
            subcategory="Figures",
            labels={
                "exhibit": "leaderboard {board}",
                "shows": "all methods in all its scenarios",
                "scale": "{scale}",
            },
        ),
        multiext("reports/{scale}/{paper}/{board}", *BOARD[1:]),
    log:
        "results/{scale}/logs/reports/{paper}/{board}.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        settings=board_settings,
        schema=SCHEMA_VERSION,
    message:
        "leaderboard {wildcards.paper}/{wildcards.board} goes to reports/{wildcards.scale}"
    shell:
        "cp {input.drawn:q} reports/{wildcards.scale}/{wildcards.paper} 2> {log:q}"


rule partition_maps:
    input:
        data=data_of_selected,
        partitions=partitions_of_selected,
    output:
        directory(f"{DRAWN}/partitions"),
    log:
        "results/{scale}/logs/partition-maps.log",
    conda:
        "../../envs/environment.yaml"
    resources:
        mem_mb=growing(1000),
        runtime=growing(30),
    params:
        job=drawing(
            "maps",
            kind="partitions",
            exhibits=selected_keys,
            scale="{scale}",
            **OF_PLAN,
            out=f"{DRAWN}/partitions",
        ),
        schema=SCHEMA_VERSION,
    message:
        "drawing the partitions of scale {wildcards.scale}"
    shell:
        "fedrepro job {params.job:q} 2> {log:q}"


rule graph_maps:
    output:
        directory(f"{DRAWN}/graphs"),
    log:
        "results/{scale}/logs/graph-maps.log",
    conda:
        "../../envs/environment.yaml"
    resources:
        mem_mb=growing(1000),
        runtime=growing(30),
    params:
        job=drawing(
            "maps",
            kind="graphs",
            exhibits=selected_keys,
            scale="{scale}",
            **OF_PLAN,
            out=f"{DRAWN}/graphs",
        ),
        graphs=resolved_graphs,
        schema=SCHEMA_VERSION,
    message:
        "drawing the graphs of scale {wildcards.scale}"
    shell:
        "fedrepro job {params.job:q} 2> {log:q}"


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
    message:
        "drawings of {wildcards.maps} go to reports/{wildcards.scale}"
    shell:
        "cp -r {input:q} {output:q} 2> {log:q}"


rule site:
    input:
        exhibits=selected_files,
        maps="reports/{scale}/partitions",
        graphs=graph_maps_of_selected,
        claims=claims_of_selected,
        boards=boards_of_selected,
        timings=selected_timings,
    output:
        index="reports/{scale}/index.html",
        pages=directory("reports/{scale}/site"),
    log:
        "results/{scale}/logs/site.log",
    conda:
        "../../envs/environment.yaml"
    resources:
        mem_mb=growing(1000),
        runtime=growing(20),
    params:
        job=drawing(
            "site",
            scale="{scale}",
            exhibits=shown_keys,
            reports="reports/{scale}",
            maps="reports/{scale}/partitions",
            graphs=graph_maps_of_selected,
            out="reports/{scale}/index.html",
        ),
    message:
        "writing reports/{wildcards.scale}/index.html"
    shell:
        "fedrepro job {params.job:q} 2> {log:q}"
