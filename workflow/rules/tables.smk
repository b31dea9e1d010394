rule table:
    input:
        unpack(lambda wildcards: outputs.input_files(CONFIG, "tables", wildcards.table)),
    output:
        csv=report(
            "<results>/tables/{table}.csv",
            caption="../report/output.rst",
            category=lambda wildcards: outputs.item(CONFIG, "tables", wildcards.table)["section"],
            labels=lambda wildcards: {
                "Kind": "table",
                "Title": outputs.item(CONFIG, "tables", wildcards.table)["title"],
            },
        ),
        md="<results>/tables/{table}.md",
        tex="<results>/tables/{table}.tex",
        json="<results>/tables/{table}.json",
    log:
        "<logs>/table/{table}.log",
    benchmark:
        "<benchmarks>/table/{table}.tsv"
    localrule: True
    conda:
        "../../envs/report.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        options=lambda wildcards: outputs.command_options(CONFIG, "tables", wildcards.table),
        heading=lambda wildcards: outputs.item(CONFIG, "tables", wildcards.table),
        config=shown_config,
        prefix=subpath(output.csv, strip_suffix=".csv"),
        code=lambda wildcards: code_version(
            *outputs.output_of(CONFIG, "tables", wildcards.table).code
        ),
    shell:
        "{RUN}/table.py {params.options} --out-prefix {params.prefix:q} > {log:q} 2>&1"
