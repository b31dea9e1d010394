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


# One line per subject. No table, figure, page or export is made of it, and nothing copies it.
rule subjects:
    input:
        candidates="<results>/cohorts/{cohort}/candidates.tsv",
        inclusion="<results>/cohorts/{cohort}/inclusion.tsv",
        profile="<results>/cohorts/{cohort}/site_profile.tsv",
        fc=ancient("<results>/cohorts/{cohort}/fc.h5"),
    output:
        page="<results>/cohorts/{cohort}/subjects.html",
    log:
        "<logs>/subjects/{cohort}.log",
    benchmark:
        "<benchmarks>/subjects/{cohort}.tsv"
    conda:
        "../../envs/train.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
        runtime=60,
    params:
        folder=subpath(input.inclusion, parent=True),
        dataset=lambda wildcards: as_json(outputs.about(CONFIG, wildcards.cohort)),
        data=connected_version,
        code=code(
            "scripts/subjects.py", "workflow/report/subjects.html", "workflow/report/subjects.js"
        ),
    shell:
        "{RUN}/subjects.py --cohort-dir {params.folder:q} --dataset {params.dataset:q}"
        " --out {output.page:q} > {log:q} 2>&1"
