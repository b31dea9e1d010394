rule table:
    input:
        unpack(made_of),
    output:
        csv=in_report("<results>/tables/{table}.csv"),
        md="<results>/tables/{table}.md",
        tex="<results>/tables/{table}.tex",
        json="<results>/tables/{table}.json",
    log:
        "<logs>/table/{table}.log",
    benchmark:
        "<benchmarks>/table/{table}.tsv"
    localrule: True
    conda:
        "../../envs/report.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        options=lambda wildcards: item_of(wildcards).command,
        data=tables_version,
        heading=lambda wildcards: item_of(wildcards).heading,
        config=shown_config,
        prefix=subpath(output.csv, strip_suffix=".csv"),
        code=lambda wildcards: code_version(*item_of(wildcards).output.code),
    shell:
        "{RUN}/table.py {params.options} --out-prefix {params.prefix:q} > {log:q} 2>&1"


rule figure:
    input:
        unpack(made_of),
    output:
        pdf="<results>/figures/{figure}.pdf",
        svg="<results>/figures/{figure}.svg",
        png=in_report("<results>/figures/{figure}.png"),
    log:
        "<logs>/figure/{figure}.log",
    benchmark:
        "<benchmarks>/figure/{figure}.tsv"
    localrule: True
    conda:
        "../../envs/report.yaml"
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        options=lambda wildcards: item_of(wildcards).command,
        data=tables_version,
        heading=lambda wildcards: item_of(wildcards).heading,
        prefix=subpath(output.png, strip_suffix=".png"),
        code=lambda wildcards: code_version(*item_of(wildcards).output.code),
    shell:
        "{RUN}/figure.py {params.options} --out-prefix {params.prefix:q} > {log:q} 2>&1"


rule index:
    input:
        tables=outputs.output_files(CONFIG, "tables", ACTIVE, "json") + whole_run_tables("json"),
        # Of these the page has CSV and TEX, and PDF and SVG, as downloads.
        table_files=outputs.output_files(CONFIG, "tables", ACTIVE, "csv", "tex")
        + whole_run_tables("csv", "tex"),
        figure_files=outputs.output_files(CONFIG, "figures", ACTIVE, "svg", "pdf"),
        figures=outputs.output_files(CONFIG, "figures", ACTIVE, "png"),
        summaries=active_summaries(".csv"),
        sites=active_summaries("-sites.csv"),
        # One file for many runs: a thousand run folders would not fit into one command.
        runs=active_summaries(".runs.json"),
        methods=PATHS.methods_text,
    output:
        page=report(
            "<results>/index.html",
            caption="../report/overview.rst",
            category="00 Overview",
            labels={"Kind": "page", "Title": "Everything on one page"},
        ),
    log:
        "<logs>/index.log",
    benchmark:
        "<benchmarks>/index.tsv"
    localrule: True
    conda:
        "../../envs/report.yaml"
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        # Written before the first job of every run; its content is tracked here.
        config=PATHS.run_config,
        resolved=lambda wildcards: value_version(resolved(CONFIG)),
        datasets=as_json({name: outputs.about(CONFIG, name) for name in CONFIG.datasets}),
        command=command_line(),
        code=code(
            "scripts/overview.py",
            "workflow/report/overview.html.j2",
            "workflow/report/overview.css",
            "workflow/report/overview.js",
        ),
    shell:
        "{RUN}/overview.py --tables {input.tables:q} --figures {input.figures:q}"
        " --summaries {input.summaries:q} --sites {input.sites:q} --runs {input.runs:q}"
        " --config {params.config:q} --methods-text {input.methods:q}"
        " --datasets {params.datasets:q} --command {params.command:q}"
        " --out {output.page:q} > {log:q} 2>&1"


# The methods section of a paper about this run.
rule methods_text:
    input:
        **outputs.whole_run_inputs(CONFIG, "inclusion", "participants"),
        runs=active_summaries(".runs.json"),
    output:
        text=PATHS.methods_text,
        bibtex="<results>/references.bib",
    log:
        "<logs>/methods_text.log",
    benchmark:
        "<benchmarks>/methods_text.tsv"
    localrule: True
    conda:
        "../../envs/report.yaml"
    resources:
        mem_mb=2000,
        runtime=10,
    params:
        config=PATHS.run_config,
        resolved=lambda wildcards: value_version(resolved(CONFIG)),
        citations=lambda wildcards: as_json(
            {name: method["citation"] for name, method in CONFIG.methods.items()}
        ),
        references=[shown(path) for path in documents.reference_files(CONFIG)],
        entries=lambda wildcards: value_version(
            [path.read_text(encoding="utf-8") for path in documents.reference_files(CONFIG)]
        ),
        data=lambda wildcards, input: list(
            map(sources.content, [*input.inclusion, *input.participants])
        ),
        code=code("scripts/methods_text.py"),
    shell:
        "{RUN}/methods_text.py --config {params.config:q} --citations {params.citations:q}"
        " --references {params.references:q} --inclusion {input.inclusion:q}"
        " --participants {input.participants:q} --runs {input.runs:q}"
        " --out {output.text:q} --bibtex {output.bibtex:q} > {log:q} 2>&1"


# Pages of prose with the numbers of this run, to be kept under docs; not part of a usual run.
rule document:
    input:
        unpack(or_exit(documents.document_files)),
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
        prose=lambda wildcards: value_version(
            [path.read_text(encoding="utf-8") for path in documents.document_templates(CONFIG)]
        ),
        waiting=documents.waiting(CONFIG),
        command=command_line("document"),
        code=code("scripts/document.py"),
    shell:
        "{RUN}/document.py --templates {params.templates:q} --tables {input.tables:q}"
        " --figures {input.figures:q}"
        " --waiting {params.waiting:q} --command {params.command:q}"
        " --out-dir {output.folder:q} > {log:q} 2>&1"


# For colleagues without access to the data; not part of a usual run.
rule export:
    input:
        **outputs.whole_run_inputs(CONFIG, "inclusion", "participants", "summaries", "sites"),
    output:
        folder=directory("<results>/export"),
    log:
        "<logs>/export.log",
    benchmark:
        "<benchmarks>/export.tsv"
    localrule: True
    conda:
        "../../envs/report.yaml"
    resources:
        mem_mb=2000,
        runtime=10,
    params:
        least=CONFIG.config["smallest_cell"],
        data=lambda wildcards, input: list(
            map(sources.content, [*input.inclusion, *input.participants])
        ),
        known=max(one["inclusion"]["min_subjects_per_class"] for one in CONFIG.datasets.values()),
        code=code("scripts/export.py"),
    shell:
        "{RUN}/export.py --inclusion {input.inclusion:q} --participants {input.participants:q}"
        " --summaries {input.summaries:q} --sites {input.sites:q}"
        " --smallest-group {params.least} --known-minimum {params.known}"
        " --out-dir {output.folder:q} > {log:q} 2>&1"
