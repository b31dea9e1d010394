# One job for all cells of an experiment: starting torch costs more than most diagnostics.
rule diagnose:
    input:
        participants="<results>/cohorts/{cohort}/participants.tsv",
        series="<results>/cohorts/{cohort}/series.h5",
        fc="<results>/cohorts/{cohort}/fc.h5",
        split="<results>/splits/{cohort}/{protocol}.json",
        block_length="<results>/blocklength/{cohort}/{protocol}.json",
        meta=diagnosed_files("meta.json"),
        models=diagnosed_files("models.pt"),
        predictions=diagnosed_files("predictions.csv"),
    output:
        folder=directory("<results>/diagnostics/{experiment}/{cohort}/{protocol}"),
    log:
        "<logs>/diagnose/{experiment}/{cohort}/{protocol}.log",
    benchmark:
        "<benchmarks>/diagnose/{experiment}/{cohort}/{protocol}.tsv"
    conda:
        "../../envs/train.yaml"
    threads: 1
    resources:
        mem_mb=lambda wildcards, attempt: 12000 * attempt,
        runtime=lambda wildcards, attempt: 240 * attempt,
        gpu=lambda wildcards: 0 if diagnosed_on(wildcards) == "cpu" else 1,
        device=diagnosed_on,
    params:
        cohort_dir=subpath(input.fc, parent=True),
        runs=lambda wildcards: [PATHS.run(cell) for cell in diagnosed_runs(wildcards)],
        settings=as_json(CONFIG.settings["diagnostics"]),
        code=diagnosed_code,
    shell:
        "{RUN}/diagnose.py --cohort-dir {params.cohort_dir:q} --split {input.split:q}"
        " --block-length {input.block_length:q} --runs {params.runs:q}"
        " --settings {params.settings:q} --code {params.code} --threads {threads}"
        " --memory-mb {resources.mem_mb} --device {resources.device} --out-dir {output.folder:q} > {log:q} 2>&1"
