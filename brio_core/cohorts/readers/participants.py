"""The user's own table of subjects, with columns of further tables."""

import re
from pathlib import Path

from brio_core.cohorts.readers.reader import Reader
from brio_core.cohorts.tables import MISSING, read_table
from brio_core.system.errors import BrioError


class ParticipantsReader(Reader):
    """A source whose table the user writes; ``source.tables`` names columns of further tables."""

    @property
    def table_path(self) -> Path:
        name = self.source.get("participants", "participants.tsv")
        return self.need(self.inside(self.root, name, "source.participants"))

    @property
    def other_files(self) -> set[Path]:
        """Tables, labels and images of the cohort, which are no scans."""
        rois, named = self.dataset["rois"], [self.table_path]
        named += [self.root / further["file"] for further in self.source.get("tables", ())]
        return {*named, *(self.root / rois[key] for key in ("labels", "image") if key in rois)}

    def table(self):
        """The table of subjects with the further columns; who has no row there has ``n/a``."""
        table, subject = read_table(self.table_path), self.dataset["columns"]["subject"]
        for further in self.source.get("tables", ()):
            path = self.need(self.inside(self.root, further["file"], "source.tables"))
            rows = _rows(path, further)
            if subject not in table.columns:
                return table
            for column in further["columns"]:
                if column in table.columns:
                    raise BrioError(
                        f"column {column!r} is in {path} and in the table of subjects; leave it "
                        "out of source.tables, or rename one of them"
                    )
                values = dict(zip(rows[further["subject"]].map(_key), rows[column]))
                table[column] = [values.get(_key(name), MISSING) for name in table[subject]]
        return table


def _rows(path: Path, further: dict):
    """The rows of a further table that are asked for, one per subject."""
    rows = read_table(path)
    wanted = further.get("rows", {})
    for column in (further["subject"], *further["columns"], *wanted):
        if column not in rows.columns:
            raise BrioError(f"{path} has no column {column!r}; correct source.tables")
    for column, values in wanted.items():
        rows = rows[rows[column].isin([str(value) for value in values])]
    twice = rows[further["subject"]][rows[further["subject"]].map(_key).duplicated()]
    if len(twice):
        raise BrioError(
            f"{path} has several rows for subject {twice.iloc[0]}; choose among them with 'rows' "
            "under source.tables, such as rows: {session: [baseline]}"
        )
    return rows


def _key(subject: str) -> str:
    """Letters and digits of an id: one study spells it sub-NDARINV0A and NDAR_INV0A."""
    return re.sub("[^a-z0-9]", "", subject.lower().removeprefix("sub-"))
