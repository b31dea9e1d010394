"""REST-meta-MDD as its consortium shares it: ROI signals of DPABI and a workbook of phenotypes."""

import re
from functools import cached_property
from pathlib import Path

from brio_core.cohorts.readers.arrays import read_array
from brio_core.cohorts.readers.reader import Reader
from brio_core.cohorts.scan import Scan, Unusable, clean_scan
from brio_core.cohorts.tables import MISSING, read_table

# Columns of ROISignals, counted from 0; the release counts them from 1.
ATLASES = {
    "aal116": slice(0, 116),
    "ho112": slice(116, 228),
    "cc200": slice(228, 428),
    "dosenbach160": slice(1408, 1568),
    "power264": slice(1569, 1833),
}
COLUMNS = 1833
PHENOTYPES = "REST-meta-MDD-PhenotypicData_WithHAMDSubItem_V4.xlsx"
# The sheet of each group; the group is also the second number of a subject's ID.
SHEETS = {"1": "MDD", "2": "Controls"}
_ID = re.compile(r"(S\d+)-(\d+)-\d+")


class DpabiReader(Reader):
    """One ``ROISignals_S<site>-<group>-<number>.mat`` per subject.

    The table is that of both sheets of the workbook with the columns ``site`` and ``group`` taken
    from the ID; scans without a row in it are candidates too, so that none is lost silently.
    """

    participants = PHENOTYPES

    @cached_property
    def _signals(self) -> Path:
        folder = f"Results/ROISignals_{self.source.get('signals', 'FunImgARCWF')}"
        return self.need(self.inside(self.root, folder, "source.signals"))

    def table(self):
        import pandas as pd

        sheets = []
        for group, name in SHEETS.items():
            sheet = read_table(self.table_path, name)
            if "ID" not in sheet.columns:
                raise self.missing(f"sheet {name!r} of {self.table_path} has no column 'ID'")
            sheets.append(sheet[sheet["ID"] != MISSING].assign(sheet=group))
        table = pd.concat(sheets, ignore_index=True).fillna(MISSING)
        scans = (path.stem.removeprefix("ROISignals_") for path in self._signals.glob("*.mat"))
        unlisted = sorted(set(scans) - set(table["ID"]))
        table = pd.concat([table, pd.DataFrame({"ID": unlisted})]).fillna(MISSING)
        parts = [_ID.fullmatch(subject) for subject in table["ID"]]
        table["site"] = [part[1] if part else MISSING for part in parts]
        table["group"] = [part[2] if part and part[2] in SHEETS else MISSING for part in parts]
        return table

    def scan_paths(self, row: dict) -> list[Path]:
        name = self.file_name_part(row["ID"], "ID")
        if row["sheet"] == MISSING:
            raise Unusable(f"missing phenotype: no row in {self.table_path.name}")
        if row["group"] not in (row["sheet"], MISSING):
            raise Unusable(
                f"contradictory group: {row['group']} by its ID, but in sheet "
                f"{SHEETS[row['sheet']]}"
            )
        return [self._signals / f"ROISignals_{name}.mat"]

    def read(self, path: Path, tr: float | None) -> Scan:
        values = read_array(path, "ROISignals")
        if values.shape[1] != COLUMNS:
            raise Unusable(
                f"unreadable file: {path.name} has {values.shape[1]} columns instead of {COLUMNS}"
            )
        return clean_scan(values[:, ATLASES[self.source.get("atlas", "aal116")]], file=path.name)
