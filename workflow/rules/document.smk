# Pages of prose with the numbers of this run, to be kept under docs; not part of a usual run.
rule document:
    input:
        unpack(documented_files),
    output:
        folder=directory("<results>/documents"),
    log:
        "<logs>/document.log",
    benchmark:
        "<benchmarks>/document.tsv"
    localrule: True
    conda:
        "../../envs/report.yaml"
    resources:
        mem_mb=2000,
        runtime=10,
    params:
        templates=[shown(path) for path in documents.document_templates(CONFIG)],
        prose=lambda wildcards: documents.templates_version(CONFIG),
        experiments=ACTIVE,
        command=command_line("document"),
        code=code("scripts/document.py"),
    shell:
        "{RUN}/document.py --templates {params.templates:q} --tables {input.tables:q}"
        " --figures {input.figures:q} --experiments {params.experiments:q}"
        " --command {params.command:q} --out-dir {output.folder:q} > {log:q} 2>&1"
