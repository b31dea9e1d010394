"""What is wrong is named, and then nothing is placed."""

import json
import os
import random
import shutil
import stat
import subprocess
import zipfile
from pathlib import Path

import pytest
from synthetic import make_cohort
from toy import DIAGNOSTICS, RUN, archive, plan_again, take, taken, work

from brio_core.cohorts.stores import write_fc
from brio_core.remote import take as taking
from brio_core.remote.plan import check_files, read_plan
from brio_core.system.errors import BrioError
from brio_core.system.files import read_json, write_json


def refuses(places, path, words, **options):
    with pytest.raises(BrioError, match=words) as error:
        take(path, **options)
    assert not taken(places), "not even what is right"
    return str(error.value)


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
        (lambda m: m | {"search": {"hidden": [7, 8]}}, "another 'hidden' in 'search'"),
        (lambda m: m | {"code": "0", "accepted": {"code": m["code"]}}, "'code' '0' instead of"),
    ],
)
def test_a_wrong_run_is_named(places, change, words):
    path = places / "there/results" / RUN / "meta.json"
    write_json(path, change(read_json(path)))
    assert "gcn/seed-0" in refuses(places, archive(places / "there"), words)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t[: t.rindex("\n", 0, -1) + 1], "does not test subject"),
        (lambda t: t.replace("s0c0n0", "stranger"), "does not test subject"),
        (lambda t: t[: t.rindex(",") + 1] + "inf\n", "not finite"),
        (lambda t: t[: t.rindex(",") + 1] + "9.5\n", "was changed after the run had written it"),
    ],
)
def test_wrong_predictions(places, change, words):
    path = places / "there/results" / RUN / "predictions.csv"
    path.write_text(change(path.read_text()))
    refuses(places, archive(places / "there"), words)


@pytest.mark.parametrize("name", ["predictions.csv", "history.csv", "meta.json"])
def test_incomplete_results(places, name):
    (places / "there/results" / RUN / name).unlink()
    refuses(places, archive(places / "there"), f"{name} does not exist")


def test_diagnostics_of_other_runs(places):
    path = places / "there/results" / DIAGNOSTICS / "folds.csv"
    path.write_text(path.read_text().replace("gcn,0,site0", "gcn,0,site9"))
    refuses(places, archive(places / "there"), r"folds\.csv was made of another run")


def test_nothing_is_taken_while_snakemake_works(places):
    lock = places / "home/.snakemake/locks/0.input.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    refuses(places, archive(places / "there"), "Snakemake is at work")


def member(name, kind=0):
    """A member of an archive; ``kind`` is that of a file in Unix."""
    one = zipfile.ZipInfo(name)
    one.create_system, one.external_attr = 3, (kind | 0o644) << 16
    return one


@pytest.mark.parametrize(
    "one",
    [
        member("../evil.csv"),
        member("/tmp/evil.csv"),
        member("runs/toy/loso/gcn/seed-0/../evil.csv"),
        member("runs/toy/loso/gat/seed-0/meta.json"),
        member("runs/toy/loso/gcn/seed-0/evil.py"),
        member("runs/toy/loso/gcn/seed-0/models.pt/"),
        member("runs/toy/loso/gcn/seed-0/deep/meta.json"),
        member("runs/toy/loso/gcn/seed-0/"),
        member(f"{RUN}/models.pt", stat.S_IFLNK),
        member(f"{RUN}/models.pt", stat.S_IFIFO),
        member(f"{RUN}/models.pt", stat.S_IFCHR),
        member(f"{RUN}/models.pt", stat.S_IFDIR),
    ],
    ids=[
        "parent", "absolute", "parent inside", "other run", "other file",
        "folder like a file", "deeper", "folder", "symbolic link", "pipe", "device",
        "kind of a folder",
    ],
)  # fmt: skip
def test_archives_are_not_trusted(places, one):
    path = archive(places / "there")
    with zipfile.ZipFile(path, "a") as zipped:
        zipped.writestr(one, "/etc/passwd")
    before = set(places.rglob("*"))
    refuses(places, path, "is no plain file of a planned job; pack the results again")
    assert set(places.rglob("*")) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda content: b"",
        lambda content: b"not an archive",
        lambda content: content[:3000],
        lambda content: content[:-10],
        lambda content: content[:200] + bytes(20) + content[220:],
    ],
    ids=["empty", "no archive", "cut off", "cut off at the end", "damaged"],
)
def test_broken_archives(places, change):
    path = archive(places / "there")
    path.write_bytes(change(path.read_bytes()))
    refuses(places, path, r"out\.zip cannot be read .*; fetch it again")


def test_an_archive_that_is_larger_than_the_disk(places, monkeypatch):
    path, full = archive(places / "there"), shutil._ntuple_diskusage(9, 9, 0)
    monkeypatch.setattr(taking.shutil, "disk_usage", lambda folder: full)
    refuses(places, path, "more than the disk has room for; make room")


def repacked(path, name, content, **options):
    """The archive with another content of a member."""
    with zipfile.ZipFile(path) as zipped:
        members = {one: zipped.read(one) for one in zipped.namelist()} | {name: content}
    with zipfile.ZipFile(path, "w", **options) as zipped:
        for one, bytes_ in members.items():
            zipped.writestr(one, bytes_)
    return path


@pytest.mark.parametrize("packing", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2], ids=["xz", "bzip2"])
def test_unusual_packing(places, packing):
    path = repacked(archive(places / "there"), f"{RUN}/meta.json", b"{}", compression=packing)
    refuses(places, path, "is no plain file of a planned job; pack the results again")


def test_a_bomb(places):
    bomb = {"compression": zipfile.ZIP_DEFLATED, "compresslevel": 9}
    path = repacked(archive(places / "there"), f"{RUN}/models.pt", bytes(1 << 27), **bomb)
    assert path.stat().st_size < 1 << 20
    refuses(places, path, "more than results can be packed in; pack the results again")


def test_damaged_contents(places):
    meta = read_json(places / "there/results" / RUN / "meta.json")
    wrong = ({"inputs": 3}, {"code": [], "inputs": {"x": []}}, {"folds": 7}, {"variant": {"x": 1}})
    whole = [json.dumps(meta | change) for change in wrong]
    path = archive(places / "there")
    for content in ("[]", '"cohort"', "1", "[" * 100_000, "1" * 5000, *whole):
        repacked(path, f"{RUN}/meta.json", content)
        refuses(places, path, r"meta\.json|is damaged|was made with")


def test_corrupted_files(places):
    """Bytes of packed files are changed, not those of the archive, whose checksum would tell."""
    generator, path = random.Random(0), archive(places / "there")
    with zipfile.ZipFile(path) as zipped:
        members = {one: zipped.read(one) for one in zipped.namelist()}
    refused = 0
    for _ in range(30):
        name = generator.choice(sorted(members))
        content = bytearray(members[name])
        for _ in range(generator.choice((1, 5, 50))):
            content[generator.randrange(len(content))] = generator.randrange(256)
        repacked(path, name, bytes(content[: generator.choice((len(content), 100))]))
        try:
            take(path)
        except BrioError as error:
            refused += 1
            assert "\n" not in str(error)
            continue
        for folder in ("runs", "diagnostics"):
            shutil.rmtree(places / "home/results" / folder)
    assert refused > 20


def test_what_killed_imports_left_goes(places):
    results = places / "home/results"
    child = subprocess.Popen(["sleep", "0"])
    child.wait()
    left, own = (results / f"{taking._OURS}{number}-x" for number in (child.pid, os.getpid()))
    for folder in (left, own):
        (folder / "runs").mkdir(parents=True)
    take(archive(places / "there"))
    assert not left.exists() and own.exists(), "another import may be at work"


def test_a_plan_of_something_else(places):
    content = {"results": "", "config": {}, "jobs": [{"x": 1}], "files": {}, "configfiles": []}
    write_json(places / "x.json", content)
    with pytest.raises(BrioError, match=r"x\.json is no plan"):
        read_plan(places / "x.json")


def test_other_code_there(places):
    plan = read_plan(places / "there/plan.json")
    plan.files["scripts/train.py"] = "other"
    with pytest.raises(BrioError, match=r"train\.py is not that of the plan"):
        check_files(plan, places / "there")


def test_other_code_here_is_accepted_on_request_only(places, monkeypatch):
    path = archive(places / "there")
    monkeypatch.setattr(taking, "program_version", lambda *_: "other")
    refuses(places, path, "'code' '.*' instead of 'other'")
    assert take(path, accept=["code"]) == "3 jobs taken, 0 of the plan are left"
    meta = read_json(places / "home/results" / RUN / "meta.json")
    assert meta["code"] != "other" and meta["accepted"] == {"code": "other"}


def test_other_files_of_the_cohort_are_accepted_on_request_only(places):
    there = places / "there"
    plan, path = read_plan(there / "plan.json"), there / "results/cohorts/toy/fc.h5"
    cohort, _ = make_cohort(n_sites=5, per_class=3)
    path.unlink()
    write_fc(path, cohort.subjects, cohort.fc * 0.5)
    assert len(plan.unfinished(there / "results")) == 3, "all was made of other connectivity"
    with pytest.raises(BrioError, match=r"fc\.h5 is not that of the plan"):
        check_files(plan, there)
    check_files(plan, there, other_inputs=True)
    assert work(there) == []
    path = archive(there)
    refuses(places, path, r"another 'fc\.h5' in 'inputs'")
    take(path, accept=["inputs"])
    assert all(job.done for job in plan_again().jobs), "what was accepted is not planned again"


def test_another_split_here_makes_results_stale(places):
    path, split = archive(places / "there"), Path("results/splits/toy/loso.json")
    content = read_json(split)
    content["folds"] = content["folds"][1:]
    write_json(split, content)
    refuses(places, path, "damaged or edited")


def test_another_cohort_here_makes_results_stale(places):
    path, table = archive(places / "there"), Path("results/cohorts/toy/participants.tsv")
    table.write_text(table.read_text().replace("n/a", "m", 1))
    refuses(places, path, r"another 'participants\.tsv' in 'inputs'")
