rule index:
    input:
        tables=output_files(CONFIG, PATHS, "tables", ACTIVE),
        figures=output_files(CONFIG, PATHS, "figures", ACTIVE),
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
    conda:
        "../../envs/report.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        results=CONFIG.settings["results"],
        experiments=as_json({name: CONFIG.experiments[name] for name in ACTIVE}),
        code=code("scripts/overview.py"),
    shell:
        "{RUN}/overview.py --results {params.results:q} --experiments {params.experiments:q}"
        " --out {output.page:q} > {log:q} 2>&1"
