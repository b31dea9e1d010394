rule connect:
    input:
        series=ancient("<results>/cohorts/{cohort}/series.h5"),
        data="<results>/cohorts/{cohort}/checksums.json",
    output:
        fc="<results>/cohorts/{cohort}/fc.h5",
    log:
        "<logs>/connect/{cohort}.log",
    benchmark:
        "<benchmarks>/connect/{cohort}.tsv"
    conda:
        "../../envs/train.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
        runtime=60,
    params:
        data=cohort_version,
        code=code("scripts/connect.py"),
    shell:
        "{RUN}/connect.py --series {input.series:q} --out {output.fc:q} > {log:q} 2>&1"


rule site_profile:
    input:
        participants=ancient("<results>/cohorts/{cohort}/participants.tsv"),
        series=ancient("<results>/cohorts/{cohort}/series.h5"),
        data="<results>/cohorts/{cohort}/checksums.json",
        fc=ancient("<results>/cohorts/{cohort}/fc.h5"),
    output:
        profile="<results>/cohorts/{cohort}/site_profile.tsv",
    log:
        "<logs>/site_profile/{cohort}.log",
    benchmark:
        "<benchmarks>/site_profile/{cohort}.tsv"
    conda:
        "../../envs/train.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
        runtime=60,
    params:
        folder=subpath(input.participants, parent=True),
        data=connected_version,
        code=code("scripts/site_profile.py"),
    shell:
        "{RUN}/site_profile.py --cohort-dir {params.folder:q} --out {output.profile:q}"
        " > {log:q} 2>&1"
