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

    from brio_core.cohorts.stores import read_series
    from brio_core.training.prediction import predict
    from brio_core.training.results import read_models, write_records

    models, series = read_models(arguments.models), read_series(arguments.series)
    logits = predict(models, series, arguments.series)
    import numpy as np

    # Probabilities are averaged, not logits: an overconfident fold counts no more than others.
    probability = (1 / (1 + np.exp(-logits))).mean(0)
    records = [
        {
            "subject": subject,
            "probability": float(probability[index]),
            **{
                f"logit_{name}": float(logits[fold, index])
                for fold, name in enumerate(models.names)
            },
        }
        for index, subject in enumerate(series.subjects)
    ]
    write_records(arguments.out, records)


if __name__ == "__main__":
    run(main)
