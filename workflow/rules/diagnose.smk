rule diagnose:
    input:
        participants=ancient("<results>/cohorts/{cohort}/participants.tsv"),
        series=ancient("<results>/cohorts/{cohort}/series.h5"),
        data="<results>/cohorts/{cohort}/checksums.json",
        fc=ancient("<results>/cohorts/{cohort}/fc.h5"),
        split="<results>/splits/{cohort}/{protocol}.json",
        block_length="<results>/blocklength/{cohort}/{protocol}.json",
        meta=lambda wildcards: [f"{run}/meta.json" for run in run_folders(wildcards)],
        models=lambda wildcards: [f"{run}/models.pt" for run in run_folders(wildcards)],
    output:
        folder=directory("<results>/diagnostics/{cohort}/{protocol}/{variant}/seed-{seed}"),
    log:
        "<logs>/diagnose/{cohort}/{protocol}/{variant}/seed-{seed}.log",
    benchmark:
        "<benchmarks>/diagnose/{cohort}/{protocol}/{variant}/seed-{seed}.tsv"
    conda:
        "../../envs/train.yaml"
    threads: 1
    resources:
        mem_mb=lambda wildcards, attempt: 12000 * attempt,
        runtime=per_seed(240),
        gpu=lambda wildcards: 0 if trains_on(wildcards) == "cpu" else 1,
        device=trains_on,
    params:
        cohort_dir=subpath(input.fc, parent=True),
        runs=lambda wildcards, output: run_folders(wildcards),
        settings=as_json(CONFIG.config["diagnostics"]),
        data=connected_version,
        code=method_code("diagnose"),
    shell:
        # Of several folders, Snakemake itself would empty the first.
        "rm -rf {output:q} && {RUN}/diagnose.py --cohort-dir {params.cohort_dir:q} --split {input.split:q}"
        " --block-length {input.block_length:q} --run {params.runs:q}"
        " --settings {params.settings:q} --code {params.code} --threads {threads}"
        " --memory-mb {resources.mem_mb} --device {resources.device} --out-dir {output:q} > {log:q} 2>&1"


Diagnosed(SEEDS, "diagnose", workflow, CONFIG, UNRECORDED)
