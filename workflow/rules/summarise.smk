rule summarise:
    input:
        predictions=lambda wildcards: [
            f"{PATHS.run(cell)}/predictions.csv" for cell in summarised_runs(wildcards)
        ],
        meta=lambda wildcards: [
            f"{PATHS.run(cell)}/meta.json" for cell in summarised_runs(wildcards)
        ],
    output:
        summary="<results>/summaries/{experiment}/{cohort}/{protocol}.csv",
        sites="<results>/summaries/{experiment}/{cohort}/{protocol}-sites.csv",
        cells="<results>/summaries/{experiment}/{cohort}/{protocol}.cells.json",
    log:
        "<logs>/summarise/{experiment}/{cohort}/{protocol}.log",
    benchmark:
        "<benchmarks>/summarise/{experiment}/{cohort}/{protocol}.tsv"
    conda:
        "../../envs/report.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=60,
    params:
        runs=lambda wildcards: [PATHS.run(cell) for cell in summarised_runs(wildcards)],
        code=code("scripts/summarise.py"),
    shell:
        "{RUN}/summarise.py --runs {params.runs:q} --experiment {wildcards.experiment:q}"
        " --out {output.summary:q} --sites {output.sites:q} --cells {output.cells:q}"
        " > {log:q} 2>&1"
