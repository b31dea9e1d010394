from brio_core.reporting.remarks import remarks


def shown_config(wildcards):
    """Changes with the configuration and the comments of methods, for tables that show these."""
    if "config" not in output_of(CONFIG, "tables", wildcards.table).files:
        return ""
    return as_json([CONFIG.resolved(), *map(remarks, used_methods(CONFIG).values())])


rule table:
    input:
        unpack(lambda wildcards: input_files(CONFIG, PATHS, "tables", wildcards.table)),
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
    localrule: True
    conda:
        "../../envs/report.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        options=lambda wildcards: command_options(CONFIG, PATHS, "tables", wildcards.table),
        heading=lambda wildcards: item(CONFIG, "tables", wildcards.table),
        config=lambda wildcards: hashlib.sha256(shown_config(wildcards).encode()).hexdigest(),
        prefix=subpath(output.csv, strip_suffix=".csv"),
        code=lambda wildcards: code_version(*output_of(CONFIG, "tables", wildcards.table).code),
    shell:
        "{RUN}/table.py {params.options} --out-prefix {params.prefix:q} > {log:q} 2>&1"
