"""Documents of a configuration: which tables and figures their templates name."""

from pathlib import Path

from brio_core.reporting.catalogue import KINDS
from workflow.planning.configuration import Configuration
from workflow.planning.files import ConfigurationError, shown
from workflow.planning.outputs import items, shown_by, whole_run_tables


def document_templates(configuration: Configuration) -> list[Path]:
    """The templates of a configuration's documents."""
    names = configuration.config["documents"]
    return [configuration.find("documents", name) for name in names]


def document_files(configuration: Configuration) -> dict[str, list[str]]:
    """What the documents are made of: tables, also as the page reads them, and figures."""
    # Only this target reads templates; all others start without Jinja2.
    from brio_core.reporting.pages.template import Template

    if not configuration.config["documents"]:
        raise ConfigurationError(
            "the configuration names no 'documents'; choose another --configfile"
        )
    active = configuration.config["experiments"]
    tables = [one.name for one in shown_by(configuration, "tables", active)]
    tables += whole_run_tables(configuration)
    figures = shown_by(configuration, "figures", active)
    figures = [one.name for one in figures if not one.output.shows_subjects]
    known = (tables, figures, waiting(configuration))
    found: dict[str, dict] = {"tables": {}, "printed": {}, "figures": {}, "waiting": {}}
    for path in document_templates(configuration):
        for kind, names in Template(path, shown(path), *known).needs().items():
            found[kind] |= dict.fromkeys(names)
    return {
        "tables": configuration.paths.outputs("tables", found["tables"], "csv"),
        "printed": configuration.paths.outputs("tables", found["printed"], "json"),
        "figures": configuration.paths.outputs("figures", found["figures"], "png"),
    }


def waiting(configuration: Configuration) -> list[str]:
    """Tables and figures that may lack results, because nothing is trained for them."""
    if configuration.config["untrained"] == "train":
        return []
    return [name for kind in KINDS for name in items(configuration, kind)]


def reference_files(configuration: Configuration) -> list[Path]:
    """BibTeX files, those of a study or a working directory before the one that is shipped."""
    files = [folder / "references.bib" for folder in configuration.folders]
    return [file for file in files if file.is_file()]
