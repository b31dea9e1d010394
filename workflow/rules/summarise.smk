rule summarise:
    input:
        predictions=lambda wildcards: [
            f"{PATHS.run(run)}/predictions.csv" for run in summarised_runs(wildcards)
        ],
        meta=lambda wildcards: [f"{PATHS.run(run)}/meta.json" for run in summarised_runs(wildcards)],
    output:
        summary="<results>/summaries/{experiment}/{cohort}/{protocol}.csv",
        sites="<results>/summaries/{experiment}/{cohort}/{protocol}-sites.csv",
        records="<results>/summaries/{experiment}/{cohort}/{protocol}.runs.json",
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
        runs=lambda wildcards: [PATHS.run(run) for run in summarised_runs(wildcards)],
        code=code("scripts/summarise.py"),
    shell:
        "{RUN}/summarise.py --runs {params.runs:q} --experiment {wildcards.experiment:q}"
        " --out {output.summary:q} --sites {output.sites:q} --records {output.records:q}"
        " > {log:q} 2>&1"
