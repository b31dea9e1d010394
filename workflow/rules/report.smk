rule index:
    input:
        tables=outputs.output_files(CONFIG, "tables", ACTIVE, "json") + whole_run_tables("json"),
        figures=outputs.output_files(CONFIG, "figures", ACTIVE, "png"),
        summaries=active_summaries(".csv"),
        # One file for many runs: a thousand run folders would not fit into one command.
        runs=active_summaries(".runs.json"),
    output:
        page=report(
            "<results>/index.html",
            caption="../report/overview.rst",
            category="Overview",
            labels={"Kind": "page", "Title": "Everything on one page"},
        ),
    log:
        "<logs>/index.log",
    benchmark:
        "<benchmarks>/index.tsv"
    localrule: True
    conda:
        "../../envs/report.yaml"
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        # Written before the first job of every run; its content is tracked here.
        config=PATHS.run_config,
        resolved=lambda wildcards: version_of(resolved(CONFIG)),
        datasets=as_json({name: outputs.about(CONFIG, name) for name in CONFIG.datasets}),
        command=command_line(),
        code=code("scripts/overview.py", "workflow/report/overview.html.j2"),
    shell:
        "{RUN}/overview.py --tables {input.tables:q} --figures {input.figures:q}"
        " --summaries {input.summaries:q} --runs {input.runs:q} --config {params.config:q}"
        " --datasets {params.datasets:q} --command {params.command:q}"
        " --out {output.page:q} > {log:q} 2>&1"
