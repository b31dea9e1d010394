"""ABIDE as released by the Preprocessed Connectomes Project.

The folder is what ``nilearn.datasets.fetch_abide_pcp`` leaves behind. Its files are read directly:
the fetcher would ask the network for each subject that is absent and fail for the whole cohort,
drops the ROI names, and hides the rows that have no scan.
"""

from collections.abc import Iterator
from pathlib import Path

from brio_core.cohorts.readers.reader import Reader
from brio_core.cohorts.readers.series import series_scan
from brio_core.cohorts.scan import Scan, Unusable
from brio_core.cohorts.tables import read_table
from brio_core.system.errors import BrioError

_PHENOTYPES = "Phenotypic_V1_0b_preprocessed1.csv"
_NO_FILE = "no_filename"
# What fetch_abide_pcp(quality_checked=True) asks of the raters.
_QUALITY = {
    "qc_rater_1": ("OK",),
    "qc_anat_rater_2": ("OK", "maybe"),
    "qc_func_rater_2": ("OK", "maybe"),
    "qc_anat_rater_3": ("OK",),
    "qc_func_rater_3": ("OK",),
}


class PcpReader(Reader):
    """Phenotype table and one .1D file per subject."""

    @property
    def table_path(self) -> Path:
        return self.need(self.root / "ABIDE_pcp" / _PHENOTYPES)

    def table(self):
        table = read_table(self.table_path)
        for column in ("FILE_ID", "SUB_ID"):
            if column not in table.columns:
                raise BrioError(
                    f"{self.table_path} has no column {column!r}; put the project's own table there"
                )
        without = table["FILE_ID"] == _NO_FILE
        table["has_file"] = ~without
        table.loc[without, "FILE_ID"] = table.loc[without, "SUB_ID"].str.zfill(7)
        return table

    def scan_paths(self, row: dict) -> list[Path]:
        if not row["has_file"]:
            raise Unusable(f"no scan in the release: FILE_ID is {_NO_FILE}")
        if self.source.get("quality_checked"):
            failed = [name for name, accepted in _QUALITY.items() if row[name] not in accepted]
            if failed:
                raise Unusable(f"failed quality control: {failed[0]} is {row[failed[0]]}")
        self.file_name_part(row["FILE_ID"], "FILE_ID")
        name = f"{row['FILE_ID']}_{self.source['derivative']}.1D"
        return [self.inside(self.root, f"{self._folder}/{name}", f"FILE_ID {row['FILE_ID']}")]

    @property
    def _folder(self) -> str:
        filtered = "filt" if self.source["band_pass_filtering"] else "nofilt"
        regressed = "global" if self.source["global_signal_regression"] else "noglobal"
        return f"ABIDE_pcp/{self.source['pipeline']}/{filtered}_{regressed}"

    def scan_files(self) -> Iterator[tuple[str, Path]]:
        ending = f"_{self.source['derivative']}.1D"
        for path in (self.root / self._folder).glob(f"*{ending}"):
            yield path.name.removesuffix(ending), path

    def read(self, path: Path, tr: float | None) -> Scan:
        return series_scan(path)
