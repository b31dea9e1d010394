rule table:
    input:
        unpack(lambda wildcards: input_files("tables", wildcards.table)),
    output:
        csv=report(
            "<results>/tables/{table}.csv",
            caption="../report/output.rst",
            category=lambda wildcards: item(CONFIG, "tables", wildcards.table)["section"],
            labels=lambda wildcards: {
                "Kind": "table",
                "Title": item(CONFIG, "tables", wildcards.table)["title"],
            },
        ),
        md="<results>/tables/{table}.md",
        tex="<results>/tables/{table}.tex",
        json="<results>/tables/{table}.json",
    log:
        "<logs>/table/{table}.log",
    benchmark:
        "<benchmarks>/table/{table}.tsv"
    conda:
        "../../envs/report.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        program=lambda wildcards: item(CONFIG, "tables", wildcards.table)["program"],
        options=table_options,
        heading=lambda wildcards: heading("tables", wildcards.table),
        datasets=lambda wildcards: datasets_json("tables", wildcards.table),
        prefix=subpath(output.csv, strip_suffix=".csv"),
        code=lambda wildcards: code_version(
            f"scripts/{item(CONFIG, 'tables', wildcards.table)['program']}.py"
        ),
    shell:
        "{RUN}/{params.program}.py {params.options} --datasets {params.datasets:q}"
        " --out-prefix {params.prefix:q} > {log:q} 2>&1"
