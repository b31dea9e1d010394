"""The card of a bundle: what the model is, what it was trained on, what to expect, its limits."""

from pathlib import Path

from brio_core.reporting.pages.plain import Block, Heading, Notice, as_html, as_markdown
from brio_core.reporting.results import CONNECTIVITY, class_names
from brio_core.reporting.table import NONE, Cell, Row, Table, number, plural, with_interval
from brio_core.system.files import write_text
from brio_core.training.bundle import Bundle, read_bundle

NOTICE = (
    "For research only. Not for clinical use: it was not tested as a medical device, and no "
    "decision about a person may rest on it."
)
SUBGROUPS = {
    "women": "Women", "men": "Men", "young": "Youngest third", "middle": "Middle third of age",
    "old": "Oldest third",
}  # fmt: skip
# A mean over fewer sites says nothing about the next.
ENOUGH_SITES = 5


def write_card(bundle: Path, out: Path) -> None:
    """Write card.md and card.html."""
    title, blocks = card(read_bundle(Path(bundle)))
    write_text(Path(out) / "card.md", as_markdown(title, blocks))
    write_text(Path(out) / "card.html", as_html(title, blocks))


def card(bundle: Bundle) -> tuple[str, list[Block]]:
    """Title and content."""
    about = bundle.about
    training, dataset = about["training"], about["dataset"]
    cohort = dataset.get("title", about["cohort"])
    negative, positive = class_names(dataset)
    values = about["hyperparameters"]
    kind = CONNECTIVITY[values["connectivity"]].format(values.get("shrinkage"))
    blocks: list[Block] = [
        Notice(NOTICE),
        f"This model says how likely a resting-state scan is of class 1 ({positive}) rather than "
        f"class 0 ({negative}). It reads {kind} of {plural(len(about['rois']['names']), 'region')}."
        f" The method is {about['label']}.",
        Heading("Intended use"),
        "Research on groups of scans from sites that did not train it, with the same parcellation "
        "and similar preprocessing. It compares scans of one site with each other better than it "
        "says how likely a single person is ill.",
        Heading("Training cohort"),
        _cohort(cohort, training),
        _sites(about),
        Heading("What to expect at a new site"),
        *_expected(about["expectation"]),
        Heading("How it was made"),
        *_made(about),
        Heading("Limits"),
        "Expectations hold for sites like those above: another scanner, population, preprocessing "
        "or atlas can lower them. The share of patients differs between sites, and with it the "
        "meaning of a probability. Labels of the training cohort are its sites' diagnoses, with "
        "their errors. A prediction changes when the same scan is estimated again; its stability "
        "says how much.",
    ]
    return f"Model card: {about['label']}, {cohort}", blocks


def _cohort(cohort: str, training: dict) -> str:
    age, frames = training["age"], training["frames"]
    known = training["men"] + training["women"]
    people = f"; {training['men']} men and {training['women']} women" if known else ""
    aged = f", 90 % of them aged {age[0]:.0f} to {age[2]:.0f}" if age else ""
    return (
        f"{cohort}: {plural(training['subjects'], 'subject')} of "
        f"{plural(len(training['sites']), 'site')}, {training['positives']} of class 1{people}"
        f"{aged}. Scans have {frames[0]:.0f} to {frames[2]:.0f} frames (90 %)."
    )


def _sites(about: dict) -> Table:
    aucs = {one["site"]: one["auc"] for one in about["expectation"]["by_site"]}
    rows = []
    for one in about["training"]["sites"]:
        seconds = ", ".join(f"{tr:g}" for tr in one["tr"]) or NONE
        auc = aucs.get(one["site"])
        rows.append(Row((
            Cell(one["site"]), Cell(str(one["subjects"])), Cell(str(one["positives"])),
            Cell(f"{one['frames']:.0f}"), Cell(seconds),
            Cell(number(None if auc is None else 100 * auc, ".1f")),
        )))  # fmt: skip
    columns = ("Site", "Subjects", "Class 1", "Frames", "TR (s)", "AUC unseen (%)")
    note = "AUC unseen: of the site when the model was trained without it. Frames: the median."
    return Table("", "", columns, tuple(rows), (note,))


def _expected(found: dict) -> list[Block]:
    low, high = found["new_site"]["low"], found["new_site"]["high"]
    new = "It could not be told how far a new site may differ."
    if low is not None:
        new = (
            f"The true AUC at a new site lies between {100 * low:.0f} and {100 * high:.0f} % with "
            "95 % probability, if it is like the others; that of few subjects scatters more."
        )
    slope = found["calibration"]["slope"]
    told = "" if slope is None else (
        f" Calibration slope {slope:.2f} (1 is calibrated, below 1 is overconfident), Brier score "
        f"{found['calibration']['brier']:.3f}."
    )  # fmt: skip
    shown = [("AUC", found["auc"])]
    shown += [(name.capitalize(), one) for name, one in found["at_threshold"].items()]
    rows = [Row((Cell(name), _interval(one), Cell(str(found["sites"])))) for name, one in shown]
    rows += [
        Row((Cell(f"AUC, {SUBGROUPS[one['name']].lower()}"), _interval(one["auc"]),
             Cell(str(one["sites"]))))
        for one in found["subgroups"]
        if one["sites"] >= ENOUGH_SITES
    ]  # fmt: skip
    few = [SUBGROUPS[one["name"]] for one in found["subgroups"] if one["sites"] < ENOUGH_SITES]
    notes = ["Mean over sites with its 95 % interval over sites; the rest at the threshold."]
    if few:
        notes.append(f"Too few sites to tell: {', '.join(few)}.")
    return [
        f"All numbers are of {plural(found['subjects'], 'subject')} of "
        f"{plural(found['sites'], 'site')}, each predicted by models that had not seen its site "
        f"({plural(found['seeds'], 'seed')}). {new}{told}",
        Table("", "", ("Measure", "At unseen sites (%)", "Sites"), tuple(rows), tuple(notes)),
    ]


def _interval(one: dict) -> Cell:
    if one["value"] is None:
        return Cell(NONE)
    if one["low"] is None:
        return Cell(number(100 * one["value"], ".1f"))
    return with_interval(one["value"], one["low"], one["high"])


def _made(about: dict) -> list[Block]:
    """Choices, hyperparameters and versions."""
    values = ", ".join(
        f"{key} {_shown(one)}" for key, one in sorted(about["hyperparameters"].items())
    )
    chosen, versions = about["chosen"], about["versions"]
    what = "Epoch" if "epochs" in about["hyperparameters"] else "Penalty number"
    decision = about["decision"]
    return [
        f"All sites of the cohort trained it (seed {about['seed']}). {what} "
        f"{chosen['epoch_or_point']} was chosen by {chosen['by']}. Class 1 is said of logits above "
        f"{decision['threshold']:.4g}. Probabilities are of the logit times {decision['slope']:.4g}"
        f" plus {decision['intercept']:.4g}; threshold and calibration are by subjects of sites "
        "that had not trained what predicted them.",
        f"Hyperparameters: {values}.",
        f"Versions: BRIO {versions['brio']}, PyTorch {versions['torch']}, NumPy "
        f"{versions['numpy']}, Python {versions['python']}. Series: "
        f"{about['inputs']['series.h5'][:16]}….",
    ]


def _shown(value: object) -> str:
    """A hyperparameter as its YAML might have it."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_shown, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)
