"""Scans of a new site: the numbers of a leave-one-site-out run, warnings, and bad input."""

import shutil
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
import torch

from brio_core.cohorts.stores import read_series
from brio_core.evaluation.scores import auc
from brio_core.reporting.new_site import predict_scans
from brio_core.reporting.predicted import warm_up
from brio_core.reporting.results import read_run
from brio_core.system import sealed
from brio_core.system.errors import BrioError
from brio_core.training.bundle import VERSION, read_bundle


@pytest.fixture
def scans(bundles, tmp_path):
    """A folder of ROI series of the site that did not train, as text with a header."""
    _, cohort, site, table = bundles
    series = read_series(cohort / "series.h5")
    for row in np.flatnonzero(table["site"] == site):
        header = "\t".join(series.rois.names)
        path = tmp_path / "scans" / f"{series.subjects[row]}_rois.tsv"
        path.parent.mkdir(exist_ok=True)
        np.savetxt(path, series.scan(row), "%.9g", "\t", header=header, comments="")
    return tmp_path / "scans"


def predicted(bundle, scans, out, **options) -> pd.DataFrame:
    predict_scans(bundle, scans, out, **options)
    return pd.read_csv(out / "predictions.csv", keep_default_na=False, na_values=[""])


def test_a_left_out_site_gets_the_logits_of_its_fold(bundles, scans, tmp_path, capsys):
    folder, cohort, site, table = bundles
    labels = cohort / "participants.tsv"
    found = predicted(folder / "without.brio", scans, tmp_path / "out", labels=labels)
    test = read_run(folder / "run").test.set_index("subject")
    own = test.loc[found["subject"].str.removesuffix("_rois")]
    assert set(own["site"]) == {site} and len(own) == (table["site"] == site).sum()
    np.testing.assert_allclose(found["logit"], own["logit"], atol=1e-5)
    assert found["label"].tolist() == own["label"].astype(int).tolist()
    said = capsys.readouterr().out
    assert f"AUC {100 * auc(own['label'], own['logit']):.1f} %" in said
    assert "not for clinical use" in said and "was to be expected" in said
    # Re-estimates surround the estimate, and a decision holds in a share of them.
    assert found["stability"].between(0, 1).all() and (found["stability"] * 20 % 1 < 1e-9).all()
    assert (found["probability_low"] < found["probability_high"]).all()
    assert ((found["logit"] > read_bundle(folder / "without.brio").about["decision"]["threshold"])
            == (found["decision"] == 1)).all()  # fmt: skip
    page = (tmp_path / "out/index.html").read_text()
    assert "Not for clinical use" in page and "<svg" in page and str(found["subject"][0])


def test_noise_warms_a_bundle_up(bundles):
    folder = bundles[0]
    warm_up(read_bundle(folder / "without.brio"), 2, torch.device("cpu"))


def test_a_tree_of_images_is_read_like_the_cohort(bundles, demo_data, tmp_path):
    folder, _, site, table = bundles
    tree = tmp_path / "new"
    for name in ("derivatives/prep", "atlas"):
        shutil.copytree(demo_data / "demo" / name, tree / name, ignore=lambda where, names: [
            one for one in names if one.startswith("sub-") and Path(where).name == "prep"
            and f"{one}" not in set(table["subject"][table["site"] == site][:3])
        ])  # fmt: skip
    (tree / "dataset_description.json").write_text("{}")
    found = predicted(folder / "without.brio", tree, tmp_path / "out", reestimates=0)
    test = read_run(folder / "run").test.set_index("subject")
    assert len(found) == 3 and found["stability"].isna().all()
    np.testing.assert_allclose(found["logit"], test.loc[found["subject"], "logit"], atol=1e-4)


def header(names):
    return "\t".join(names) + "\n"


def spoil(name: str, bundle: Path, scans: Path):
    """Bad input of a kind, in place."""
    file = sorted(scans.iterdir())[2]
    names, *lines = file.read_text().splitlines(keepends=True)
    names = names.rstrip("\n").split("\t")
    if name == "another atlas":
        file.write_text(header(names[:-2]) + "".join(
            "\t".join(line.split()[:-2]) + "\n" for line in lines))  # fmt: skip
    elif name == "transposed":
        np.savetxt(file, np.loadtxt(lines).T, delimiter="\t")
    elif name == "order":
        file.write_text(header(names[::-1]) + "".join(lines))
    elif name == "other names":
        file.write_text(header(f"area{one}" for one in names) + "".join(lines))
    elif name == "no scans":
        shutil.rmtree(scans)
        scans.mkdir()
    elif name == "cut off":
        bundle.write_bytes(bundle.read_bytes()[:-100])
    elif name == "edited":
        content = bytearray(bundle.read_bytes())
        content[len(content) // 2] ^= 1
        bundle.write_bytes(content)
    elif name == "newer":
        with h5py.File(bundle, "r+") as store:
            store.attrs["version"] = VERSION + 1
        sealed.seal(bundle)
    elif name == "no bundle":
        shutil.copy(file, bundle)
    elif name == "folder":
        bundle.unlink()
        bundle.mkdir()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("another atlas", r"has 22 ROIs, but the bundle was trained with 24; give frames by ROIs"),
        ("transposed", "rows and columns seem to be exchanged"),
        ("order", "ROIs of the bundle in another order: number 1 is"),
        ("other names", "other ROIs than the bundle: number 1 is 'area"),
        ("no scans", "holds no ROI series"),
        ("cut off", "was cut off or edited"),
        ("edited", "was cut off or edited"),
        ("newer", "newer version of BRIO, and this one reads up to 1; update BRIO"),
        ("no bundle", "is no bundle"),
        ("folder", "is a folder; name a bundle"),
    ],
)
def test_bad_input_gets_one_sentence_and_nothing_is_written(
    name, sentence, bundles, scans, tmp_path
):
    bundle = shutil.copy(bundles[0] / "all.brio", tmp_path / "copy.brio")
    spoil(name, bundle, scans)
    with pytest.raises(BrioError, match=sentence) as error:
        predict_scans(bundle, scans, tmp_path / "out")
    assert not (tmp_path / "out").exists() and str(error.value).count("\n") == 0
    assert "delete" not in str(error.value)


def test_warnings_and_a_bad_file_do_not_cost_the_others(bundles, scans, tmp_path):
    files = sorted(scans.iterdir())
    names, *lines = files[0].read_text().splitlines(keepends=True)
    files[0].write_text(names + "".join(lines[:12]))
    dead = np.loadtxt(files[1].read_text().splitlines()[1:])
    dead[:, :5] = 0
    np.savetxt(files[1], dead, "%.9g", "\t", header=names.strip(), comments="")
    files[2].write_text("no numbers\n")
    subjects = [file.name.removesuffix("_rois.tsv") for file in files]
    times = ["99" if place == 3 else "n/a" for place in range(len(subjects))]
    rows = [f"{subject}\tn/a\t{time}" for subject, time in zip(subjects, times)]
    (tmp_path / "people.tsv").write_text("\n".join(["participant_id\tlabel\ttr", *rows]) + "\n")
    found = predicted(
        bundles[0] / "without.brio", scans, tmp_path / "out", labels=tmp_path / "people.tsv"
    )
    warnings = found["warnings"].fillna("")
    assert "12 frames" in warnings[0] and "far from all training sites" in warnings[0]
    assert "constant ROIs" in warnings[1]
    assert warnings[2].startswith("not predicted: unreadable file")
    assert (
        np.isnan(found["probability"][2]) and found["probability"].notna().sum() == len(found) - 1
    )
    assert "TR 99 s, trained with" in warnings[3]
    assert found["label"].isna().all()


@pytest.mark.parametrize(("classes", "said"), [
    ("11111", "5 of {all} predicted scans have a label: 5 of class 1 and 0 of class 0, so"),
    ("10110", "5 of {all} predicted scans have a label. AUC "),
])  # fmt: skip
def test_few_labels_are_told(bundles, scans, tmp_path, capsys, classes, said):
    files = sorted(scans.iterdir())
    rows = [f"{file.name.split('_')[0]}\t{one}" for file, one in zip(files, classes)]
    (tmp_path / "people.tsv").write_text("\n".join(["participant_id\tlabel", *rows]) + "\n")
    predict_scans(bundles[0] / "without.brio", scans, tmp_path / "out", tmp_path / "people.tsv", 0)
    said = said.format(all=len(files))
    assert said in capsys.readouterr().out
    assert said in (tmp_path / "out/index.html").read_text()
