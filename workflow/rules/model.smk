# A model for scans of a new site: all sites train, and runs without each site tell what to expect.
rule model_bundle:
    input:
        participants=ancient("<results>/cohorts/{cohort}/participants.tsv"),
        series=ancient("<results>/cohorts/{cohort}/series.h5"),
        data="<results>/cohorts/{cohort}/checksums.json",
        fc=ancient("<results>/cohorts/{cohort}/fc.h5"),
        meta=lambda wildcards: [f"{run}/meta.json" for run in expected_by(wildcards)],
    output:
        bundle="<results>/models/{cohort}/{variant}.brio",
        card="<results>/models/{cohort}/{variant}/card.md",
        page="<results>/models/{cohort}/{variant}/card.html",
    log:
        "<logs>/model/{cohort}/{variant}.log",
    benchmark:
        "<benchmarks>/model/{cohort}/{variant}.tsv"
    conda:
        "../../envs/train.yaml"
    threads: 1
    resources:
        mem_mb=lambda wildcards, attempt: 8000 * attempt,
        runtime=lambda wildcards, attempt: 240 * attempt,
        gpu=lambda wildcards: 0 if trains_on(wildcards) == "cpu" else 1,
        device=trains_on,
        fallback="--allow-cpu" if CONFIG.config["allow_cpu"] else "",
    params:
        cohort_dir=subpath(input.fc, parent=True),
        card=subpath(output.card, parent=True),
        runs=expected_by,
        method=lambda wildcards: as_json(CONFIG.train_params(wildcards.variant)),
        settings=as_json(CONFIG.config["block_length"]),
        words=lambda wildcards: as_json(outputs.about(CONFIG, wildcards.cohort)),
        code=method_code("model"),
    shell:
        "{RUN}/model.py --cohort-dir {params.cohort_dir:q} --runs {params.runs:q}"
        " --params {params.method:q} --settings {params.settings:q} --words {params.words:q}"
        " --code {params.code} --out {output.bundle:q} --card {params.card:q}"
        " --threads {threads} --memory-mb {resources.mem_mb}"
        " --device {resources.device} {resources.fallback} > {log:q} 2>&1"


rule model:
    input:
        or_exit(model_files),
