rule figure:
    input:
        unpack(lambda wildcards: outputs.input_files(CONFIG, "figures", wildcards.figure)),
    output:
        pdf="<results>/figures/{figure}.pdf",
        png=report(
            "<results>/figures/{figure}.png",
            caption="../report/output.rst",
            category=lambda wildcards: outputs.item(CONFIG, "figures", wildcards.figure)[
                "section"
            ],
            labels=lambda wildcards: {
                "Kind": "figure",
                "Title": outputs.item(CONFIG, "figures", wildcards.figure)["title"],
            },
        ),
    log:
        "<logs>/figure/{figure}.log",
    benchmark:
        "<benchmarks>/figure/{figure}.tsv"
    localrule: True
    conda:
        "../../envs/report.yaml"
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        options=lambda wildcards: outputs.command_options(CONFIG, "figures", wildcards.figure),
        heading=lambda wildcards: outputs.item(CONFIG, "figures", wildcards.figure),
        prefix=subpath(output.png, strip_suffix=".png"),
        code=lambda wildcards: code_version(
            *outputs.output_of(CONFIG, "figures", wildcards.figure).code
        ),
    shell:
        "{RUN}/figure.py {params.options} --out-prefix {params.prefix:q} > {log:q} 2>&1"
