rule blocklength:
    input:
        series=ancient("<results>/cohorts/{cohort}/series.h5"),
        participants=ancient("<results>/cohorts/{cohort}/participants.tsv"),
        data=checked(UNRECORDED.blocklength),
        split="<results>/splits/{cohort}/{protocol}.json",
    output:
        block_length="<results>/blocklength/{cohort}/{protocol}.json",
    log:
        "<logs>/blocklength/{cohort}/{protocol}.log",
    benchmark:
        "<benchmarks>/blocklength/{cohort}/{protocol}.tsv"
    conda:
        "../../envs/train.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
        runtime=60,
    params:
        settings=as_json(CONFIG.config["block_length"]),
        data=cohort_version,
        code=code("scripts/blocklength.py"),
    shell:
        "{RUN}/blocklength.py --series {input.series:q} --participants {input.participants:q}"
        " --split {input.split:q} --settings {params.settings:q}"
        " --out {output.block_length:q} > {log:q} 2>&1"
