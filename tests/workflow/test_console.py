"""The screen: a line per finished job, the answer at the end, everything else in the log file."""

import logging
import re
from types import SimpleNamespace

import pytest
from docutils.core import publish_parts
from snakemake_interface_logger_plugins.common import LogEvent

from workflow.planning import console
from workflow.planning.loading import load


def record(event=None, msg=None, level=logging.INFO, **words):
    made = logging.LogRecord("snakemake", level, "", 0, msg, None, None)
    vars(made).update(event=event, **words)
    return made


def job(rule: str, output=("file",)):
    return SimpleNamespace(rule=SimpleNamespace(name=rule), output=output)


class Clock:
    """Jobs of ``train`` that run one after the other, on a clock that the test turns."""

    def __init__(self, monkeypatch, jobs):
        self.now, self.jobs, self.total = 0.0, list(jobs), len(jobs)
        monkeypatch.setattr(console.time, "monotonic", lambda: self.now)
        settings = SimpleNamespace(quiet=None, show_failed_logs=True)
        dag = SimpleNamespace(needrun_jobs=lambda: list(self.jobs))
        self.console = console.Console(SimpleNamespace(output_settings=settings, dag=dag))

    def finish(self, number, seconds, **wildcards):
        rule = self.jobs[0].rule.name
        started = record(LogEvent.JOB_INFO, jobid=number, rule_name=rule, output=["file"],
                         wildcards=wildcards)  # fmt: skip
        assert not self.console.filter(started)
        self.now += seconds
        assert not self.console.filter(record(LogEvent.JOB_FINISHED, job_id=number))
        progress = record(LogEvent.PROGRESS, done=number, total=self.total)
        assert self.console.filter(progress)
        line = self.console.format(progress)
        del self.jobs[0]
        return line


def test_a_line_says_what_how_long_how_many_and_what_is_left(monkeypatch):
    clock = Clock(monkeypatch, [job("split"), *[job("train")] * 3, job("all", ())])
    line = clock.finish(1, 2, cohort="demo")
    assert re.fullmatch(r"1 of 5  split demo +2 s", line), "no training has been timed yet"
    line = clock.finish(2, 300, cohort="demo", protocol="loso", variant="gcn", seed="0")
    assert re.fullmatch(r"2 of 5  train demo loso gcn seed 0 +5 min   about 10 min left", line)
    line = clock.finish(3, 100, seed="1")
    assert line.endswith("about 3 min left"), "the mean of 300 and 100 for the last one"
    assert not clock.finish(4, 100).endswith("left")
    clock.console.filter(
        record(LogEvent.JOB_INFO, jobid=5, rule_name="all", output=[], wildcards=())
    )
    clock.console.filter(record(LogEvent.JOB_FINISHED, job_id=5))
    assert clock.console.format(record(LogEvent.PROGRESS, done=5, total=5)) == "", "no program ran"


def test_what_is_shown_and_what_is_not(monkeypatch):
    screen = Clock(monkeypatch, []).console
    for event in (LogEvent.SHELLCMD, LogEvent.RESOURCES_INFO, LogEvent.WORKFLOW_STARTED):
        assert not screen.filter(record(event))
    assert not screen.filter(record(msg="Select jobs to execute..."))
    shown = ("Nothing to be done (…)", "Creating conda environment x", "Job 3 has been submitted")
    assert all(screen.filter(record(msg=text)) for text in shown)
    assert screen.filter(record(msg="Adding is hard", level=logging.ERROR))
    assert screen.filter(record(LogEvent.JOB_ERROR, level=logging.ERROR))
    said = 'RuleException:\nCalledProcessError in file "report.smk", line 128: …'
    assert not screen.filter(record(LogEvent.ERROR, said, logging.ERROR))
    assert screen.filter(record(LogEvent.ERROR, "WorkflowError: …", logging.ERROR))
    plan = record(LogEvent.RUN_INFO, stats={"split": 2, "train": 40, "total": 42})
    assert screen.format(plan) == "42 jobs: 40 train, 2 split"


@pytest.mark.parametrize("option", ["verbose", "printshellcmds", "debug_dag", "quiet"])
def test_whoever_asks_for_more_or_less_gets_snakemakes_own_lines(monkeypatch, option):
    handler = logging.NullHandler()
    handler.name = "DefaultStreamHandler"
    monkeypatch.setattr(console.logger, "handlers", [handler])
    keys = ("verbose", "printshellcmds", "debug_dag", "quiet", "show_failed_logs")
    settings = SimpleNamespace(**{key: key == option for key in keys})
    workflow = SimpleNamespace(output_settings=settings, dag=None)
    console.quieten(workflow)
    assert not handler.filters
    setattr(settings, option, False)
    console.quieten(workflow)
    assert isinstance(handler.formatter, console.Console)


def test_the_answer_is_that_of_the_summaries(tmp_path):
    words = {"cohorts": ["demo"], "methods": ["gcn", "brio"], "results": str(tmp_path / "out")}
    configuration = load(words)
    assert console.answers(configuration) == [], "nothing is there"
    path = tmp_path / "out/summaries/main/demo/loso.csv"
    path.parent.mkdir(parents=True)
    path.write_text(
        "variant,method,label,sites,auc_mean,auc_sites_low,auc_sites_high\n"
        "gcn,gcn,GCN,7,0.712,0.65,0.774\nbrio,brio,B*R*IO_,7,0.7,0.6,\nbrio-k2,brio,K,7,0.9,,\n"
    )
    (said,) = console.answers(configuration)
    assert "unseen sites: GCN has the highest mean AUC, 71.2 % [65.0, 77.4]; B*R*IO_ has" in said
    assert said.endswith("[60.0, –]. 7 sites, 2 methods.")
    (line,) = console.report_words(configuration)["answers"]
    assert publish_parts(line, writer="html")["body"] == f"<p>{said}</p>\n", "no markup"


def test_the_screen_has_a_line_per_job_and_the_log_file_all_of_it(finished):
    lines = finished.said.splitlines()
    jobs = [line for line in lines if re.match(r" *\d+ of \d+  \w", line)]
    counted = int(next(re.match(r"(\d+) jobs: ", line)[1] for line in lines if " jobs: " in line))
    assert len(jobs) == counted - 1, "all but the target"
    assert len(lines) <= counted + 12, finished.said
    assert max(map(len, lines)) < 300 and not any("reason:" in line for line in lines)
    assert any("Open results/index.html" in line for line in lines[-3:])
    (log,) = (finished.folder / ".snakemake" / "log").glob("*.log")
    assert "    reason: " in log.read_text() and "rule train:" in log.read_text()


def test_a_failure_is_a_line_and_its_log(monkeypatch, tmp_path):
    screen, log = Clock(monkeypatch, []).console, tmp_path / "train.log"
    words = {"jobid": 1, "rule_name": "train", "output": ["file"], "wildcards": {"seed": "0"}}
    screen.filter(record(LogEvent.JOB_INFO, **words))
    log.write_text("error: it diverged\n")
    more = {"msg": "", "rule_msg": "", "input": [], "conda_env": None, "aux": {}}
    failed = {**more, **words, "log": [str(log)], "shellcmd": "python train.py --params …"}
    lines = screen.format_job_error(failed).splitlines()
    assert lines[0] == "failed: train seed 0, after 0 s" and "error: it diverged" in lines
    assert not any("--params" in line for line in lines)
    log.unlink()
    assert "--params" in screen.format_job_error(failed), "nothing else tells why"
