"""The kinds of source; a new kind is one module and one line here."""

from importlib import import_module
from pathlib import Path

from brio_core.cohorts.source import Source
from brio_core.system.errors import BrioError

# Named and not imported, because nilearn is slow to import and only some kinds need it.
KINDS = {
    "bids": ("brio_core.cohorts.readers.bids", "BidsSource"),
    "dpabi": ("brio_core.cohorts.readers.dpabi", "DpabiSource"),
    "pcp": ("brio_core.cohorts.readers.pcp", "PcpSource"),
    "series": ("brio_core.cohorts.readers.series", "SeriesSource"),
}


def open_source(dataset: dict, data_dir: str | Path) -> Source:
    """The source that a dataset's YAML describes."""
    kind = dataset["source"]["kind"]
    if kind not in KINDS:
        raise BrioError(
            f"cohort {dataset['cohort']} has the unknown source kind {kind!r}; "
            f"choose one of {', '.join(KINDS)}"
        )
    module, name = KINDS[kind]
    source = getattr(import_module(module), name)(dataset, data_dir)
    source.need(source.root)
    return source
