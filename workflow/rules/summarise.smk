rule summarise:
    input:
        # Written last of the files of a run, it stands for all.
        meta=lambda wildcards: [f"{run}/meta.json" for run in summarised_runs(wildcards)],
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
    resources:
        mem_mb=4000,
        runtime=60,
    params:
        runs=summarised_runs,
        ensembles=lambda wildcards: as_json(ensembles(CONFIG, wildcards.experiment)),
        # No input: runs that were copied here without it are summarised too.
        split=f"{PATHS.results}/splits/{{cohort}}/{{protocol}}.json",
        code=code("scripts/summarise.py"),
    shell:
        "{RUN}/summarise.py --runs {params.runs:q} --experiment {wildcards.experiment:q}"
        " --ensembles {params.ensembles:q}"
        " --out {output.summary:q} --sites {output.sites:q} --records {output.records:q}"
        " --split {params.split:q}"
        " > {log:q} 2>&1"
