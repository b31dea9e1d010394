"""Stand-in diagnostics: what ``diagnose`` writes about runs."""

import json
from pathlib import Path

import numpy as np

from tests.reporting.standins import SITES

BRIO = {"lambda_env": 1.0, "without": "none", "epochs": 30}
DIAGNOSED = {
    "gcn": ("gcn", "GCN", "General GNNs", {"epochs": 30}),
    "brio": ("brio", "BRIO", "Ours", BRIO),
    "brio-wo-rs": ("brio", "BRIO w/o RS", "Ours", BRIO | {"without": "RS"}),
    **{
        f"brio-wo-qg-lambda{value:g}": (
            "brio", f"BRIO w/o QG (λ = {value:g})", "Ours",
            BRIO | {"without": "QG", "lambda_env": value},
        )
        for value in (0.0, 0.3, 1.0)
    },
}  # fmt: skip


def write_diagnostics(
    root: Path, cohort_name: str = "demo", diagnosed: dict = DIAGNOSED, sites=SITES, placed=True
) -> list[Path]:
    """Write the folders of a cohort's runs: lower site discrepancy is not lower variation."""
    generator = np.random.default_rng(5)
    tables: dict[str, dict[str, list[dict]]] = {variant: {} for variant in diagnosed}

    def add(table: str, variant: str, fold: str, **values) -> None:
        where = {"variant": variant, "seed": 0, "fold": fold}
        tables[variant].setdefault(table, []).append(where | values)

    for number, variant in enumerate(diagnosed):
        for site in sites:
            x, y, auc = np.exp(generator.normal(0, 0.2, 3)) * (0.05 + 0.02 * number, 0.3, 0.7)
            add(
                "folds",
                variant,
                site,
                site_discrepancy=x,
                predictive_variation=y,
                held_out_variation=1.5 * y,
                validation_auc=auc,
                test_auc=auc - 0.05,
            )
            for person in range(20):
                margin, label = generator.normal(0.4 * (2 * (person % 2) - 1)), person % 2
                share = min(1.0, 0.5 + 0.125 * round(4 * min(1, abs(margin))))
                words = {"subject": f"s{person}", "label": label, "margin": margin}
                spread = generator.uniform(0.2, 0.6)
                add("held-out", variant, site, **words, agreement=share, deviation=spread)
            for fraction in (0.75, 0.5):
                for position in ("beginning", "middle", "end"):
                    loss = generator.normal(0.02 / fraction, 0.02)
                    add(
                        "scan-length",
                        variant,
                        site,
                        fraction=fraction,
                        position=position,
                        test_auc=auc - 0.05 - loss,
                    )
            if variant == "brio":
                _add_factors(add, generator, site, sites)
    where = generator.normal(0, 30, (24, 3)) if placed else np.full((24, 3), np.nan)
    rois = [
        {"roi": i, "name": f"Region {i}", **dict(zip("xyz", place)), "hemisphere": "L"}
        for i, place in enumerate(where)
    ]
    folders = []
    for variant, about in diagnosed.items():
        folders.append(root / f"diagnostics/{cohort_name}/loso/{variant}/seed-0")
        folders[-1].mkdir(parents=True)
        for name, records in (tables[variant] | {"rois": rois}).items():
            _write_csv(folders[-1] / f"{name}.csv", records)
        meta = {"cohort": cohort_name, "protocol": "loso", "variant": variant, "seed": 0}
        meta |= dict(zip(("method", "label", "group", "hyperparameters"), about))
        (folders[-1] / "meta.json").write_text(json.dumps(meta))
    return folders


def _add_factors(add, generator, site, sites) -> None:
    rankings = [("qualification", 0), ("relevance", 0), ("support", 0)]
    for ranking, draw in rankings + [("random", draw) for draw in range(20)]:
        for kept in range(1, 5):
            auc = 0.75 if kept == 4 else 0.75 - generator.uniform(0, 0.05) * (4 - kept)
            add(
                "retention",
                "brio",
                site,
                ranking=ranking,
                draw=draw,
                kept=kept,
                factors=4,
                test_auc=auc,
            )
    for roi, score in enumerate(generator.dirichlet(np.full(24, 20.0))):
        add("profiles", "brio", site, roi=roi, score=score)
    for number, other in enumerate(sites):
        for factor in range(4):
            contrast, bound = generator.normal(0, 0.5), generator.uniform(0.2, 1)
            change = 0.4 * bound * generator.uniform(-1, 1)
            add(
                "contrasts",
                "brio",
                site,
                site=other,
                factor=factor,
                contrast=contrast,
                reestimated=contrast + change,
                bound=bound,
                condition=float(abs(contrast) > bound),
            )
        for side in (0, 1):
            penalty = generator.uniform(0.1, 0.5)
            values = {"class": side, "penalty": penalty, "relevance_penalty": 1.05 * penalty}
            add("penalties", "brio", site, site=other, other_site=sites[number - 1], **values)


def _write_csv(path: Path, records: list[dict]) -> None:
    lines = [",".join(records[0])]
    # As training writes them: what is not known is left empty.
    lines += [",".join(map(str, record.values())).replace("nan", "") for record in records]
    path.write_text("\n".join(lines) + "\n")
