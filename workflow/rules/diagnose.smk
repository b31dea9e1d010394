rule diagnose:
    input:
        participants=ancient("<results>/cohorts/{cohort}/participants.tsv"),
        series=ancient("<results>/cohorts/{cohort}/series.h5"),
        data=checked(UNRECORDED.diagnose),
        fc=ancient("<results>/cohorts/{cohort}/fc.h5"),
        split="<results>/splits/{cohort}/{protocol}.json",
        block_length="<results>/blocklength/{cohort}/{protocol}.json",
        meta="<results>/runs/{cohort}/{protocol}/{variant}/seed-{seed}/meta.json",
        models="<results>/runs/{cohort}/{protocol}/{variant}/seed-{seed}/models.pt",
        predictions="<results>/runs/{cohort}/{protocol}/{variant}/seed-{seed}/predictions.csv",
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
        runtime=lambda wildcards, attempt: 240 * attempt,
        gpu=lambda wildcards: 0 if trains_on(wildcards) == "cpu" else 1,
        device=trains_on,
    params:
        cohort_dir=subpath(input.fc, parent=True),
        run=subpath(input.meta, parent=True),
        settings=as_json(CONFIG.config["diagnostics"]),
        data=connected_version,
        code=method_code("diagnose"),
    shell:
        "{RUN}/diagnose.py --cohort-dir {params.cohort_dir:q} --split {input.split:q}"
        " --block-length {input.block_length:q} --run {params.run:q}"
        " --settings {params.settings:q} --code {params.code} --threads {threads}"
        " --memory-mb {resources.mem_mb} --device {resources.device} --out-dir {output.folder:q} > {log:q} 2>&1"
