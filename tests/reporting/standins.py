"""Stand-in results: what training writes, drawn from a model of scores instead of a training."""

import json
from pathlib import Path

import numpy as np
import yaml

from brio_core.reporting.catalogue import Given, catalogue
from brio_core.reporting.summary import summarise
from brio_core.reporting.writing import write_table
from workflow.planning.schema import filled, schema

ROOT = Path(__file__).resolve().parents[2]
SITES = ("Alder", "Birch", "Cedar", "Elm", "Fir", "Hazel", "Maple")
METHODS = {
    "gcn": ("GCN", "General GNNs", 0.7),
    "brio": ("BRIO", "Ours", 1.3),
    "linear-correlation": ("Linear (correlation)", "Linear", 1.5),
}
DATASET = {"title": "Demo cohort (synthetic)", "task": "patient vs. control"}


def make_table(name: str, prefix: Path, entry=None, planned=None, datasets=None, **files) -> Path:
    """A table of the catalogue, as ``scripts/table.py`` makes it; the path of its CSV."""
    paths = {key: [str(path) for path in found] for key, found in files.items()}
    given = Given(catalogue("tables")[name], paths, entry or {}, planned or {}, datasets or {})
    write_table(prefix, *given.make())
    return Path(f"{prefix}.csv")


def summarised(root: Path, runs, name: str = "loso") -> tuple[Path, Path]:
    """The two summaries of runs, as ``scripts/summarise.py`` writes them."""
    root.mkdir(parents=True, exist_ok=True)
    summary, sites = root / f"{name}.csv", root / f"{name}-sites.csv"
    for path, rows in zip((summary, sites), summarise(list(runs), "main")):
        rows.to_csv(path, index=False)
    return summary, sites


def printed_lines(path: Path) -> list[list[str]]:
    """The texts of a table's lines, from the JSON beside its CSV."""
    rows = json.loads(path.with_suffix(".json").read_text())["rows"]
    shown = [row["cells"] for row in rows if not row["heading"]]
    return [[cell["text"] for cell in cells] for cells in shown]


def cohort(sites=SITES, per_site=14, seed=0):
    """Subjects, sites and labels of a cohort; every site has both classes."""
    generator = np.random.default_rng(seed)
    site = np.repeat(sites, per_site)
    label = np.concatenate([generator.permutation(np.arange(per_site) % 2) for _ in sites])
    subject = np.array([f"sub-{i:03d}" for i in range(len(site))])
    return subject, site, label


def write_run(
    root: Path,
    variant: str,
    seed: int = 0,
    cohort_name: str = "demo",
    protocol: str = "loso",
    effect: float | None = None,
    sites=SITES,
    method: tuple | None = None,
    per_site: int = 14,
    **changes,
) -> Path:
    """Write predictions.csv, history.csv and meta.json of one run; return its folder."""
    label_text, group, strength = method or METHODS[variant]
    effect = strength if effect is None else effect
    subject, site, label = cohort(sites, per_site)
    generator = np.random.default_rng([seed, len(variant), *map(ord, variant + protocol)])
    if "permuted" in protocol:
        shuffle = np.random.default_rng([*map(ord, protocol)]).permutation
        label = np.concatenate([shuffle(label[site == name]) for name in sites])
        effect = 0.0
    fold = site if protocol.startswith("loso") else _ten_folds(site, label)
    names = sorted(set(fold))
    level = dict(zip(names, generator.normal(0, 0.3, len(names))))
    noise = generator.normal(size=len(subject))
    logit = 1.2 * (effect * (label - 0.5) + noise) + [level[name] for name in fold]
    lines = ["subject,site,fold,split,label,logit"]
    for split, shift in (("validation", 1), ("test", 0)):
        shifted = dict(zip(names, names[shift:] + names[:shift]))
        for row in range(len(subject)):
            place = shifted[fold[row]]
            lines.append(
                f"{subject[row]},{site[row]},{place},{split},{label[row]},{logit[row]:.9g}"
            )
    folder = root / "runs" / cohort_name / protocol / variant / f"seed-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "predictions.csv").write_text("\n".join(lines) + "\n")
    # A linear model has no epochs; its history is a path of penalties.
    epochs = 7 if group == "Linear" else 30
    folds = _write_history(folder / "history.csv", names, epochs, effect, generator)
    meta = {
        "cohort": cohort_name,
        "protocol": protocol,
        "variant": variant,
        "method": variant,
        "label": label_text,
        "group": group,
        "seed": seed,
        "hyperparameters": {"penalties": 7} if group == "Linear" else {"epochs": epochs},
        "split_checksum": f"sha-{cohort_name}-{protocol}",
        "code": "0123456789abcdef",
        "versions": {"python": "3.11.2", "torch": "2.13.0", "brio_core": "0.1.0"},
        "device": "cpu",
        "folds": folds,
        "seconds": 12.5,
        "peak_memory_bytes": 310_000_000,
        "parameters": 25_000 if group != "Linear" else 277,
        "started": "2026-01-05T10:00:00+00:00",
        "finished": "2026-01-05T10:00:12+00:00",
    }
    (folder / "meta.json").write_text(json.dumps(meta | changes))
    return folder


def _ten_folds(site, label):
    order = np.lexsort((label, site))
    fold = np.empty(len(site), dtype="<U7")
    fold[order] = [f"fold-{i % 10 + 1:02d}" for i in range(len(site))]
    return fold


def _write_history(path, names, epochs, effect, generator):
    lines, folds = ["fold,epoch,loss,validation_auc,validation_auc_1,validation_auc_2"], []
    apart = 0.05 * np.sin(np.arange(epochs))  # two sites, which never quite agree
    for name in names:
        rise = 0.5 + 0.25 * effect * (1 - np.exp(-np.arange(1, epochs + 1) / 6))
        auc = np.clip(rise + generator.normal(0, 0.04, epochs) + generator.normal(0, 0.05), 0, 1)
        loss = 0.7 - 0.3 * (rise - 0.5)
        columns = (loss, auc, auc + apart, auc - apart)
        lines += [f"{name},{e + 1}," + ",".join(f"{c[e]:.6f}" for c in columns)
                  for e in range(epochs)]  # fmt: skip
        best = int(auc.argmax())
        folds.append(
            {
                "name": str(name),
                "selected_epoch": best + 1,
                "validation_auc": float(auc[best]),
                "epochs": epochs,
                "first_epoch": None if epochs == 7 else 1,
                "seconds_per_epoch": 0.002 if epochs == 7 else 0.08,
            }
        )
    path.write_text("\n".join(lines) + "\n")
    return folds


def write_cohort(root: Path, cohort_name: str = "demo", sites=SITES, per_site=14) -> Path:
    """Write participants.tsv and inclusion.tsv; two subjects per site are excluded."""
    folder = root / "cohorts" / cohort_name
    folder.mkdir(parents=True, exist_ok=True)
    subject, site, label = cohort(sites, per_site)
    generator = np.random.default_rng(1)
    frames = {name: 90 + 20 * i for i, name in enumerate(sites)}
    people = ["subject\tsite\tlabel\tage\tsex\tmean_fd\ttr\tgroup\tsource"]
    rows = ["subject\tsite\tlabel\tkept\treason\tframes_before\tframes_after\tconstant_rois"]
    for one, where, which in zip(subject, site, label):
        age, lost = generator.uniform(18, 60), int(generator.integers(0, 6))
        people.append(f"{one}\t{where}\t{which}\t{age:.1f}\tM\t0.12\t2.0\tn/a\t{one}.nii.gz")
        count = frames[where]
        rows.append(f"{one}\t{where}\t{which}\tyes\t\t{count}\t{count - lost}\t0")
    reasons = ("too few frames: 40 of 60", "image missing: bold.nii.gz", "image empty: 0 bytes")
    for number, name in enumerate(sites[:5]):
        reason = reasons[number % len(reasons)]
        rows.append(f"bad-{number}\t{name}\t1\tno\t{reason}\tn/a\tn/a\tn/a")
    (folder / "participants.tsv").write_text("\n".join(people) + "\n")
    (folder / "inclusion.tsv").write_text("\n".join(rows) + "\n")
    # Of 24 regions the first is dead in all patients of the first site, and left out.
    lines = ["region\tkept\tsite\tlabel\tsubjects\tdead"]
    for name in sites:
        for which in (1, 0):
            count = int(((site == name) & (label == which)).sum())
            dead = count if name == sites[0] and which else 0
            lines += [f"any\tn/a\t{name}\t{which}\t{count}\t{dead}"]
            lines += [f"r00\tno\t{name}\t{which}\t{count}\t{dead}"]
            lines += [f"r{index:02d}\tyes\t{name}\t{which}\t{count}\t0" for index in range(1, 24)]
    (folder / "regions.tsv").write_text("\n".join(lines) + "\n")
    return folder


def write_profile(root: Path, cohort_name: str = "demo", sites=SITES, per_site=14) -> Path:
    """Write site_profile.tsv; one subject stands out, and every third site is mistaken."""
    path = root / "cohorts" / cohort_name / "site_profile.tsv"
    path.parent.mkdir(parents=True, exist_ok=True)
    subject, site, label = cohort(sites, per_site)
    generator = np.random.default_rng(2)
    lines = ["subject\tsite\tlabel\tage\tmale\tmean_fd\ttr\tframes\tfc_mean\tfc_sd\ttypicality"
             "\toutlier\trecognised_as"]  # fmt: skip
    for number, (one, where, which) in enumerate(zip(subject, site, label)):
        told = where if number % 3 else sites[0]
        values = (f"{value:.4f}" for value in generator.uniform(0.1, 0.3, 3))
        age, odd = f"{generator.uniform(18, 60):.1f}", "level of FC" if number == 5 else ""
        words = [one, where, which, age, number % 2, 0.12, 2.0, 90 + number % 7, *values, odd, told]
        lines.append("\t".join(map(str, words)))
    path.write_text("\n".join(lines) + "\n")
    return path


def write_curve(root: Path, sizes=(2, 4), draws=2, **words) -> None:
    """Runs and summaries of a learning curve; its methods grow better with the sites."""
    drawn = [(arm, size, draw) for arm in ("sites", "subjects") for size in sizes
             for draw in range(1, draws + 1)]  # fmt: skip
    for arm, size, draw in [("", 6, 0), *drawn]:
        protocol = f"loso-{arm}-{size}-draw-{draw}" if arm else "loso"
        runs = []
        for variant in ("gcn", "linear-correlation"):
            effect = 0.3 + 0.2 * size + 0.1 * (arm == "subjects")
            folder = write_run(root, variant, protocol=protocol, effect=effect, **words)
            meta = json.loads((folder / "meta.json").read_text())
            sites = 6 if arm == "subjects" else size
            own = {"training_subjects": 14 * size, "training_sites": sites}
            meta["folds"] = [fold | own for fold in meta["folds"]]
            (folder / "meta.json").write_text(json.dumps(meta))
            runs.append(folder)
        summarised(root, runs, protocol)


def write_block_lengths(root: Path, protocol: str = "loso", sites=SITES) -> Path:
    """Write one block-length file; folds differ a little."""
    generator = np.random.default_rng(7)
    folds = [
        {"name": name, "estimate": float(estimate), "block_length": int(estimate + 0.5)}
        for name, estimate in zip(sites, generator.normal(6.4, 0.5, len(sites)))
    ]
    path = root / "blocklength" / "demo" / f"{protocol}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"cohort": "demo", "protocol": protocol, "folds": folds}))
    return path


def write_run_config(root: Path, methods=("brio", "gcn"), **changes) -> Path:
    """Write run_config.yaml as the workflow does, of the shipped method files."""
    variants = {}
    for name in methods:
        method = yaml.safe_load((ROOT / f"config/methods/{name}.yaml").read_text())
        values = method["presets"]["common"] | changes.get("overrides", {}).get(name, {})
        words = {key: method[key] for key in ("method", "label", "group")}
        search = method.get("search", {}) if changes.get("search") else {}
        variants[name] = {**words, "hyperparameters": values, "search": search}
    config = filled({"cohorts": ["demo"], **changes}, schema("config"))
    datasets = {"demo": filled(dict(DATASET), schema("dataset"))}
    path = root / "run_config.yaml"
    content = {"config": config, "datasets": datasets, "experiments": {}, "variants": variants}
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def write_course(root, variant, courses, seed, first_epoch, hyperparameters, method=None) -> Path:
    """A run with these courses of validation: AUCs of two sites by epoch, one pair per fold."""
    names = SITES[: len(courses)]
    words = {"sites": names, "method": method, "hyperparameters": hyperparameters}
    folder = write_run(root, variant, seed, **words)
    lines, folds = ["fold,epoch,loss,validation_auc,validation_auc_1,validation_auc_2"], []
    for name, (one, other) in zip(names, courses):
        mean = [(a if b is None else (a + b) / 2) for a, b in zip(one, other)]
        rows = enumerate(zip(mean, one, other), start=1)
        lines += [f"{name},{n},0.5,{m},{a},{'' if b is None else b}" for n, (m, a, b) in rows]
        epoch = max(range(first_epoch, len(mean) + 1), key=lambda number: mean[number - 1])
        record = {"selected_epoch": epoch, "validation_auc": mean[epoch - 1], "epochs": len(mean)}
        folds.append({"name": name, "first_epoch": first_epoch, **record})
    (folder / "history.csv").write_text("\n".join(lines) + "\n")
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps(meta | {"folds": folds}))
    return folder
