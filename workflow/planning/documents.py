"""Documents of a configuration: which tables and figures their templates name."""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from workflow.planning.files import ConfigurationError, find, shown
from workflow.planning.outputs import item, output_names

if TYPE_CHECKING:
    from workflow.planning.configuration import Configuration
    from workflow.planning.paths import Paths

# Programs of figures that mark single subjects; documents are for everybody.
SHOWS_SUBJECTS = {"sites"}


def document_templates(configuration: "Configuration") -> list[Path]:
    """The templates of a configuration's documents."""
    return [find("documents", name) for name in configuration.config["documents"]]


def templates_version(configuration: "Configuration") -> str:
    """Changes with the text of a template."""
    texts = [path.read_bytes() for path in document_templates(configuration)]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()[:16]


def document_files(
    configuration: "Configuration", paths: "Paths", common_tables: list[str]
) -> dict[str, list[str]]:
    """What the documents are made of: tables, also as the page reads them, and figures."""
    # Only this target reads templates; all others start without Jinja2.
    from brio_core.reporting.pages.template import Template

    if not configuration.config["documents"]:
        raise ConfigurationError(
            "the configuration names no 'documents'; choose another --configfile"
        )
    active = tuple(configuration.config["experiments"])
    known = {
        "tables": [*output_names(configuration, "tables", active), *common_tables],
        "figures": [
            name
            for name in output_names(configuration, "figures", active)
            if item(configuration, "figures", name)["program"] not in SHOWS_SUBJECTS
        ],
        "experiments": active,
        "others": list(configuration.experiments),
    }
    found: dict[str, dict] = {"tables": {}, "figures": {}}
    for path in document_templates(configuration):
        for kind, names in Template(path, shown(path), **known).needs().items():
            found[kind] |= dict.fromkeys(names)
    return {
        "tables": [paths.table(name, "csv") for name in found["tables"]],
        "printed": [paths.table(name, "json") for name in found["tables"]],
        "figures": [paths.figure(name, "png") for name in found["figures"]],
    }
