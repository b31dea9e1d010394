"""BIDS derivatives: runs, sessions, ready series, tables joined by subject, confounds, atlases."""

import shutil
import warnings

import numpy as np
import pytest
from nilearn.interfaces.fmriprep import load_confounds
from nilearn.signal import clean

from brio_core.cohorts.candidates import find_candidates
from brio_core.cohorts.extraction import extract_batch
from brio_core.cohorts.readers.reader import open_reader
from brio_core.cohorts.scan import Scan
from brio_core.system.errors import BrioError
from tests.cohorts.layouts import SPACE, bids_dataset, labels, save, write_atlas, write_run

PREP = "small/derivatives/fmriprep"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """One subject with one run, one with three, one with two sessions, one in two resolutions."""
    data = tmp_path_factory.mktemp("bids")
    folder = data / "small"
    write_atlas(folder)
    prep = data / PREP
    write_run(prep / "sub-01" / "func", "sub-01_task-rest", 80)
    for run, frames in ((1, 80), (2, 100), (10, 100)):
        write_run(prep / "sub-02/func", f"sub-02_task-rest_run-{run:02d}", frames, seed=run)
    for session in ("base", "later"):
        write_run(prep / f"sub-03/ses-{session}/func", f"sub-03_ses-{session}_task-rest", 80)
    for res in ("_res-1", "_res-2"):
        write_run(prep / "sub-04" / "func", "sub-04_task-rest", 80, res=res)
    rows = ["participant_id\tsite\tgroup"]
    rows += [f"sub-0{n}\tA\t{('control', 'case')[n % 2]}" for n in range(1, 5)]
    (folder / "participants.tsv").write_text("\n".join(rows) + "\n")
    return data


def _found(data, **source):
    return {c["subject"]: c for c in find_candidates(open_reader(bids_dataset(**source), data))}


def _runs(candidate):
    return [name.split("run-")[1][:2] for name in candidate["source"].split(";")]


def _read(data, subject, **source):
    opened = open_reader(bids_dataset(**source), data)
    candidate = next(c for c in find_candidates(opened) if c["subject"] == subject)
    return next(extract_batch(opened, [candidate]))[1]


def test_one_rule_for_several_runs(data):
    assert _runs(_found(data)["sub-02"]) == ["01"]
    assert _runs(_found(data, runs="first")["sub-02"]) == ["01"]
    assert _runs(_found(data, runs="longest")["sub-02"]) == ["02"]
    assert _runs(_found(data, runs="join")["sub-02"]) == ["01", "02", "10"]
    assert _runs(_found(data, run="10")["sub-02"]) == ["10"]
    assert _runs(_found(data, run="2")["sub-02"]) == ["02"]
    one = _found(data, runs="join")["sub-01"]
    assert (one["source"].count(";"), one["tr"], one["excluded"]) == (0, "2.0", "")


def test_motion_comes_from_the_confounds_if_the_table_has_none(data):
    expected = (76 * 0.1 + 3 * 0.9) / 79
    assert float(_found(data)["sub-01"]["mean_fd"]) == pytest.approx(expected, rel=1e-4)


def test_joined_runs_are_standardised_one_by_one(data):
    whole = _read(data, "sub-02", runs="join", cleaning={"detrend": False, "standardize": None})
    parts = [
        _read(data, "sub-02", run=run, cleaning={"detrend": False, "standardize": None})
        for run in ("1", "2", "10")
    ]
    assert whole.frames_before == 280 and whole.note == "3 of 3 runs joined"
    expected = [(part.series - part.series.mean(0)) / part.series.std(0) for part in parts]
    np.testing.assert_allclose(whole.series, np.concatenate(expected), atol=2e-3)


def test_a_bad_run_is_left_out_and_told(data, tmp_path):
    copy = tmp_path / "data"
    shutil.copytree(data, copy)
    bad = copy / PREP / f"sub-02/func/sub-02_task-rest_run-02_{SPACE}_desc-preproc_bold.nii.gz"
    bad.write_bytes(bad.read_bytes()[:3000])
    bad.with_name(bad.name.replace("run-02", "run-01")).write_bytes(b"")
    scan = _read(copy, "sub-02", runs="join")
    assert isinstance(scan, Scan) and len(scan.series) == 100
    assert scan.note.startswith("1 of 3 runs joined; left out: unreadable image: sub-02_task-rest")
    assert scan.note.count("unreadable image") == 2


def test_session_is_chosen_or_a_reason(data):
    reason = _found(data)["sub-03"]["excluded"]
    assert reason == "several sessions: base, later; choose one with source.session"
    found = _found(data, session="later")
    assert "ses-later" in found["sub-03"]["source"] and not found["sub-03"]["excluded"]
    assert found["sub-01"]["excluded"] == (
        f"missing file: {PREP}/sub-01/ses-later/func/"
        f"sub-01_ses-later_task-rest_{SPACE}_desc-preproc_bold.nii.gz"
    )


def test_two_files_for_one_run_are_ambiguous(data):
    reason = _found(data)["sub-04"]["excluded"]
    assert reason.startswith("ambiguous scan: sub-04") and "source.entities" in reason
    assert "_res-2_" in _found(data, entities={"res": 2})["sub-04"]["source"]


def test_paths_cannot_be_smuggled_in(data, tmp_path):
    copy = tmp_path / "data"
    shutil.copytree(data / "small" / "atlas", copy / "small" / "atlas")
    table = (data / "small" / "participants.tsv").read_text()
    (copy / "small" / "participants.tsv").write_text(table.replace("sub-01", "../../etc"))
    with pytest.raises(BrioError, match=r"has the subject '\.\./\.\./etc'"):
        _found(copy)


class TestReadySeries:
    """Series that other programs have averaged already, in the same layout."""

    @pytest.fixture
    def ready(self, tmp_path):
        folder = tmp_path / "small"
        func = folder / "derivatives" / "fmriprep" / "sub-01" / "func"
        func.mkdir(parents=True)
        values = np.random.default_rng(0).normal(size=(70, 4)).round(4).astype(str)
        values[:, 2] = "n/a"
        values[5, 0] = "n/a"
        lines = ["\t".join(("LH_A", "LH_B", "RH_A", "RH_B")), *("\t".join(row) for row in values)]
        for atlas in ("AAL", "Other"):
            name = f"sub-01_task-rest_{SPACE}_seg-{atlas}_stat-mean_timeseries"
            (func / f"{name}.tsv").write_text("\n".join(lines) + "\n")
            (func / f"{name}.json").write_text('{"SamplingFrequency": 0.5}')
        (func / "sub-01_task-rest_desc-confounds_timeseries.tsv").write_text("csf\n1\n")
        rows = "participant_id\tsite\tgroup\n01\tA\tcase\n02\tA\tcontrol\n"
        (folder / "participants.tsv").write_text(rows)
        dataset = bids_dataset(timeseries={"seg": "AAL", "stat": "mean"})
        del dataset["source"]["atlas"]
        return tmp_path, dataset

    def test_are_found_and_read(self, ready):
        data, dataset = ready
        source = open_reader(dataset, data)
        first, second = find_candidates(source)
        assert first["source"].endswith("_seg-AAL_stat-mean_timeseries.tsv")
        assert (first["tr"], first["excluded"]) == ("2.0", "")
        assert second["excluded"].startswith("missing file: small/derivatives/fmriprep/sub-02/func")
        scan = next(extract_batch(source, [first]))[1]
        assert scan.series.shape == (69, 4) and scan.frames_before == 70
        assert (len(scan.dead), scan.names[0]) == (1, "LH_A")
        assert source.rois(scan.names).names == ("LH_A", "LH_B", "RH_A", "RH_B")


class TestStudies:
    """The shipped dataset files of SRPBS and ABCD on tables like those of the studies."""

    @pytest.fixture
    def study(self, load_dataset, tmp_path):
        def write(cohort, subjects, stem):
            dataset = load_dataset(cohort)
            dataset["source"]["atlas"] = {"image": "atlas/labels.nii.gz"}
            dataset["rois"] = {"expected": 4}
            folder = tmp_path / dataset["source"]["folder"]
            write_atlas(folder)
            for subject in subjects:
                place = folder / "derivatives/fmriprep" / f"sub-{subject}"
                session = dataset["source"].get("session")
                place = place / f"ses-{session}" if session else place
                write_run(place / "func", stem.format(subject), 70, seed=len(subject))
            return folder, dataset

        return write

    def test_srpbs(self, study, tmp_path):
        folder, dataset = study("srpbs-aal116", ("0001", "0002"), "sub-{}_task-rest_run-1")
        rows = ["participant_id\tprotocol\tsite\tdiag\tage\tsex"]
        rows += ["sub-0001\t1\tSWA\t0\t30\t1", "sub-0002\t9\tHUH\t2\t41\t2"]
        rows += ["sub-0003\t1\tSWA\t4\t25\t1", "sub-0004\t5\tUTO\t0\t25\t1"]
        (folder / "participants.tsv").write_text("\n".join(rows) + "\n")
        found = {c["subject"]: c for c in find_candidates(open_reader(dataset, tmp_path))}
        assert [found[f"sub-000{n}"]["label"] for n in (1, 2)] == ["0", "1"]
        assert (found["sub-0001"]["site"], found["sub-0001"]["excluded"]) == ("SWA", "")
        assert found["sub-0003"]["excluded"] == "not selected: diag is 4"
        assert found["sub-0004"]["excluded"].startswith("missing file")
        dataset["inclusion"]["select"] |= {"protocol": [1, 9]}
        found = {c["subject"]: c for c in find_candidates(open_reader(dataset, tmp_path))}
        assert found["sub-0004"]["excluded"] == "not selected: protocol is 5"
        dataset["inclusion"]["select"] |= {"scanner": ["A"]}
        with pytest.raises(BrioError, match=r"no column 'scanner'; correct inclusion\.select"):
            find_candidates(open_reader(dataset, tmp_path))

    def test_abcd(self, study, tmp_path):
        ids = ("NDARINV0A", "NDARINV0B", "NDARINV0C")
        stem = "sub-{}_ses-baselineYear1Arm1_task-rest_run-01"
        folder, dataset = study("abcd-aal116", ids, stem)
        rows = [f"sub-{name}\t9.5\tF" for name in ids]
        text = "\n".join(["participant_id\tage\tsex", *rows]) + "\n"
        (folder / "participants.tsv").write_text(text)
        (folder / "tables").mkdir()
        lines = ["src_subject_id,eventname,site_id_l,rel_family_id"]
        for name, site in (("NDAR_INV0A", "site01"), ("NDAR_INV0B", "site02")):
            lines += [f"{name},baseline_year_1_arm_1,{site},7", f"{name},2_year_follow_up,siteXX,7"]
        (folder / "tables" / "abcd_y_lt.csv").write_text("\n".join(lines) + "\n")
        diagnosis = folder / "tables" / "diagnosis.tsv"
        diagnosis.write_text(
            "src_subject_id\tdiagnosis\nNDAR_INV0A\tADHD\nNDAR_INV0B\tHC\nNDAR_INV0C\tHC\n"
        )
        first, second, third = find_candidates(open_reader(dataset, tmp_path))
        assert (first["site"], first["label"], first["group"]) == ("site01", "1", "7")
        assert (second["site"], second["label"], second["excluded"]) == ("site02", "0", "")
        assert "ses-baselineYear1Arm1" in first["source"]
        assert third["excluded"] == "missing phenotype: no site_id_l"
        diagnosis.write_text(diagnosis.read_text() + "NDAR_INV0A\tHC\n")
        with pytest.raises(BrioError, match=r"diagnosis\.tsv has several rows for subject NDAR_"):
            find_candidates(open_reader(dataset, tmp_path))
        dataset["source"]["tables"][1]["columns"] = ["adhd"]
        with pytest.raises(BrioError, match=r"diagnosis\.tsv has no column 'adhd'"):
            find_candidates(open_reader(dataset, tmp_path))


@pytest.mark.parametrize(
    ("setting", "dropped"),
    [
        ({"strategy": ["motion"], "motion": "basic"}, 0),
        ({"strategy": ["motion", "scrub"], "motion": "basic", "scrub": 0, "fd_threshold": 0.5}, 3),
        ({"strategy": ["compcor", "high_pass"], "compcor": "anat_combined", "n_compcor": 2}, 0),
        ({"strategy": ["wm_csf", "global_signal"], "global_signal": "basic"}, 0),
        ({"denoise_strategy": "simple", "motion": "basic", "global_signal": "basic"}, 0),
    ],
    ids=["motion", "scrubbing", "compcor", "global signal", "ready strategy"],
)
def test_confounds_are_those_of_nilearn(data, setting, dropped):
    simple = ("high_pass", "motion", "wm_csf", "global_signal")
    options = dict(setting)
    strategy = options.pop("strategy", None) or simple * bool(options.pop("denoise_strategy"))
    scan = _read(data, "sub-01", confounds=setting)
    path = data / PREP / f"sub-01/func/sub-01_task-rest_{SPACE}_desc-preproc_bold.nii.gz"
    plain = _read(
        data, "sub-01", confounds={"strategy": []}, cleaning={"detrend": False, "standardize": None}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        confounds, kept = load_confounds(str(path), strategy=tuple(strategy), **options)
        expected = clean(
            plain.series.astype(float), confounds=confounds, sample_mask=kept, detrend=True,
            standardize="zscore_sample", filter=False,
        )  # fmt: skip
    assert len(scan.series) == 80 - dropped
    np.testing.assert_allclose(scan.series, expected, atol=2e-3)


def test_confounds_that_cannot_be_used_are_reasons(data):
    found = _read(data, "sub-01", confounds={"strategy": ["ica_aroma"], "ica_aroma": "full"})
    assert str(found).startswith("unusable confounds: ")
    with pytest.raises(BrioError, match="has strategy and denoise_strategy; keep one"):
        _found(data, confounds={"strategy": ["motion"], "denoise_strategy": "simple"})


class TestFetchedAtlas:
    """nilearn's fetchers on folders that are filled already; there is no network."""

    def test_aal(self, data, tmp_path):
        copy = tmp_path / "data"
        shutil.copytree(data, copy)
        folder = copy / "atlases" / "aal_SPM12" / "aal" / "atlas"
        save(folder / "AAL.nii", labels())
        entry = "<label><index>{}</index><name>{}</name></label>"
        names = {2001: "Precentral_L", 2002: "Precentral_R", 2101: "Frontal_L", 9170: "Vermis_10"}
        text = "".join(entry.format(*pair) for pair in names.items())
        (folder / "AAL.xml").write_text(f"<atlas><data>{text}</data></atlas>")
        atlas = {"fetch": "aal", "options": {"version": "SPM12"}}
        source = open_reader(bids_dataset(atlas=atlas), copy)
        source.check()
        rois = source.rois(())
        assert rois.names == tuple(names.values())
        assert rois.hemispheres == ("L", "R", "L", "n/a")
        np.testing.assert_allclose(rois.centroids[0], [7.5, 7.5, 3])
        own = open_reader(bids_dataset(), copy)
        assert own.provenance()["atlas_sha256"] == source.provenance()["atlas_sha256"]

    def test_one_of_several_parcellations(self, data, tmp_path):
        volumes = np.stack([np.minimum(labels(), 1), labels()], axis=3)
        save(tmp_path / "atlases/craddock_2012/tcorr05_2level_all.nii.gz", volumes)
        (tmp_path / "small").symlink_to(data / "small")
        options = {"homogeneity": "temporal", "grp_mean": False}
        atlas = {"fetch": "craddock_2012", "options": options, "volume": 1}
        source = open_reader(bids_dataset(atlas=atlas), tmp_path)
        assert source.rois(()).names[0] == "ROI 2001" and len(source.atlas.regions.rois) == 4
        del atlas["volume"]
        with pytest.raises(BrioError, match=r"has 4 dimensions .* source\.atlas\.volume"):
            _ = open_reader(bids_dataset(atlas=atlas), tmp_path).atlas

    def test_names_and_options_that_nilearn_does_not_know(self, data):
        with pytest.raises(BrioError, match="nilearn has no atlas 'aall'; choose one of aal, "):
            _found(data, atlas={"fetch": "aall"})
        with pytest.raises(BrioError, match=r"source\.atlas\.options do not suit atlas 'aal'"):
            _found(data, atlas={"fetch": "aal", "options": {"version": "SPM99"}})
