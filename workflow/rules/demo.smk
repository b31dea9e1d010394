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
