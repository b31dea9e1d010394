rule figure:
    input:
        unpack(lambda wildcards: input_files(CONFIG, PATHS, "figures", wildcards.figure)),
    output:
        pdf="<results>/figures/{figure}.pdf",
        png=report(
            "<results>/figures/{figure}.png",
            caption="../report/output.rst",
            category=lambda wildcards: item(CONFIG, "figures", wildcards.figure)["section"],
            labels=lambda wildcards: {
                "Kind": "figure",
                "Title": item(CONFIG, "figures", wildcards.figure)["title"],
            },
        ),
    log:
        "<logs>/figure/{figure}.log",
    benchmark:
        "<benchmarks>/figure/{figure}.tsv"
    localrule: True
    conda:
        "../../envs/report.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        options=lambda wildcards: command_options(CONFIG, PATHS, "figures", wildcards.figure),
        heading=lambda wildcards: item(CONFIG, "figures", wildcards.figure),
        prefix=subpath(output.png, strip_suffix=".png"),
        code=lambda wildcards: code_version(*output_of(CONFIG, "figures", wildcards.figure).code),
    shell:
        "{RUN}/figure.py {params.options} --out-prefix {params.prefix:q} > {log:q} 2>&1"
