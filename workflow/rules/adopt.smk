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
