# Everything up to training, collected for a machine with a GPU: docs/remote-gpu.md.
rule handover:
    input:
        prepared_files(CONFIG, PATHS),
    output:
        plan="<results>/handover/plan.json",
    log:
        "<logs>/handover.log",
    benchmark:
        "<benchmarks>/handover.tsv"
    localrule: True
    conda:
        "../../envs/train.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        # jobs.json is written there before the first job, like the resolved configuration.
        folder=subpath(output.plan, parent=True),
        # Planned anew whenever it is asked for: what is finished changes with all that comes back.
        asked=lambda wildcards: time.time(),
        code=code("scripts/handover.py"),
    shell:
        "{RUN}/handover.py plan --jobs {params.folder:q}/jobs.json --folder {params.folder:q}"
        " > {log:q} 2>&1"
