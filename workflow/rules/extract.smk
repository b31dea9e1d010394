rule make_demo:
    output:
        folder=directory("<data>/demo"),
    log:
        "<logs>/make_demo.log",
    benchmark:
        "<benchmarks>/make_demo.tsv"
    conda:
        "../../envs/imaging.yaml"
    resources:
        mem_mb=2000,
        runtime=10,
    params:
        code=code("scripts/make_demo.py"),
    shell:
        "{RUN}/make_demo.py --out {output.folder:q} > {log:q} 2>&1"


rule candidates:
    input:
        raw=raw_data,
    output:
        table="<results>/cohorts/{cohort}/candidates.tsv",
    log:
        "<logs>/candidates/{cohort}.log",
    benchmark:
        "<benchmarks>/candidates/{cohort}.tsv"
    localrule: True
    conda:
        "../../envs/imaging.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        dataset=dataset_json,
        raw=raw_version,
        data_dir=CONFIG.config["data_dir"],
        on_bad_subject=CONFIG.config["on_bad_subject"],
        code=imaging_code("scripts/candidates.py"),
    shell:
        "{RUN}/candidates.py --dataset {params.dataset:q} --data-dir {params.data_dir:q}"
        " --on-bad-subject {params.on_bad_subject} --out {output.table:q} > {log:q} 2>&1"


rule extract:
    input:
        raw=raw_data,
        candidates="<results>/cohorts/{cohort}/candidates.tsv",
    output:
        part="<results>/cohorts/{cohort}/parts/{batch}.h5",
    log:
        "<logs>/extract/{cohort}/{batch}.log",
    benchmark:
        "<benchmarks>/extract/{cohort}/{batch}.tsv"
    conda:
        "../../envs/imaging.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
        runtime=lambda wildcards, attempt: 240 * attempt,
    params:
        dataset=dataset_json,
        raw=raw_version,
        data_dir=CONFIG.config["data_dir"],
        batches=lambda wildcards: CONFIG.datasets[wildcards.cohort]["extract_batches"],
        code=imaging_code("scripts/extract.py"),
    shell:
        "{RUN}/extract.py --dataset {params.dataset:q} --data-dir {params.data_dir:q}"
        " --candidates {input.candidates:q} --batch {wildcards.batch} --batches {params.batches}"
        " --out {output.part:q} > {log:q} 2>&1"


rule assemble:
    input:
        candidates="<results>/cohorts/{cohort}/candidates.tsv",
        parts=lambda wildcards: [
            PATHS.cohort(wildcards.cohort, f"parts/{batch}.h5")
            for batch in range(CONFIG.datasets[wildcards.cohort]["extract_batches"])
        ],
        atlas=lambda wildcards: sources.atlas_files(
            CONFIG.datasets[wildcards.cohort], CONFIG.config["data_dir"]
        ),
    output:
        participants="<results>/cohorts/{cohort}/participants.tsv",
        inclusion="<results>/cohorts/{cohort}/inclusion.tsv",
        regions="<results>/cohorts/{cohort}/regions.tsv",
        series="<results>/cohorts/{cohort}/series.h5",
        checksums="<results>/cohorts/{cohort}/checksums.json",
    log:
        "<logs>/assemble/{cohort}.log",
    benchmark:
        "<benchmarks>/assemble/{cohort}.tsv"
    conda:
        "../../envs/imaging.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
        runtime=60,
    params:
        dataset=dataset_json,
        data_dir=CONFIG.config["data_dir"],
        on_bad_subject=CONFIG.config["on_bad_subject"],
        code=imaging_code("scripts/assemble.py"),
    shell:
        "{RUN}/assemble.py --dataset {params.dataset:q} --data-dir {params.data_dir:q}"
        " --candidates {input.candidates:q} --parts {input.parts:q}"
        " --on-bad-subject {params.on_bad_subject} --participants {output.participants:q}"
        " --inclusion {output.inclusion:q} --regions {output.regions:q}"
        " --series {output.series:q} --checksums {output.checksums:q} > {log:q} 2>&1"
