rule figure:
    input:
        unpack(lambda wildcards: input_files("figures", wildcards.figure)),
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
        program=lambda wildcards: item(CONFIG, "figures", wildcards.figure)["program"],
        options=lambda wildcards: input_options("figures", wildcards.figure),
        heading=lambda wildcards: heading("figures", wildcards.figure),
        datasets=lambda wildcards: datasets_json("figures", wildcards.figure),
        prefix=subpath(output.png, strip_suffix=".png"),
        code=lambda wildcards: code_version(
            f"scripts/figures/{item(CONFIG, 'figures', wildcards.figure)['program']}.py"
        ),
    shell:
        "{RUN}/figures/{params.program}.py {params.options} --datasets {params.datasets:q}"
        " --out-prefix {params.prefix:q} > {log:q} 2>&1"
