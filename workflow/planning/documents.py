"""Documents of a configuration: which tables and figures their templates name."""

import hashlib

from brio_core.reporting.templates import needed, read_template
from workflow.planning.configuration import Configuration
from workflow.planning.files import ConfigurationError, shown
from workflow.planning.outputs import item, output_names
from workflow.planning.paths import Paths

# Programs of figures that mark single subjects; documents are for everybody.
SHOWS_SUBJECTS = {"sites"}


def document_templates(configuration: Configuration) -> list[str]:
    """The templates of a configuration's documents."""
    names = configuration.config["documents"]
    return [shown(configuration.find("documents", name)) for name in names]


def templates_version(configuration: Configuration) -> str:
    """Changes with the text of a template."""
    names = configuration.config["documents"]
    texts = [configuration.find("documents", name).read_bytes() for name in names]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()[:16]


def left_out(configuration: Configuration) -> list[str]:
    """Experiments that there are but that the configuration does not list."""
    active = configuration.config["experiments"]
    return [name for name in configuration.experiments if name not in active]


def document_files(
    configuration: Configuration, paths: Paths, common_tables: list[str]
) -> dict[str, list[str]]:
    """What the documents are made of: tables, also as the page reads them, and figures."""
    active = tuple(configuration.config["experiments"])
    tables = [*output_names(configuration, "tables", active), *common_tables]
    figures = [
        name
        for name in output_names(configuration, "figures", active)
        if item(configuration, "figures", name)["program"] not in SHOWS_SUBJECTS
    ]
    documents = configuration.config["documents"]
    if not documents:
        raise ConfigurationError(
            "the configuration names no 'documents'; choose another --configfile"
        )
    found = {"tables": {}, "figures": {}}
    for path in (configuration.find("documents", name) for name in documents):
        parts = read_template(path, active, left_out(configuration), shown(path))
        for kind, names in needed(parts, tables, figures).items():
            found[kind] |= dict.fromkeys(names)
    return {
        "tables": [paths.table(name, "csv") for name in found["tables"]],
        "printed": [paths.table(name, "json") for name in found["tables"]],
        "figures": [paths.figure(name, "png") for name in found["figures"]],
    }
