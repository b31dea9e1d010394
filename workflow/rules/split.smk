rule split:
    input:
        participants=ancient("<results>/cohorts/{cohort}/participants.tsv"),
        data=checked(UNRECORDED.split),
    output:
        split="<results>/splits/{cohort}/{protocol}.json",
        plain="<results>/splits/{cohort}/{protocol}.csv",
    log:
        "<logs>/split/{cohort}/{protocol}.log",
    benchmark:
        "<benchmarks>/split/{cohort}/{protocol}.tsv"
    localrule: True
    conda:
        "../../envs/train.yaml"
    resources:
        mem_mb=2000,
        runtime=10,
    params:
        protocol=lambda wildcards: wildcards.protocol.partition("-ring-")[0],
        split_seed=lambda wildcards: CONFIG.config["split_seeds"][ring_of(wildcards.protocol)],
        ring=lambda wildcards: ring_of(wildcards.protocol),
        data=cohort_version,
        code=code("scripts/split.py"),
    shell:
        "{RUN}/split.py --participants {input.participants:q} --cohort {wildcards.cohort:q}"
        " --protocol {params.protocol} --split-seed {params.split_seed} --ring {params.ring}"
        " --out {output.split:q} --plain {output.plain:q} > {log:q} 2>&1"
