"""Documents of a configuration: which tables and figures their templates name."""

import hashlib
from typing import TYPE_CHECKING

from brio_core.reporting.templates import needed, read_template
from workflow.planning.files import ConfigurationError, find, shown
from workflow.planning.outputs import output_names, output_of

if TYPE_CHECKING:
    from workflow.planning.configuration import Configuration
    from workflow.planning.paths import Paths


def document_templates(configuration: "Configuration") -> list[str]:
    """The templates of a configuration's documents."""
    return [shown(find("documents", name)) for name in configuration.config["documents"]]


def templates_version(configuration: "Configuration") -> str:
    """Changes with the text of a template."""
    texts = [find("documents", name).read_bytes() for name in configuration.config["documents"]]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()[:16]


def left_out(configuration: "Configuration") -> list[str]:
    """Experiments that there are but that the configuration does not list."""
    active = configuration.config["experiments"]
    return [name for name in configuration.experiments if name not in active]


def document_files(
    configuration: "Configuration", paths: "Paths", common_tables: list[str]
) -> dict[str, list[str]]:
    """What the documents are made of: tables, also as the page reads them, and figures."""
    active = tuple(configuration.config["experiments"])
    tables = [*output_names(configuration, "tables", active), *common_tables]
    figures = [
        name
        for name in output_names(configuration, "figures", active)
        if not output_of(configuration, "figures", name).shows_subjects
    ]
    documents = configuration.config["documents"]
    if not documents:
        raise ConfigurationError(
            "the configuration names no 'documents'; choose another --configfile"
        )
    found = {"tables": {}, "figures": {}}
    for path in (find("documents", name) for name in documents):
        parts = read_template(path, active, left_out(configuration), shown(path))
        for kind, names in needed(parts, tables, figures).items():
            found[kind] |= dict.fromkeys(names)
    return {
        "tables": [paths.table(name, "csv") for name in found["tables"]],
        "printed": [paths.table(name, "json") for name in found["tables"]],
        "figures": [paths.figure(name, "png") for name in found["figures"]],
    }
