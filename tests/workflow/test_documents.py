"""The target that makes documents, planned with stand-ins and run for real on a tiny cohort."""

import pandas as pd
import pytest

from brio_core.system.errors import BrioError
from tests.tiny import make_lab
from tests.workflow.test_experiment_runs import finish
from workflow.planning.documents import document_files, waiting
from workflow.planning.files import ConfigurationError
from workflow.planning.loading import load

PAGE = """# Demo

{{ value("main-loso", "brio", "auc") }}

{{ table("main-loso") }}

{{ figure("cohorts") }}
"""


def write_page(project, text: str = PAGE) -> None:
    folder = project.folder / "config/documents"
    folder.mkdir(exist_ok=True)
    (folder / "demo.md").write_text(text)


def test_a_document_needs_what_its_template_names_and_trains_nothing(after_demo):
    write_page(after_demo)
    after_demo.append("config/config.yaml", "\ndocuments: [demo]\n")
    assert after_demo.plan("document") == {("document",)}
    report = after_demo.folder / "results/report.html"
    before = report.stat().st_mtime_ns
    assert after_demo.snakemake("document", "--cores", "1").returncode == 0
    assert report.stat().st_mtime_ns == before, "that of the last full run"
    assert (after_demo.folder / "results/documents/demo.md").exists()
    assert ("document",) not in after_demo.plan("document")
    write_page(after_demo, PAGE + "More.\n")
    assert after_demo.plan("document") == {("document",)}, "another text"
    (after_demo.folder / "results/runs/demo/id/gcn/seed-0/predictions.csv").unlink()
    jobs = {job[0] for job in after_demo.plan("document")}
    assert "train" not in jobs, "the page shows unseen sites only"


def test_the_document_on_abide_can_be_planned(project):
    jobs = project.plan("document", "--configfile", "studies/abide-cc200/config.yaml")
    assert ("document",) in jobs and ("index",) not in jobs
    assert ("table", "claims") in jobs and ("figure", "diagnostics-abide-cc200") in jobs
    assert ("figure", "sites-abide-cc200") not in jobs, "it marks single subjects"
    assert ("train", "abide-cc200-all", "loso", "brio", "0") in jobs


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ('table("mian-loso")', "names the table 'mian-loso', which this configuration"),
        ('table("presets")', "which this configuration does not make"),
        ('figure("sites-demo")', "names the figure 'sites-demo', which this"),
    ],
)
def test_mistakes_are_found_while_planning(tmp_path, monkeypatch, call, problem):
    (tmp_path / "config/documents").mkdir(parents=True)
    (tmp_path / "config/documents/demo.md").write_text(f"\n{{{{ {call} }}}}\n")
    monkeypatch.chdir(tmp_path)
    resolved = load({"cohorts": ["demo"], "documents": ["demo"]})
    with pytest.raises(BrioError) as error:
        document_files(resolved)
    assert str(error.value).startswith("config/documents/demo.md, line 2: ")
    assert problem in str(error.value)


def test_what_has_no_results_waits_if_nothing_is_trained(tmp_path, monkeypatch):
    (tmp_path / "config/documents").mkdir(parents=True)
    page = tmp_path / "config/documents/demo.md"
    page.write_text('{{ table("presets") }} {{ figure("main-id") }} {{ table("main-loso") }}\n')
    monkeypatch.chdir(tmp_path)
    finish(tmp_path / "results", "loso", "gcn", 0)
    words = {"cohorts": ["demo"], "methods": ["gcn"], "documents": ["demo"]}
    resolved = load({**words, "untrained": "skip"})
    files = document_files(resolved)
    assert files["tables"] == ["results/tables/main-loso.csv"] and not files["figures"]
    assert {"presets", "main-id"} <= set(waiting(resolved)) and not waiting(load(words))
    page.write_text('{{ table("presetz") }}\n')
    with pytest.raises(BrioError, match="names the table 'presetz'"):
        document_files(resolved)


def test_a_mistake_stops_before_any_job(project):
    write_page(project, '{{ tabel("main-loso") }}\n')
    done = project.snakemake("document", "-n", "--config", "documents=[demo]")
    assert done.returncode == 1 and "Traceback" not in done.stdout
    assert (
        "error: config/documents/demo.md, line 1: 'tabel' is unknown; did you mean 'table'?"
        in done.stdout
    )


def test_a_configuration_without_documents_says_so():
    with pytest.raises(ConfigurationError, match="names no 'documents'"):
        document_files(load({"cohorts": ["demo"]}))


@pytest.mark.slow
def test_a_document_of_a_real_run(tmp_path):
    lab = make_lab(tmp_path / "lab", methods=["linear-correlation"], documents=["tiny"])
    page = lab.folder / "config/documents/tiny.md"
    page.parent.mkdir()
    page.write_text(
        'AUC {{ value("tiny", "linear-correlation", "auc") }}, the paper'
        ' {{ value("paper_vs_ours", "brio", "paper", table="loso", cohort="abide-cc200",'
        ' quantity="auc_mean") }}.\n\n{{ table("tiny") }}\n\n{{ figure("tiny") }}\n'
    )
    done = lab.snakemake("document", "--cores", "2")
    assert done.returncode == 0, done.stdout
    auc = pd.read_csv(lab.results / "tables/tiny.csv")["auc_mean"].item()
    text = (lab.results / "documents/tiny.md").read_text()
    assert f"AUC {100 * auc:.1f}, the paper 70.9." in text
    assert "(tiny/tiny.png)" in text and (lab.results / "documents/tiny/tiny.png").exists()
    words = ("--config", "untrained=skip", "documents=[tiny]")
    done = lab.snakemake("document", "--cores", "2", *words)
    assert done.returncode == 0, done.stdout
    again = (lab.results / "documents/tiny.md").read_text()
    made = "--config untrained=skip 'documents=[tiny]'`"
    assert made in again.splitlines()[0], "how the page was made, as one would type it"
    assert again.splitlines()[1:] == text.splitlines()[1:], "nothing was missing"
    page.write_text('{{ value("tiny", "linear-correlation", "auk") }}\n')
    done = lab.snakemake("document", "--cores", "2")
    assert done.returncode == 1 and "unknown column 'auk'" in done.stdout
    assert not (lab.results / "documents").exists()
