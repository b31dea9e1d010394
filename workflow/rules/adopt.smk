# Predictions of foreign code become runs like any other, so tables and tests treat them alike.
rule adopt:
    input:
        predictions=lambda wildcards: adopted(wildcards)["file"],
        split="<results>/splits/{cohort}/{protocol}.json",
    output:
        predictions="<results>/runs/{cohort}/{protocol}/{foreign}/seed-{seed}/predictions.csv",
        meta="<results>/runs/{cohort}/{protocol}/{foreign}/seed-{seed}/meta.json",
    log:
        "<logs>/adopt/{cohort}/{protocol}/{foreign}/seed-{seed}.log",
    benchmark:
        "<benchmarks>/adopt/{cohort}/{protocol}/{foreign}/seed-{seed}.tsv"
    wildcard_constraints:
        # Without foreign predictions nothing matches.
        foreign="|".join(map(re.escape, CONFIG.settings["foreign"])) or "(?!)",
    localrule: True
    conda:
        "../../envs/report.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=10,
    params:
        checksum=lambda wildcards: adopted(wildcards)["split_checksum"],
        label=lambda wildcards: CONFIG.settings["foreign"][wildcards.foreign]["label"],
        group=lambda wildcards: CONFIG.settings["foreign"][wildcards.foreign]["group"],
        out_dir=subpath(output.meta, parent=True),
        code=code("scripts/adopt.py"),
    shell:
        "{RUN}/adopt.py --predictions {input.predictions:q} --split {input.split:q}"
        " --checksum {params.checksum} --variant {wildcards.foreign:q}"
        " --label {params.label:q} --group {params.group:q} --seed {wildcards.seed}"
        " --out-dir {params.out_dir:q} > {log:q} 2>&1"
