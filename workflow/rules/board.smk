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
        settings=board_settings,
        out=f"{DRAWN}/{{paper}}/{{board}}",
        schema=SCHEMA_VERSION,
    message:
        "leaderboard {wildcards.paper}/{wildcards.board} at scale {wildcards.scale}"
    shell:
        "fedrepro stage board --board {wildcards.paper}/{wildcards.board}"
        " --scale {wildcards.scale} --reports reports/{wildcards.scale}"
        " --out {params.out:q} 2> {log:q}"


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
