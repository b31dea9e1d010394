"""Read what training has written, and how methods, cohorts and protocols are named."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from brio_core.cohorts import MATCHED, ONE_FOLD
from brio_core.evaluation.intervals import hanley_mcneil
from brio_core.evaluation.scores import COLUMNS
from brio_core.reporting.table import plural, with_interval
from brio_core.system.errors import BrioError
from brio_core.system.files import digest, read_json

GROUPS = (
    "General GNNs",
    "General OOD methods",
    "Graph OOD methods",
    "Brain network methods",
    "Ours",
    "Linear",
)
METHODS = (
    "gcn", "gat", "gin", "coral", "irm", "gsat", "disc", "cepg", "disco", "brainnettf", "xg-gnn",
    "agmgc", "fc-hgnn", "brainood", "deci", "core", "brio", "linear-confounds",
    "linear-correlation", "linear-combat", "linear-tangent", "linear-reestimation",
    "linear-logarithm",
)  # fmt: skip
SCORES = ("auc", "acc")
# Accuracy at the threshold that validation chose; "acc" itself is at probability 0.5.
AT_THRESHOLD = "acc_threshold"
PROTOCOLS = {"loso": "unseen sites", "id": "sites seen in training"}
PERMUTED = re.compile(r"(.+)-permuted-(\d+)")
PREDICTION_COLUMNS = ("subject", "site", "fold", "split", "label", "logit")
MEASURED = ("epochs", "seconds", "folds_together", "seconds_per_epoch", "peak_memory_gb")
# What a machine took is no result: tables of results leave these out.
COSTS = (*MEASURED, "device")
SUMMARY_NUMBERS = (
    "seeds", "rings", "folds", "left_out", "subjects", "sites",
    *(f"{score}_{what}" for score in ("auc", "acc", "acc_threshold") for what in (
        "mean", "sd", "sites_low", "sites_high", "sd_seeds")), "auc_new_low", "auc_new_high",
    "auc_sd_sampling", "auc_sd_sampling_low", "auc_sd_sampling_high",
    "pooled_auc", "pooled_auc_low", "pooled_auc_high",
    *MEASURED, "parameters",
)  # fmt: skip
IDENTITY = ("cohort", "protocol", "variant", "method", "label", "group")
PLACE = ["cohort", "protocol", "variant"]
META_KEYS = (*IDENTITY, "seed", "split_checksum", "folds")

EXTERNAL = "external code"
"""The device of predictions that were not made here."""
REIMPLEMENTED = "(reimplemented)"
"""In labels of methods whose own code we could not read."""
RUN_KEYS = ("cohort", "protocol", "variant", "seed", "ring")


@dataclass(frozen=True)
class Run:
    """One trained run: its meta.json and the test rows of its predictions.csv."""

    folder: Path
    meta: dict
    test: pd.DataFrame


def read_table(
    path: str | Path, columns: Iterable[str] = (), numbers: Iterable[str] = (), ours: bool = True
) -> pd.DataFrame:
    """A CSV or TSV as text, with ``numbers`` converted (a site may be called NA or 007).

    Files of ours end with a line break; one that does not was cut off, and can be made again.
    """
    advice = "delete it and run again" if ours else "correct it"
    separator = "\t" if Path(path).suffix == ".tsv" else ","
    try:
        table = pd.read_csv(path, sep=separator, dtype=str, keep_default_na=False)
    except FileNotFoundError:
        raise BrioError(f"{path} does not exist; run the workflow, which makes it") from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise BrioError(f"{path} is not a table ({error}); {advice}") from None
    content = Path(path).read_bytes()
    if b"\0" in content or (ours and not content.endswith(b"\n")):
        raise BrioError(f"{path} is damaged or cut off; {advice}")
    for column in [*columns, *numbers]:
        if column not in table.columns:
            raise BrioError(f"{path} has no column {column!r}; {advice}")
    for column in numbers:
        text = table[column].replace("n/a", "")
        table[column] = pd.to_numeric(text, errors="coerce")
        if (table[column].isna() & (text != "")).any():
            raise BrioError(f"{path}: column {column!r} holds something that is not a number")
    return table


def read_meta(folder: str | Path) -> dict:
    """meta.json of a run."""
    path = Path(folder) / "meta.json"
    meta = read_json(path)
    for key in META_KEYS:
        if key not in meta:
            raise BrioError(f"{path} has no {key!r}; delete {folder} and run again")
    return meta


def ring_of(meta: dict) -> int:
    """The number of a run's ring of validation sites; predictions of external code have no ring."""
    return meta.get("ring", 0)


def read_runs(paths: Sequence[str | Path]) -> list[dict]:
    """What the overview page says about runs, each once.

    A path is a run folder or a ``.runs.json`` of many: a thousand folders would not fit into one
    command.
    """
    runs: dict[tuple, dict] = {}
    for path in paths:
        found = [run_record(path)] if Path(path).is_dir() else read_json(path)
        for run in found:
            runs.setdefault(tuple(run[key] for key in RUN_KEYS), run)
    return list(runs.values())


def run_record(folder: str | Path) -> dict:
    """The few entries of meta.json that tell when, where and with what a run was trained."""
    meta = read_meta(folder)
    return {
        "folder": str(folder),
        "method": meta["method"],
        **{key: meta[key] for key in RUN_KEYS[:-1]},
        "ring": ring_of(meta),
        "epochs": meta.get("hyperparameters", {}).get("epochs"),
        # Those of external code have none.
        "notes": [f"{meta['label']}: {note}" for note in meta.get("notes", [])],
        **{key: meta.get(key) for key in ("device", "versions", "seconds", "finished")},
    }


def read_hyperparameters(folders: Sequence[str | Path]) -> dict[str, dict]:
    """What the variants of runs were trained with."""
    return {meta["variant"]: meta["hyperparameters"] for meta in map(read_meta, folders)}


def read_run(folder: str | Path) -> Run:
    """A run with its test predictions, one row per subject."""
    path = Path(folder) / "predictions.csv"
    table = read_table(path, PREDICTION_COLUMNS, ("label", "logit"))
    test = table[table["split"] == "test"].reset_index(drop=True)
    if test.empty:
        raise BrioError(f"{path} has no test rows; delete {folder} and run again")
    if test["subject"].duplicated().any():
        twice = test["subject"][test["subject"].duplicated()].iloc[0]
        raise BrioError(f"{path} tests subject {twice} more than once; delete {folder}")
    if test["logit"].isna().any() or not test["logit"].abs().lt(float("inf")).all():
        raise BrioError(f"{path} holds logits that are not finite; delete {folder} and run again")
    meta = read_meta(folder)
    tested = set(test["fold"])
    if any(fold["name"] not in tested for fold in meta["folds"]):
        raise BrioError(f"{path} is cut off; delete {folder} and run again")
    if meta.get("predictions", digest(path)) != digest(path):
        raise BrioError(
            f"{path} was changed after the run had written it, by what meta.json beside it says; "
            f"delete {folder} and run again"
        )
    return Run(Path(folder), meta, test)


def read_places(folders: Sequence[str | Path]) -> dict[tuple[str, str], list[Run]]:
    """The runs of each cohort and protocol."""
    found: dict[tuple[str, str], list[Run]] = {}
    for run in map(read_run, folders):
        found.setdefault((run.meta["cohort"], run.meta["protocol"]), []).append(run)
    return found


def read_history(folder: str | Path) -> pd.DataFrame:
    """history.csv of a run."""
    numbers = ("epoch", "validation_auc")
    return read_table(Path(folder) / "history.csv", ("fold",), numbers)


def read_summaries(paths: Sequence[str | Path]) -> pd.DataFrame:
    """All rows of several summary files in the order of the paper, each variant once.

    Several experiments may have a variant.
    """
    columns = ("experiment", *IDENTITY, "device")
    tables = []
    for path in paths:
        tables.append(read_table(path, columns, SUMMARY_NUMBERS))
        if tables[-1]["seeds"].isna().any():
            raise BrioError(f"{path} is cut off; delete it and run again")
    return in_paper_order(pd.concat(tables).drop_duplicates(PLACE))


def read_variants(paths: Sequence[str | Path]) -> pd.DataFrame:
    """The same by cohort, protocol and variant."""
    return read_summaries(paths).set_index(PLACE)


def read_sites(paths: Sequence[str | Path]) -> pd.DataFrame:
    """The long table of several files: one row per variant and test fold."""
    numbers = ("n", "positives", *COLUMNS)
    columns = (*IDENTITY, "fold")
    tables = [read_table(path, columns, numbers) for path in paths]
    return pd.concat(tables).drop_duplicates([*PLACE, "fold"], ignore_index=True)


def in_paper_order(table: pd.DataFrame) -> pd.DataFrame:
    """Sort rows by group and method as the paper does; what it does not know comes last."""

    def position(value: str, known: Sequence[str]) -> int:
        return known.index(value) if value in known else len(known)

    key = [
        (position(group, GROUPS), position(method, METHODS), method, variant != method)
        for group, method, variant in zip(table["group"], table["method"], table["variant"])
    ]
    order = sorted(range(len(table)), key=key.__getitem__)
    return table.iloc[order].reset_index(drop=True)


def ordered(values: Iterable[str], first: Sequence[str] = ()) -> list[str]:
    """Distinct values in order of appearance, those of ``first`` before the others."""
    distinct = list(dict.fromkeys(values))
    return [v for v in first if v in distinct] + [v for v in distinct if v not in first]


def label_of(rows: pd.DataFrame, variant: str) -> str:
    """What a variant is called in ``rows``; its name in capitals if it is not there."""
    labels = rows.loc[rows["variant"] == variant, "label"]
    return variant.upper() if labels.empty else labels.iloc[0]


def fold_names(rows: pd.DataFrame, ending: str = "") -> str:
    """What the test folds of all protocols in ``rows`` are called."""
    names = {"loso": "held-out site", "id": "test fold"}
    protocols = ordered(rows["protocol"], tuple(names))
    return " or ".join(names.get(one, "fold") + ending for one in protocols)


# Kinds of connectivity in words; those of shrunk correlations take the shrinkage.
CONNECTIVITY = {
    "fisher-z": "Fisher's z of Pearson's correlation of standardised ROI series",
    "logarithm": "the matrix logarithm of shrunk correlations (shrinkage {})",
    "partial": "the partial correlation of shrunk correlations (shrinkage {})",
}


def class_names(dataset: dict) -> tuple[str, str]:
    """Names of class 0 and class 1, from the task (``patient vs. control``) or the labels."""
    task = dataset.get("task", "").split(" vs. ")
    if len(task) == 2:
        return task[1], task[0]
    labels = dataset.get("label", {})
    return str(labels.get("negative", "class 0")), str(labels.get("positive", "class 1"))


def shared_class_names(datasets: dict, cohorts: Iterable[str]) -> tuple[str, str]:
    """The same of several cohorts; those that differ have none in common."""
    names = {class_names(datasets.get(cohort, {})) for cohort in cohorts}
    return names.pop() if len(names) == 1 else ("class 0", "class 1")


def cohort_title(datasets: dict, cohort: str) -> str:
    """What a cohort is called in a heading."""
    return datasets.get(cohort, {}).get("title", cohort)


def protocol_title(protocol: str) -> str:
    """What a protocol is called in a heading."""
    others = {MATCHED: "unseen sites, motion-matched", ONE_FOLD: "one unseen site, trained alone"}
    return (PROTOCOLS | others).get(protocol, protocol)


def place_title(datasets: dict, cohort: str, protocol: str) -> str:
    """What both together are called."""
    return f"{cohort_title(datasets, cohort)}, {protocol_title(protocol)}"


def site_words(site: Mapping) -> str:
    """A site, its subjects, its AUC and an interval of it, which knows but AUC and subjects."""
    positives = int(site["positives"])
    ends = hanley_mcneil(site["auc"], positives, int(site["n"]) - positives)
    cell = with_interval(site["auc"], *ends)
    return f"{site['fold']}: {plural(int(site['n']), 'subject')}, AUC {cell.text} {cell.extra}"
