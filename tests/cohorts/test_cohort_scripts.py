"""Bad input gives one sentence, exit code 1 and no output; bad subjects give a reason."""

import json
import shutil

import nibabel
import pytest

from brio_core.cohorts.extraction import ExtractedScans
from brio_core.cohorts.tables import read_table
from brio_core.system.errors import BrioError


@pytest.fixture
def own_copy(demo_data, tmp_path):
    """A data folder whose participants.tsv and atlas may be changed; the images are links."""
    folder = tmp_path / "data" / "demo"
    folder.mkdir(parents=True)
    shutil.copy(demo_data / "demo" / "participants.tsv", folder)
    shutil.copytree(demo_data / "demo" / "atlas", folder / "atlas")
    (folder / "derivatives").symlink_to(demo_data / "demo" / "derivatives")
    return folder


@pytest.fixture
def programs(load_dataset, run_script, own_copy, demo_results, tmp_path):
    """Run one program on the copy; extraction is shared with the unchanged demo."""
    dataset = load_dataset("demo")
    out = tmp_path / "out"
    settings = ("--dataset", json.dumps(dataset), "--data-dir", own_copy.parent)

    def run(name, *arguments, dataset=None):
        chosen = settings if dataset is None else ("--dataset", json.dumps(dataset), *settings[2:])
        if name == "candidates":
            arguments = ("--out", out / "candidates.tsv", *arguments)
        elif name == "extract":
            batch = ("--batch", 0, "--batches", 50, "--out", out / "0.h5")
            arguments = ("--candidates", out / "candidates.tsv", *batch)
        else:
            arguments = (
                "--candidates", out / "candidates.tsv",
                "--parts", demo_results / "parts" / "0.h5",
                "--participants", out / "participants.tsv",
                "--inclusion", out / "inclusion.tsv",
                "--regions", out / "regions.tsv",
                "--series", out / "series.h5", *arguments,
            )  # fmt: skip
        return run_script(name, *chosen, *arguments)

    run.out = out
    return run


def _files(folder):
    return sorted(path.name for path in folder.rglob("*")) if folder.exists() else []


def _fails(result, *words, log=False):
    assert result.returncode == 1
    *before, sentence = result.stderr.strip().splitlines()
    assert log or not before
    assert sentence.startswith("error: ")
    for word in words:
        assert word in sentence


def _edit(path, change):
    path.write_text(change(path.read_text()))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace("\tsite\t", "\tcentre\t", 1), ("participants.tsv", "'site'")),
        (
            lambda text: text.replace("patient", "relative", 1),
            ("'diagnosis'", "participants.tsv", "not two-valued", "'relative'"),
        ),
        (lambda text: text.replace("patient", "control"), ("'diagnosis'", "never holds 'patient'")),
        (lambda text: text.replace("sub-002", "sub-001", 1), ("sub-001 more than once",)),
        (lambda text: text.splitlines()[0] + "\n", ("participants.tsv lists no subjects",)),
        (lambda text: "", ("participants.tsv cannot be read as a table",)),
    ],
)
def test_bad_participants_table(programs, own_copy, change, words):
    _edit(own_copy / "participants.tsv", change)
    _fails(programs("candidates"), *words)
    assert _files(programs.out) == []


def test_missing_table_and_missing_folder_say_how_to_get_the_data(programs, own_copy):
    (own_copy / "participants.tsv").unlink()
    _fails(programs("candidates"), "cohort demo", "participants.tsv", "make_demo.py")
    own_copy.rename(own_copy.with_name("elsewhere"))
    _fails(programs("candidates"), "the data of cohort demo are missing", "make_demo.py")
    assert _files(programs.out) == []


def test_atlas_table_that_names_labels_not_in_the_image(programs, own_copy):
    _edit(own_copy / "atlas" / "demo_labels.tsv", lambda text: text + "99\tNowhere\t0\t0\t0\tL\n")
    _fails(programs("candidates"), "demo_labels.nii.gz", "demo_labels.tsv", "label(s) 99")
    assert _files(programs.out) == []


def test_atlas_whose_labels_are_not_in_the_images(programs, own_copy):
    path = own_copy / "atlas" / "demo_labels.nii.gz"
    atlas = nibabel.load(path)
    affine = atlas.affine.copy()
    affine[:3, 3] += 300
    nibabel.save(nibabel.Nifti1Image(atlas.get_fdata().astype("int16"), affine), path)
    assert programs("candidates").returncode == 0
    _fails(programs("extract"), "atlas of cohort demo", "demo_labels.nii.gz", "label(s)", log=True)
    assert _files(programs.out) == ["candidates.tsv"]


def test_kind_of_source_that_cannot_be_read(programs, load_dataset):
    source = {"kind": "magic", "folder": "demo"}
    result = programs("candidates", dataset=load_dataset("demo") | {"source": source})
    _fails(result, "'magic'", "bids, dpabi, pcp, series")
    assert _files(programs.out) == []


def _excluded(programs, dataset):
    assert programs("candidates", dataset=dataset).returncode == 0
    table = read_table(programs.out / "candidates.tsv").set_index("subject")["excluded"]
    return table[table != "n/a"]


def test_rules_of_the_dataset_that_are_known_before_reading(programs, load_dataset, own_copy):
    header, *lines = (own_copy / "participants.tsv").read_text().splitlines()
    lines = [f"{line}\t{('pass', 'fail')[n == 4]}\t{n % 3}" for n, line in enumerate(lines)]
    text = "\n".join([f"{header}\tqc\tprotocol", *lines]) + "\n"
    (own_copy / "participants.tsv").write_text(text)
    dataset = load_dataset("demo")
    before = _excluded(programs, dataset)
    dataset["inclusion"] |= {"quality": {"qc": ["pass"]}}
    reasons = _excluded(programs, dataset).drop(before.index)
    assert reasons.to_dict() == {"sub-005": "failed quality control: qc is fail"}
    dataset["inclusion"] |= {"quality": {}, "select": {"protocol": [0, 1]}}
    reasons = _excluded(programs, dataset)
    assert (reasons == "not selected: protocol is 2").sum() == len(lines) // 3
    dataset["inclusion"] |= {"select": {}, "max_mean_fd": 0.05}
    reasons = _excluded(programs, dataset).drop(before.index)
    assert len(reasons) > 0 and reasons.str.startswith("too much head motion: 0.").all()
    (own_copy / "participants.tsv").write_text(text.replace("\t29.1\t", "\tn/a\t", 1))
    dataset["inclusion"] = {"required": ["tr", "age"]}
    reasons = _excluded(programs, dataset)
    assert reasons["sub-001"] == "missing phenotype: no age"
    assert set(reasons.index) == {"sub-001", *before.index}


def test_fewer_than_five_usable_sites(programs, own_copy):
    _edit(
        own_copy / "participants.tsv",
        lambda text: "\n".join(
            line
            for line in text.splitlines()
            if not any(site in line for site in ("Alder", "Birch", "Cedar"))
        ),
    )
    assert programs("candidates").returncode == 0
    result = programs("assemble")
    _fails(result, "4 usable site(s) (Elm, Hazel, Maple, Rowan)", "at least 5", log=True)
    assert _files(programs.out) == ["candidates.tsv"]


def test_nothing_left(programs, load_dataset):
    dataset = load_dataset("demo")
    dataset["inclusion"]["min_frames"] = 1000
    assert programs("candidates").returncode == 0
    result = programs("assemble", dataset=dataset)
    _fails(result, "no subject of cohort demo is left", "too few frames", log=True)
    assert _files(programs.out) == ["candidates.tsv"]


def _one_class_at_elm(text):
    lines = text.splitlines()
    return "\n".join(line.replace("control", "patient") if "Elm" in line else line
                     for line in lines)  # fmt: skip


def test_site_with_one_class_is_excluded(programs, own_copy):
    _edit(own_copy / "participants.tsv", _one_class_at_elm)
    assert programs("candidates").returncode == 0
    result = programs("assemble")
    assert result.returncode == 0, result.stderr
    assert "excluded, site with one class: 14" in result.stderr
    table = read_table(programs.out / "inclusion.tsv")
    elm = table[table["site"] == "Elm"]
    assert (elm["kept"] == "no").all()
    assert elm["reason"].str.startswith("site with one class: all 14 usable").sum() == 14
    assert "Elm" not in set(read_table(programs.out / "participants.tsv")["site"])


@pytest.fixture
def only_clean(own_copy, demo_results):
    """Leave only the subjects that the unchanged demo keeps in the table."""
    kept = set(read_table(demo_results / "participants.tsv")["subject"])
    header, *lines = (own_copy / "participants.tsv").read_text().splitlines()
    lines = [line for line in lines if line.split("\t")[0] in kept]
    (own_copy / "participants.tsv").write_text("\n".join([header, *lines]) + "\n")


@pytest.mark.usefixtures("only_clean")
def test_stop_passes_when_nothing_is_wrong(programs):
    assert programs("candidates", "--on-bad-subject", "stop").returncode == 0
    result = programs("assemble", "--on-bad-subject", "stop")
    assert result.returncode == 0, result.stderr


@pytest.mark.usefixtures("only_clean")
def test_site_with_one_class_is_an_error_under_stop(programs, own_copy):
    _edit(own_copy / "participants.tsv", _one_class_at_elm)
    assert programs("candidates", "--on-bad-subject", "stop").returncode == 0
    result = programs("assemble", "--on-bad-subject", "stop")
    _fails(result, "14 of 104 subjects", "sub-046: site with one class", log=True)
    assert _files(programs.out) == ["candidates.tsv"]


def test_empty_and_missing_images_are_errors_under_stop(programs):
    result = programs("candidates", "--on-bad-subject", "stop")
    _fails(result, "3 of 105 subjects", "sub-045: missing file", "sub-060: empty file",
           "sub-090: missing phenotype", "on_bad_subject: exclude")  # fmt: skip
    assert _files(programs.out) == []


def test_scans_found_bad_later_are_errors_under_stop(programs):
    assert programs("candidates").returncode == 0
    result = programs("assemble", "--on-bad-subject", "stop")
    _fails(result, "7 of 105 subjects", "sub-015: too few frames", "and 4 more", log=True)
    assert _files(programs.out) == ["candidates.tsv"]


def test_part_that_is_not_one(programs, run_script, load_dataset, own_copy, tmp_path):
    assert programs("candidates").returncode == 0
    (tmp_path / "part.h5").write_text("not HDF5")
    result = run_script(
        "assemble", "--dataset", json.dumps(load_dataset("demo")), "--data-dir", own_copy.parent,
        "--candidates", programs.out / "candidates.tsv", "--parts", tmp_path / "part.h5",
        "--participants", tmp_path / "p", "--inclusion", tmp_path / "i", "--series", tmp_path / "s",
        "--regions", tmp_path / "r",
    )  # fmt: skip
    _fails(result, "part.h5 is not a readable HDF5 file")


def test_batches_do_not_change_the_result(
    programs, run_script, load_dataset, demo_data, demo_results, tmp_path
):
    """A batch of three gives the same series as one batch of all."""
    settings = ("--dataset", json.dumps(load_dataset("demo")), "--data-dir", demo_data)
    assert programs("candidates").returncode == 0
    result = run_script(
        "extract", *settings, "--candidates", programs.out / "candidates.tsv",
        "--batch", 2, "--batches", 40, "--out", tmp_path / "2.h5",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    some, everyone = (
        ExtractedScans([tmp_path / "2.h5"]),
        ExtractedScans([demo_results / "parts" / "0.h5"]),
    )
    for subject in ("sub-003", "sub-043", "sub-083"):
        assert some.outcome(subject) == everyone.outcome(subject)
    with pytest.raises(BrioError, match="no part holds subject sub-004"):
        some.outcome("sub-004")


@pytest.mark.parametrize("name", ["make_demo", "candidates", "extract", "assemble"])
def test_help(run_script, name):
    result = run_script(name, "--help")
    assert result.returncode == 0
    assert "--out" in result.stdout or "--series" in result.stdout
