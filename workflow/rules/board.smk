rule board:
    input:
        parts_of_board,
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
        multiext(
            "reports/{scale}/{paper}/{board}",
            ".csv",
            ".scenarios.csv",
            ".times.csv",
            ".json",
            ".groups.png",
            ".gains.svg",
            ".gains.png",
            ".bytes.svg",
            ".bytes.png",
            ".scenarios.svg",
            ".scenarios.png",
        ),
    log:
        "results/{scale}/logs/boards/{paper}/{board}.log",
    conda:
        "../../envs/environment.yaml"
    resources:
        mem_mb=growing(1000),
        runtime=growing(20),
    params:
        settings=board_settings,
        schema=SCHEMA_VERSION,
    message:
        "leaderboard {wildcards.paper}/{wildcards.board} at scale {wildcards.scale}"
    shell:
        "fedrepro stage board --board {wildcards.paper}/{wildcards.board}"
        " --scale {wildcards.scale} --reports reports/{wildcards.scale} 2> {log:q}"
