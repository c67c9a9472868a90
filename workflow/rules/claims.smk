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
        exhibits=shown_keys_of_paper,
        says=claims_said,
    message:
        "claims of {wildcards.paper} at scale {wildcards.scale}"
    shell:
        "fedrepro stage claims --paper {wildcards.paper} --exhibits {params.exhibits}"
        " --reports reports/{wildcards.scale} --out {output.table:q} 2> {log:q}"


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
