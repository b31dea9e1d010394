# For colleagues without access to the data; not part of a usual run.
rule export:
    input:
        **outputs.whole_run_inputs(CONFIG, "inclusion", "participants", "summaries", "sites"),
    output:
        folder=directory("<results>/export"),
    log:
        "<logs>/export.log",
    benchmark:
        "<benchmarks>/export.tsv"
    localrule: True
    conda:
        "../../envs/report.yaml"
    resources:
        mem_mb=2000,
        runtime=10,
    params:
        least=CONFIG.config["smallest_cell"],
        code=code("scripts/export.py"),
    shell:
        "{RUN}/export.py --inclusion {input.inclusion:q} --participants {input.participants:q}"
        " --summaries {input.summaries:q} --sites {input.sites:q}"
        " --smallest-group {params.least} --out-dir {output.folder:q} > {log:q} 2>&1"
