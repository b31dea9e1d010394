# A job has all seeds of a variant that are to be trained: see SEEDS.
rule train:
    input:
        participants=ancient("<results>/cohorts/{cohort}/participants.tsv"),
        series=ancient("<results>/cohorts/{cohort}/series.h5"),
        data="<results>/cohorts/{cohort}/checksums.json",
        fc=ancient("<results>/cohorts/{cohort}/fc.h5"),
        split=of_ring(PATHS.split),
        block_length=of_ring(PATHS.block_length),
    output:
        predictions="<results>/runs/{cohort}/{protocol}/{variant}/seed-{seed}/predictions.csv",
        history="<results>/runs/{cohort}/{protocol}/{variant}/seed-{seed}/history.csv",
        meta="<results>/runs/{cohort}/{protocol}/{variant}/seed-{seed}/meta.json",
        models=kept_models("<results>/runs/{cohort}/{protocol}/{variant}/seed-{seed}/models.pt"),
    log:
        "<logs>/train/{cohort}/{protocol}/{variant}/seed-{seed}.log",
    benchmark:
        "<benchmarks>/train/{cohort}/{protocol}/{variant}/seed-{seed}.tsv"
    conda:
        "../../envs/train.yaml"
    threads: 1
    resources:
        mem_mb=lambda wildcards, attempt: 8000 * attempt,
        runtime=per_seed(480),
        gpu=lambda wildcards: 0 if trains_on(wildcards) == "cpu" else 1,
        device=trains_on,
        fallback="--allow-cpu" if CONFIG.config["allow_cpu"] else "",
        # Like the others here no parameter: another choice retrains nothing.
        compress="--compress-models" if CONFIG.config["model_files"] == "compress" else "",
        # How often unfinished training is saved. It belongs to the machine like the others here.
        checkpoint_seconds=60,
    params:
        cohort_dir=subpath(input.fc, parent=True),
        # With the argument 'output' neither is recorded, so that another seed trains that one only.
        seeds=lambda wildcards, output: wildcards.seed.partition("-")[0].split("+"),
        folders=lambda wildcards, output: run_folders(wildcards),
        method=lambda wildcards: as_json(CONFIG.train_params(wildcards.variant)),
        data=connected_version,
        code=method_code("train"),
    shell:
        "{RUN}/train.py --cohort-dir {params.cohort_dir:q} --split {input.split:q}"
        " --block-length {input.block_length:q} --variant {wildcards.variant:q}"
        " --params {params.method:q} --seed {params.seeds} --code {params.code}"
        " --out-dir {params.folders:q} --threads {threads} --memory-mb {resources.mem_mb}"
        " --checkpoint-seconds {resources.checkpoint_seconds}"
        " --device {resources.device} {resources.fallback} {resources.compress} > {log:q} 2>&1"


SEEDS = Trained("train", workflow, CONFIG, UNRECORDED)


# Predictions of external code become runs like any other, so tables and tests treat them alike.
rule adopt:
    input:
        predictions=lambda wildcards: adopted(wildcards)["file"],
        split="<results>/splits/{cohort}/{protocol}.json",
    output:
        predictions="<results>/runs/{cohort}/{protocol}/{external}/seed-{seed}/predictions.csv",
        meta="<results>/runs/{cohort}/{protocol}/{external}/seed-{seed}/meta.json",
    log:
        "<logs>/adopt/{cohort}/{protocol}/{external}/seed-{seed}.log",
    benchmark:
        "<benchmarks>/adopt/{cohort}/{protocol}/{external}/seed-{seed}.tsv"
    wildcard_constraints:
        # Without external predictions nothing matches.
        external="|".join(map(re.escape, CONFIG.config["external"])) or "(?!)",
    localrule: True
    conda:
        "../../envs/report.yaml"
    resources:
        mem_mb=2000,
        runtime=10,
    params:
        checksum=lambda wildcards: adopted(wildcards)["split_checksum"],
        label=lambda wildcards: CONFIG.config["external"][wildcards.external]["label"],
        group=lambda wildcards: CONFIG.config["external"][wildcards.external]["group"],
        out_dir=subpath(output.meta, parent=True),
        code=code("scripts/adopt.py"),
    shell:
        "{RUN}/adopt.py --predictions {input.predictions:q} --split {input.split:q}"
        " --checksum {params.checksum} --variant {wildcards.external:q}"
        " --label {params.label:q} --group {params.group:q} --seed {wildcards.seed}"
        " --out-dir {params.out_dir:q} > {log:q} 2>&1"
