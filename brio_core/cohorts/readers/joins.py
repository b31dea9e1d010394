"""Columns from further tables, joined to the table of subjects."""

import re
from pathlib import Path

from brio_core.cohorts.source import Source
from brio_core.cohorts.tables import MISSING, read_table
from brio_core.system.errors import BrioError


class ParticipantsSource(Source):
    """A source whose table the user writes, with columns of further tables."""

    @property
    def table_path(self) -> Path:
        name = self.settings.get("participants", "participants.tsv")
        return self.need(self.inside(self.root, name, "source.participants"))

    def table(self):
        return joined(self, read_table(self.table_path))


def joined(source: Source, table):
    """``table`` with the columns that ``source.tables`` names.

    Subjects are matched by the letters and digits of their ids, because one study spells them
    differently from table to table (``sub-NDARINV0A``, ``NDAR_INV0A``). Who has no row in a further
    table has ``n/a`` there.
    """
    subject = source.dataset["columns"]["subject"]
    for setting in source.settings.get("tables", ()):
        path = source.need(source.inside(source.root, setting["file"], "source.tables"))
        further = _rows(path, setting)
        if subject not in table.columns:
            return table
        for column in setting["columns"]:
            if column in table.columns:
                raise BrioError(
                    f"column {column!r} is in {path} and in the table of subjects; leave it out of "
                    "source.tables, or rename one of them"
                )
            values = dict(zip(further[setting["subject"]].map(_key), further[column]))
            table[column] = [values.get(_key(name), MISSING) for name in table[subject]]
    return table


def _rows(path, setting: dict):
    """The rows that the setting asks for, one per subject."""
    rows = read_table(path)
    wanted = setting.get("rows", {})
    for column in (setting["subject"], *setting["columns"], *wanted):
        if column not in rows.columns:
            raise BrioError(f"{path} has no column {column!r}; correct source.tables")
    for column, values in wanted.items():
        rows = rows[rows[column].isin([str(value) for value in values])]
    twice = rows[setting["subject"]][rows[setting["subject"]].map(_key).duplicated()]
    if len(twice):
        raise BrioError(
            f"{path} has several rows for subject {twice.iloc[0]}; choose among them with 'rows' "
            "under source.tables, such as rows: {session: [baseline]}"
        )
    return rows


def _key(subject: str) -> str:
    return re.sub("[^a-z0-9]", "", subject.lower().removeprefix("sub-"))
