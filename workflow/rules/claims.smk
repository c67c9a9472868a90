rule claims:
    input:
        published="config/published/{paper}.yaml",
        exhibits=selected_tables_of_paper,
    output:
        table="reports/{scale}/{paper}/claims.csv",
        about="reports/{scale}/{paper}/claims.json",
    log:
        "results/{scale}/logs/claims/{paper}.log",
    conda:
        "../../envs/environment.yaml"
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        exhibits=selected_keys_of_paper,
    message:
        "claims of {wildcards.paper} at scale {wildcards.scale}"
    shell:
        "fedrepro stage claims --published {input.published:q} --exhibits {params.exhibits}"
        " --reports reports/{wildcards.scale} --out {output.table:q} 2> {log:q}"
