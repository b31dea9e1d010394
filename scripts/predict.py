"""Predict new scans with the trained models of a run: one logit per fold, and their mean."""

import argparse
from pathlib import Path

from brio_core.system.cli import run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, required=True, help="models.pt of a trained run")
    parser.add_argument("--series", type=Path, required=True, help="series.h5 with the new scans")
    parser.add_argument("--out", type=Path, required=True, help="CSV: subject, probability, logits")
    arguments = parser.parse_args()

    import pandas as pd

    from brio_core.cohorts.stores import read_series
    from brio_core.evaluation.scores import probability
    from brio_core.system.files import write_text
    from brio_core.training.prediction import predict
    from brio_core.training.results import read_models

    models, series = read_models(arguments.models), read_series(arguments.series)
    logits = predict(models, series, arguments.series)
    table = pd.DataFrame(logits.T, columns=[f"logit_{name}" for name in models.names])
    # Probabilities are averaged, not logits: an overconfident fold counts no more than others.
    table.insert(0, "subject", series.subjects)
    table.insert(1, "probability", probability(logits).mean(0))
    write_text(arguments.out, table.to_csv(index=False, float_format="%.9g"))


if __name__ == "__main__":
    run(main)
