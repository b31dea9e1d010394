# Everything up to training, collected for a machine with a GPU: docs/remote-gpu.md.
rule remote:
    input:
        remote.prepared_files(CONFIG),
    output:
        plan="<results>/remote/plan.json",
    log:
        "<logs>/remote.log",
    benchmark:
        "<benchmarks>/remote.tsv"
    localrule: True
    conda:
        "../../envs/train.yaml"
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        # Planned anew whenever it is asked for: what is finished changes with all that comes back.
        asked=lambda wildcards: time.time(),
        code=code("scripts/remote.py"),
    shell:
        "{RUN}/remote.py plan {output.plan:q} > {log:q} 2>&1"
