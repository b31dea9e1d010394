"""Predictions for scans of a new site, as a table and a page."""

from pathlib import Path

from brio_core.reporting.pages.new_site import page
from brio_core.reporting.predicted import external_validation, predict
from brio_core.system.files import write_text
from brio_core.training.bundle import read_bundle


def predict_scans(
    bundle: Path,
    scans: Path,
    out: Path,
    labels: Path | None = None,
    reestimates: int = 20,
    device: str = "cpu",
) -> None:
    """Write predictions.csv and index.html; print the AUC where there are labels."""
    model = read_bundle(Path(bundle))
    found = predict(model, Path(scans), labels and Path(labels), reestimates, device)
    # Nothing is written before all of it is known.
    table, text = found.table.to_csv(index=False, float_format="%.9g"), page(found)
    write_text(Path(out) / "predictions.csv", table)
    write_text(Path(out) / "index.html", text)
    done = found.table["probability"].notna().sum()
    print(f"{done} of {len(found.table)} scans are predicted; see {Path(out) / 'index.html'}.")
    print("For research only, not for clinical use.")
    if found.auc:
        print(external_validation(found))
