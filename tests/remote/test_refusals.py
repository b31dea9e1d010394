"""What is wrong is named, and then nothing is placed."""

import io
import json
import tarfile
from pathlib import Path

import pytest
from handed_over import archive, pack_as_it_is, runs_at, take
from synthetic import make_cohort

from brio_core.cohorts.stores import write_fc
from brio_core.remote import plan as planning
from brio_core.remote import take as taking
from brio_core.remote.plan import prepare, read_plan
from brio_core.remote.work import Worker
from brio_core.system.errors import BrioError
from brio_core.system.files import read_json, write_json


def change_meta(places, change, cell="gcn"):
    path = places / f"there/results/runs/toy/loso/{cell}/seed-0/meta.json"
    write_json(path, change(read_json(path)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m | {"seed": 1}, "'seed' 1 instead of 0"),
        (lambda m: m | {"variant": "gat"}, "'variant' 'gat' instead of 'gcn'"),
        (lambda m: m | {"split_checksum": "0"}, "split_checksum"),
        (lambda m: m | {"code": "0"}, "'code' '0' instead of"),
        (
            lambda m: m | {"hyperparameters": m["hyperparameters"] | {"hidden": 7}},
            "another 'hidden' in",
        ),
        (lambda m: m | {"inputs": m["inputs"] | {"fc.h5": "0"}}, "another 'fc.h5' in 'inputs'"),
        (lambda m: m | {"tries": m["tries"] * 2}, "another search"),
        (lambda m: m | {"code": "0", "accepted": {"code": m["code"]}}, "says itself that it was"),
        (lambda m: {k: v for k, v in m.items() if k != "folds"}, "has no 'folds'"),
    ],
)
def test_a_wrong_cell_is_named_and_nothing_is_placed(places, programs, change, words):
    change_meta(places, change)
    with pytest.raises(BrioError, match=words) as error:
        take(pack_as_it_is(places), programs)
    assert "gcn/seed-0" in str(error.value)
    assert not runs_at(places), "not even the cells that are right"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t[: t.rindex("\n", 0, -1) + 1], "rows, but the split asks for"),
        (lambda t: t.replace("s0c0n0", "stranger"), "other subjects"),
        (lambda t: t[: t.rindex(",") + 1] + "inf\n", "not finite"),
        (lambda t: t[:-10], "damaged or cut off"),
    ],
)
def test_wrong_predictions(places, programs, change, words):
    path = places / "there/results/runs/toy/loso/gcn/seed-0/predictions.csv"
    path.write_text(change(path.read_text()))
    with pytest.raises(BrioError, match=words):
        take(pack_as_it_is(places), programs)
    assert not runs_at(places)


def test_nothing_is_taken_while_snakemake_works(places, programs):
    lock = places / "home/.snakemake/locks/0.input.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    with pytest.raises(BrioError, match="Snakemake is at work"):
        take(archive(places, programs), programs)
    assert not runs_at(places)


def test_diagnostics_of_other_cells(places, programs):
    folder = places / "there/results/diagnostics/toy/loso/gcn/seed-0"
    text = (folder / "folds.csv").read_text()
    (folder / "folds.csv").write_text(text.replace("gcn,0,site0", "gcn,0,site9"))
    with pytest.raises(BrioError, match=r"cells\.csv was made of another cell"):
        take(pack_as_it_is(places, [folder]), programs)
    assert not runs_at(places)


def rewrite(path, change):
    """Members of an archive after ``change`` of the list of (TarInfo, bytes)."""
    with tarfile.open(path) as tar:
        members = [(one, tar.extractfile(one).read()) for one in tar]
    with tarfile.open(path, "w") as tar:
        for member, content in change(members):
            tar.addfile(member, io.BytesIO(content))
    return path


def member(name, content=b"x", kind=tarfile.REGTYPE, link=""):
    one = tarfile.TarInfo(name)
    one.type, one.linkname, one.size = kind, link, len(content)
    return one, content


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: [*m, member("../evil.csv")], "does not belong to the plan"),
        (lambda m: [*m, member("/tmp/evil.csv")], "does not belong to the plan"),
        (lambda m: [*m, member("runs/toy/loso/gat/seed-0/meta.json")], "does not belong"),
        (lambda m: [*m, member("runs/toy/loso/gcn/seed-0/evil.py")], "does not belong"),
        (lambda m: [*m, m[-1]], "does not belong"),
        (
            lambda m: [*m, member(m[1][0].name, b"", tarfile.SYMTYPE, "/etc/passwd")],
            "is no plain file",
        ),
        (lambda m: [*m, member("x", b"", tarfile.LNKTYPE, m[1][0].name)], "is no plain file"),
        (lambda m: [*m, member("runs", b"", tarfile.DIRTYPE)], "is no plain file"),
        (lambda m: [*m, member("x", b"", tarfile.FIFOTYPE)], "is no plain file"),
        (lambda m: m[:-1], "is cut off"),
        (lambda m: m[1:], "was not made by"),
        (lambda m: [m[0], (m[1][0], m[1][1].replace(b"0", b"1")), *m[2:]], "was changed"),
        (lambda m: [(m[0][0], b"]" * m[0][0].size), *m[1:]], "cannot be read"),
    ],
    ids=[
        "parent", "absolute", "other cell", "other file", "twice", "symbolic link", "hard link",
        "folder", "pipe", "member lost", "no contents", "tampered", "broken contents",
    ],
)  # fmt: skip
def test_archives_are_not_trusted(places, programs, change, words):
    (path,) = archive(places, programs)
    before = {one for one in places.rglob("*")}
    with pytest.raises(BrioError, match=words):
        take([rewrite(path, change)], programs)
    assert {one for one in places.rglob("*")} == before


@pytest.mark.parametrize("content", [b"", b"not an archive", None])
def test_broken_archives(places, programs, content):
    (path,) = archive(places, programs)
    path.write_bytes(path.read_bytes()[:3000] if content is None else content)
    with pytest.raises(BrioError, match=r"out\.tar"):
        take([path], programs)
    assert not runs_at(places)


def test_a_file_named_in_the_contents_must_be_a_result(places, programs):
    (path,) = archive(places, programs)

    def smuggle(members):
        one = member("runs/toy/loso/gcn/seed-0/evil.py")
        contents = json.loads(members[0][1]) | {one[0].name: "0"}
        return [member("contents.json", json.dumps(contents).encode()), *members[1:], one]

    with pytest.raises(BrioError, match=r"evil\.py is no result"):
        take([rewrite(path, smuggle)], programs)


def test_changed_code_is_noticed_on_both_sides(places, programs, monkeypatch):
    (path,) = archive(places, programs)
    for module in (planning, taking):
        monkeypatch.setattr(module, "program_version", lambda *_, **__: "other")
    worker = Worker(read_plan(places / "there/plan.json"), places / "empty", programs)
    with pytest.raises(BrioError, match="is not what the plan was made with"):
        worker.check()
    with pytest.raises(BrioError, match="is not what the plan was made with"):
        take([path], programs)
    assert not runs_at(places)
    take([path], programs, same_code=False)
    meta = read_json(places / "home/results/runs/toy/loso/gcn/seed-0/meta.json")
    assert meta["code"] != "other" and meta["accepted"] == {"code": "other"}


def test_other_files_of_the_cohort_are_accepted_on_request_only(places, programs):
    plan = read_plan(places / "there/plan.json")
    root = places / "there/results"
    cohort, _ = make_cohort(n_sites=5, per_class=3)
    (root / "cohorts/toy/fc.h5").unlink()
    write_fc(root / "cohorts/toy/fc.h5", cohort.subjects, cohort.fc * 0.5)
    worker = Worker(plan, root, programs)
    assert len(worker.waiting) == 3, "all was made of other connectivity"
    with pytest.raises(BrioError, match=r"fc\.h5 is not the file that the plan was made with"):
        worker.check()
    worker.run(300, lambda job: [])
    assert not worker.failed
    (path,) = archive(places, programs)
    with pytest.raises(BrioError, match=r"another 'fc\.h5' in 'inputs'"):
        take([path], programs)
    take([path], programs, same_inputs=False)
    again = prepare(Path("results/handover/jobs.json"), programs, Path("results/handover"))
    assert not again.jobs, "what was accepted is not planned again"


def test_what_changed_at_home_makes_results_stale(places, programs):
    (path,) = archive(places, programs)
    table = Path("results/cohorts/toy/participants.tsv")
    text = table.read_text()
    table.unlink()
    table.write_text(text.replace("n/a", "m", 1))
    with pytest.raises(BrioError, match=r"another 'participants\.tsv' in 'inputs'"):
        take([path], programs)
