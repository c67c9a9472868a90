use rule download as claims with:
    input:
        exhibits=selected_tables_of_paper,
    output:
        table=f"{DRAWN}/{{paper}}/claims.csv",
        about=f"{DRAWN}/{{paper}}/claims.json",
    log:
        "results/{scale}/logs/claims/{paper}.log",
    resources:
        mem_mb=growing(1000),
        runtime=growing(20),
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


use rule report_maps as report_claims with:
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
    params:
        drawn=f"{DRAWN}/{{paper}}/claims.*",
        to="reports/{scale}/{paper}",
        exhibits=shown_keys_of_paper,
        says=claims_said,


use rule download as board with:
    input:
        parts_of_board,
    output:
        multiext(f"{DRAWN}/{{paper}}/{{board}}", *BOARD),
    log:
        "results/{scale}/logs/boards/{paper}/{board}.log",
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


use rule report_maps as report_board with:
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
    params:
        drawn=f"{DRAWN}/{{paper}}/{{board}}.*",
        to="reports/{scale}/{paper}",
        settings=board_settings,
        schema=SCHEMA_VERSION,


use rule download as graph_maps with:
    output:
        directory(f"{DRAWN}/graphs"),
    log:
        "results/{scale}/logs/graph-maps.log",
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


use rule download as partition_maps with:
    input:
        data=data_of_selected,
        partitions=partitions_of_selected,
    output:
        directory(f"{DRAWN}/partitions"),
    log:
        "results/{scale}/logs/partition-maps.log",
    resources:
        mem_mb=growing(1000),
        runtime=growing(20),
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


use rule download as site with:
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
