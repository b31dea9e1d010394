"""series.h5 and fc.h5: what they say about themselves, and what a damaged one says."""

import json
from concurrent.futures import ProcessPoolExecutor

import h5py
import numpy as np
import pytest

from brio_core.cohorts.stores import Rois, read_fc, read_series, write_fc, write_series
from brio_core.system.errors import BrioError
from brio_core.system.sealed import seal

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
        with pytest.raises(BrioError, match=rf"{files[position].name} is cut off; delete it"):
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
