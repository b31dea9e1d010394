def shown(kind, name):
    """What is known about the cohorts of a table or figure."""
    cohorts = {cell.cohort: CONFIG.datasets[cell.cohort] for cell in item_cells(CONFIG, kind, name)}
    keys = ("title", "task", "label", "paper")
    return {
        cohort: {key: dataset[key] for key in keys if key in dataset}
        for cohort, dataset in cohorts.items()
    }


def input_files(kind, name):
    """Files behind a table or figure; of a run those that are read."""
    found = output_inputs(CONFIG, PATHS, kind, name)
    runs = found.pop("runs", [])
    read = [f"{run}/{file}" for run in runs for file in ("meta.json", "history.csv")]
    return {**found, "runs": read} if runs else found


def input_options(kind, name):
    """The same as options of a command line."""
    found = output_inputs(CONFIG, PATHS, kind, name)
    return " ".join(
        " ".join([f"--{option.replace('_', '-')}", *map(shlex.quote, paths)])
        for option, paths in found.items()
    )


def heading(kind, name):
    entry = item(CONFIG, kind, name)
    return {key: entry[key] for key in ("title", "caption")}


def table_options(wildcards):
    options = input_options("tables", wildcards.table)
    if item(CONFIG, "tables", wildcards.table)["program"] == "tables":
        options += f" --experiment {shlex.quote(as_json(heading('tables', wildcards.table)))}"
    return options


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
        datasets=lambda wildcards: as_json(shown("tables", wildcards.table)),
        prefix=subpath(output.csv, strip_suffix=".csv"),
        code=lambda wildcards: code_version(
            f"scripts/{item(CONFIG, 'tables', wildcards.table)['program']}.py"
        ),
    shell:
        "{RUN}/{params.program}.py {params.options} --datasets {params.datasets:q}"
        " --out-prefix {params.prefix:q} > {log:q} 2>&1"
