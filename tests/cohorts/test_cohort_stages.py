"""Connectivity, splits and block lengths as programs, and the files that they share."""

import json
from concurrent.futures import ProcessPoolExecutor

import h5py
import numpy as np
import pandas as pd
import pytest

from brio_core.cohorts.cohort import PARTICIPANT_COLUMNS
from brio_core.cohorts.stores import Rois, read_fc, read_series, write_fc, write_series
from brio_core.connectivity.fisher_z import fisher_z_connectivity
from brio_core.system.errors import BrioError
from brio_core.system.sealed import seal

SETTINGS = {
    "threshold": 0.10, "max_lag": 30, "subjects": 128, "rois": 24, "products": 48, "quantile": 0.75,
}  # fmt: skip


def make_cohort(folder, n_sites: int = 6):
    """Autocorrelated scans; the repetition time is known at all sites but the first."""
    generator = np.random.default_rng(0)
    rows, scans = [], []
    for site in range(n_sites):
        for number in range(8):
            tr = "n/a" if site == 0 else str(1 + site)
            rows.append((f"s{site}{number}", f"site{site}", number % 2, "n/a", "n/a", "n/a", tr,
                         "n/a", "made up"))  # fmt: skip
            noise = generator.standard_normal((50 + 3 * site, 6))
            for frame in range(1, len(noise)):
                noise[frame] += 0.7 * noise[frame - 1]
            scans.append(noise.astype(np.float32))
    table = pd.DataFrame(rows, columns=list(PARTICIPANT_COLUMNS))
    table.to_csv(folder / "participants.tsv", sep="\t", index=False)
    names = [f"roi{index}" for index in range(6)]
    write_series(folder / "series.h5", table["subject"], scans, Rois.named(names), {})
    return table, scans


def split_arguments(folder, protocol="loso", out="split.json"):
    return (
        "--participants", folder / "participants.tsv", "--cohort", "toy", "--protocol", protocol,
        "--split-seed", 0, "--out", folder / out,
    )  # fmt: skip


def length_arguments(folder, out="length.json", series="series.h5"):
    return (
        "--series", folder / series, "--participants", folder / "participants.tsv",
        "--split", folder / "split.json", "--settings", json.dumps(SETTINGS), "--out", folder / out,
    )  # fmt: skip


def test_connect(tmp_path, run_script):
    table, scans = make_cohort(tmp_path)
    result = run_script("connect", "--series", tmp_path / "series.h5", "--out", tmp_path / "fc.h5")
    assert result.returncode == 0, result.stderr
    subjects, fc = read_fc(tmp_path / "fc.h5")
    assert list(subjects) == table["subject"].tolist() and fc.dtype == np.float32
    for matrix, scan in zip(fc, scans, strict=True):
        np.testing.assert_allclose(
            matrix, fisher_z_connectivity(scan.astype(np.float64)), atol=1e-6
        )
    with h5py.File(tmp_path / "fc.h5") as store:
        assert store["fc"].chunks == (1, 6, 6)


def test_connect_names_what_is_missing(tmp_path, run_script):
    result = run_script("connect", "--series", tmp_path / "no.h5", "--out", tmp_path / "fc.h5")
    assert result.returncode == 1
    assert result.stderr.startswith("error: ") and "no.h5 does not exist" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_split_and_block_length(tmp_path, run_script):
    make_cohort(tmp_path)
    result = run_script("split", *split_arguments(tmp_path))
    assert result.returncode == 0, result.stderr
    split = json.loads((tmp_path / "split.json").read_text())
    assert [fold["name"] for fold in split["folds"]] == [f"site{site}" for site in range(6)]
    for out in ("length.json", "again.json"):
        result = run_script("blocklength", *length_arguments(tmp_path, out))
        assert result.returncode == 0, result.stderr
    assert (tmp_path / "length.json").read_bytes() == (tmp_path / "again.json").read_bytes()
    lengths = json.loads((tmp_path / "length.json").read_text())
    assert lengths["split_checksum"] == split["checksum"] and lengths["settings"] == SETTINGS
    for fold, length in zip(split["folds"], lengths["folds"], strict=True):
        assert length["name"] == fold["name"]
        assert length["block_length"] == int(length["estimate"] + 0.5) >= 2
        sites = sorted({int(split["site"][index][4:]) for index in fold["train"]} - {0})
        assert length["seconds"] == length["block_length"] * float(
            np.median([1 + e for e in sites])
        )


def test_block_length_sees_training_scans_only(tmp_path, run_script):
    table, scans = make_cohort(tmp_path)
    assert run_script("split", *split_arguments(tmp_path)).returncode == 0
    split = json.loads((tmp_path / "split.json").read_text())
    assert run_script("blocklength", *length_arguments(tmp_path)).returncode == 0
    before = json.loads((tmp_path / "length.json").read_text())["folds"][0]
    generator = np.random.default_rng(1)
    held_back = split["folds"][0]["test"] + split["folds"][0]["validation"]
    for index in held_back:
        scans[index] = generator.standard_normal(scans[index].shape).cumsum(0)
    rois = Rois.named(f"roi{index}" for index in range(6))
    write_series(tmp_path / "other.h5", table["subject"], scans, rois, {})
    result = run_script("blocklength", *length_arguments(tmp_path, series="other.h5"))
    assert result.returncode == 0, result.stderr
    after = json.loads((tmp_path / "length.json").read_text())["folds"]
    assert after[0] == before


@pytest.mark.parametrize("protocol", ["loso", "id"])
def test_too_few_sites_is_an_error_for_loso_alone(tmp_path, run_script, protocol):
    make_cohort(tmp_path, n_sites=4)
    result = run_script("split", *split_arguments(tmp_path, protocol))
    if protocol == "id":
        assert result.returncode == 0, result.stderr
    else:
        assert result.returncode == 1 and "at least 5 usable sites" in result.stderr
        assert not (tmp_path / "split.json").exists()


def test_block_length_refuses_files_of_another_cohort(tmp_path, run_script):
    make_cohort(tmp_path)
    assert run_script("split", *split_arguments(tmp_path)).returncode == 0
    make_cohort(tmp_path, n_sites=5)
    result = run_script("blocklength", *length_arguments(tmp_path))
    assert result.returncode == 1 and "list different subjects" in result.stderr


ROIS = Rois.named(f"roi{index}" for index in range(5))


@pytest.fixture
def scans():
    draw = np.random.default_rng(0)
    return [draw.normal(size=(60 + 7 * n, 5)).astype(np.float32) for n in range(12)]


@pytest.fixture
def files(tmp_path, scans):
    subjects = [f"s{n}" for n in range(len(scans))]
    write_series(tmp_path / "series.h5", subjects, scans, ROIS, {"units": "mK", "brio": "1"})
    matrices = [np.corrcoef(scan.T) for scan in scans]
    write_fc(tmp_path / "fc.h5", subjects, matrices, {"rule": "r"})
    return tmp_path / "series.h5", tmp_path / "fc.h5", np.stack(matrices).astype(np.float32)


def test_what_is_written_is_read(files, scans):
    series, (subjects, fc) = read_series(files[0]), read_fc(files[1])
    assert series.subjects == subjects == tuple(f"s{n}" for n in range(12))
    for index, scan in enumerate(scans):
        np.testing.assert_array_equal(series.scan(index), scan)
    np.testing.assert_array_equal(fc, files[2])
    assert series.provenance == {"units": "mK", "brio": "1"}


def test_files_describe_themselves(files):
    with h5py.File(files[0]) as store:
        bold = store["bold"]
        assert (bold.chunks, bold.compression, bold.fletcher32) == ((256, 5), "gzip", True)
        assert (bold.dtype, bold.attrs["units"], bold.attrs["axes"]) == (
            "f4",
            "mK",
            "frames by ROIs",
        )
        assert store["roi_centroid"].attrs["units"] == "mm"
    with h5py.File(files[1]) as store:
        fc = store["fc"]
        assert (fc.chunks, fc.compression, fc.fletcher32) == ((1, 5, 5), "gzip", True)
        assert fc.attrs["units"].startswith("Fisher z") and fc.attrs["dtype"] == "float32"
        assert json.loads(store.attrs["provenance"]) == {"rule": "r"}


@pytest.mark.parametrize(("position", "read"), [(0, read_series), (1, read_fc)])
class TestDamage:
    def test_cut_off(self, files, position, read):
        content = files[position].read_bytes()
        files[position].write_bytes(content[: len(content) // 2])
        with pytest.raises(BrioError, match=rf"{files[position].name} is cut off; .*delete it"):
            read(files[position])

    def test_changed_bytes(self, files, position, read):
        path = files[position]
        with h5py.File(path) as store:
            data = store["bold" if position == 0 else "fc"]
            chunk = data.id.get_chunk_info(0)
        content = bytearray(path.read_bytes())
        for place in range(chunk.byte_offset + 20, chunk.byte_offset + 40):
            content[place] ^= 0xFF
        path.write_bytes(content)
        with pytest.raises(BrioError, match=rf"{path.name} is damaged .*; delete it"):
            read(path)

    def test_foreign_files(self, files, position, read):
        path = files[position]
        for content in (b"", b"text"):
            path.write_bytes(content)
            with pytest.raises(BrioError, match=r"is not a readable HDF5 file|is cut off"):
                read(path)
        with h5py.File(path, "w") as store:
            store["bold"] = np.zeros(3)
        with pytest.raises(BrioError, match="was not written as brio-"):
            read(path)

    def test_file_of_the_other_kind(self, files, position, read):
        with pytest.raises(BrioError, match=r"\.h5 was not written as brio-"):
            read(files[1 - position])

    def test_part_that_is_missing(self, files, position, read):
        with h5py.File(files[position], "a") as store:
            del store["bold" if position == 0 else "fc"]
        seal(files[position])
        with pytest.raises(BrioError, match="is damaged"):
            read(files[position])

    def test_parts_that_do_not_fit(self, files, position, read):
        with h5py.File(files[position], "a") as store:
            if position == 0:
                store["bold"].resize(100, axis=0)
            else:
                del store["subject"]
                store.create_dataset("subject", data=["s0"], dtype=h5py.string_dtype())
        seal(files[position])
        with pytest.raises(BrioError, match="its parts do not fit together"):
            read(files[position])


def test_nothing_half_written(tmp_path, scans):
    def interrupted():
        yield scans[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_series(tmp_path / "series.h5", ["a", "b"], interrupted(), ROIS, {})
    assert list(tmp_path.iterdir()) == []


def _total(path):
    return float(np.asarray(read_series(path).bold).sum())


def test_many_readers_at_once(files):
    with ProcessPoolExecutor(4) as pool:
        assert len(set(pool.map(_total, [files[0]] * 8))) == 1
