rule connect:
    input:
        series="<results>/cohorts/{cohort}/series.h5",
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
        code=code("scripts/connect.py"),
    shell:
        "{RUN}/connect.py --series {input.series:q} --out {output.fc:q} > {log:q} 2>&1"
