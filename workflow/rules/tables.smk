rule table:
    input:
        unpack(lambda wildcards: input_files("tables", wildcards.table)),
    output:
        csv=report(
            "<results>/tables/{table}.csv",
            caption="../report/output.rst",
            category=lambda wildcards: item(CONFIG, "tables", wildcards.table)["section"],
            labels=lambda wildcards: {
                "Kind": "table",
                "Title": item(CONFIG, "tables", wildcards.table)["title"],
            },
        ),
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
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        program=lambda wildcards: item(CONFIG, "tables", wildcards.table)["program"],
        options=table_options,
        heading=lambda wildcards: heading("tables", wildcards.table),
        datasets=lambda wildcards: datasets_json("tables", wildcards.table),
        prefix=subpath(output.csv, strip_suffix=".csv"),
        code=table_code,
    shell:
        "{RUN}/{params.program}.py {params.options} --datasets {params.datasets:q}"
        " --out-prefix {params.prefix:q} > {log:q} 2>&1"


# Every number of the paper beside ours.
rule paper_vs_ours:
    input:
        summaries=true_summaries,
        block_lengths=[PATHS.block_length(*pair) for pair in true_pairs() if pair[1] == "loso"],
        inclusion=[PATHS.cohort(cohort, "inclusion.tsv") for cohort in used_cohorts()],
        participants=[PATHS.cohort(cohort, "participants.tsv") for cohort in used_cohorts()],
    output:
        csv=report(
            "<results>/tables/paper_vs_ours.csv",
            caption="../report/output.rst",
            category="Paper and ours",
            labels={"Kind": "table", "Title": "The paper's numbers and ours"},
        ),
        md="<results>/tables/paper_vs_ours.md",
        tex="<results>/tables/paper_vs_ours.tex",
        json="<results>/tables/paper_vs_ours.json",
    log:
        "<logs>/paper_vs_ours.log",
    benchmark:
        "<benchmarks>/paper_vs_ours.tsv"
    localrule: True
    conda:
        "../../envs/report.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        heading={
            "title": "The paper's numbers and ours",
            "caption": "Difference, interval, and whether ours contains the paper's number.",
        },
        datasets=all_datasets_json,
        prefix=subpath(output.csv, strip_suffix=".csv"),
        code=code("scripts/paper_vs_ours.py", *PAPER_TABLES),
    shell:
        "{RUN}/paper_vs_ours.py --summaries {input.summaries:q}"
        " --block-lengths {input.block_lengths:q} --inclusion {input.inclusion:q}"
        " --participants {input.participants:q} --datasets {params.datasets:q}"
        " --out-prefix {params.prefix:q} > {log:q} 2>&1"


# Choices that the paper leaves open, from the YAML files.
rule settings:
    output:
        csv=report(
            "<results>/tables/settings.csv",
            caption="../report/output.rst",
            category="Hyperparameters",
            labels={"Kind": "table", "Title": "Choices that the paper leaves open"},
        ),
        others="<results>/tables/settings-others.csv",
        rest=expand(
            "<results>/tables/{name}.{end}",
            name=["settings", "settings-others"],
            end=["md", "tex", "json"],
        ),
    log:
        "<logs>/settings.log",
    benchmark:
        "<benchmarks>/settings.tsv"
    localrule: True
    conda:
        "../../envs/report.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        heading={
            "title": "Choices that the paper leaves open",
            "caption": "Our values in this run, and where to change them.",
        },
        config=PATHS.run_config,
        resolved=resolved_version,
        methods=list(used_methods().values()),
        remarks=remarks_version,
        stated=lambda wildcards: as_json(
            {name: CONFIG.methods[name]["stated"] for name in used_methods()}
        ),
        prefix=subpath(output.csv, strip_suffix=".csv"),
        others=subpath(output.others, strip_suffix=".csv"),
        code=code(
            "scripts/settings.py",
            "workflow/schemas/config.schema.yaml",
            "workflow/schemas/dataset.schema.yaml",
        ),
    shell:
        "{RUN}/settings.py --config {params.config:q} --methods {params.methods:q}"
        " --stated {params.stated:q} --out-prefix {params.prefix:q}"
        " --others-prefix {params.others:q} > {log:q} 2>&1"
