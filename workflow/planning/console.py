"""What Snakemake says while jobs run: a line per finished job; the answer at the end.

Snakemake's own lines are in its log file as ever, and on the screen with ``--verbose``.
"""

import csv
import logging
import re
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from snakemake.logging import DefaultFormatter, get_event, logger, show_logs
from snakemake_interface_logger_plugins.common import LogEvent

from brio_core.reporting.catalogue import REFERENCE
from brio_core.reporting.table import duration, plural
from workflow.planning.configuration import Configuration
from workflow.planning.outputs import active_pairs

# What is left out: these events, and lines without an event that begin so.
_EVENTS = (
    LogEvent.WORKFLOW_STARTED, LogEvent.RESOURCES_INFO, LogEvent.JOB_STARTED, LogEvent.SHELLCMD,
    LogEvent.GROUP_INFO,
)  # fmt: skip
_LINES = (
    "Assuming unrestricted", "Building DAG", "Using shell", "Conda environments: ignored",
    "Group jobs: inactive", "Select jobs", "DAG of jobs will be updated", "Updating checkpoint",
    "Adding ", "Loading script", "Complete log", "Elapsed time", "Touching output",
    "Write-protecting",
)  # fmt: skip
_NAMED = ("seed", "batch")
_WIDTH = 48
# When the workflow was read; older versions of Snakemake keep no such time.
BEGUN = time.time()


class Console(DefaultFormatter, logging.Filter):
    """Filter and formatter of Snakemake's stream."""

    def __init__(self, workflow) -> None:
        settings = workflow.output_settings
        DefaultFormatter.__init__(self, settings.quiet, settings.show_failed_logs)
        logging.Filter.__init__(self)
        self._dag = lambda: workflow.dag
        self._begun = time.monotonic()
        self._started: dict[int, tuple[float, str, str]] = {}
        self._finished: list[int] = []
        self._took: dict[str, list[float]] = {}
        self._waiting: Counter[str] = Counter()
        self._total = -1

    def filter(self, record: logging.LogRecord) -> bool:
        """Remember when jobs start and end; let through what is worth a line."""
        event = get_event(record)
        if event == LogEvent.JOB_INFO:
            name = record.rule_name if record.output else ""
            self._started[record.jobid] = time.monotonic(), name, _what(record)
        elif event == LogEvent.JOB_FINISHED:
            self._finished.append(record.job_id)
        elif event == LogEvent.ERROR:
            # The command of a failed job, all of it; the log file has it.
            return "CalledProcessError in file" not in str(record.msg)
        elif event is None and record.levelno == logging.INFO:
            return not str(record.msg).startswith(_LINES)
        return event not in (LogEvent.JOB_INFO, LogEvent.JOB_FINISHED, *_EVENTS)

    def format_run_info(self, msg: dict) -> str:
        """The plan in one line."""
        stats = {name: number for name, number in msg["stats"].items() if name != "total"}
        rules = sorted(stats.items(), key=lambda one: -one[1])
        return f"{plural(sum(stats.values()), 'job')}: " + ", ".join(f"{n} {r}" for r, n in rules)

    def format_progress(self, msg: dict) -> str:
        """A line for every job that has just finished, with the time that is left."""
        now, done, total = time.monotonic(), msg["done"], msg["total"]
        if total != self._total:
            # After a checkpoint there may be fewer jobs; those that run count as waiting.
            self._total = total
            jobs = self._dag().needrun_jobs()
            self._waiting = Counter(job.rule.name for job in jobs if job.output)
        lines = []
        first = done - len(self._finished) + 1
        for number, job in enumerate(self._finished, first):
            start, rule, what = self._started.pop(job, (now, "", ""))
            if rule:
                self._took.setdefault(rule, []).append(now - start)
                self._waiting[rule] -= 1
                count = f"{number:{len(str(total))}} of {total}"
                took = duration(now - start)
                lines.append(f"{count}  {what:{_WIDTH}} {took:>6}{self._left(now)}".rstrip())
        self._finished.clear()
        return "\n".join(lines)

    def format_job_error(self, msg: dict) -> str:
        """What failed, and its log; without a log all that Snakemake knows."""
        logs = [log for log in msg["log"] if Path(log).is_file() and Path(log).stat().st_size]
        if not logs:
            return super().format_job_error(msg)
        start, _, what = self._started.pop(msg["jobid"], (time.monotonic(), "", msg["rule_name"]))
        head = f"failed: {what}, after {duration(time.monotonic() - start)}"
        return "\n".join([head, *(show_logs(logs) if self.show_failed_logs else logs)])

    def _left(self, now: float) -> str:
        """The time left, once most of the waiting jobs are of rules that have been timed."""
        waiting = +self._waiting
        timed = sum(number for rule, number in waiting.items() if rule in self._took)
        if not waiting or 2 * timed < waiting.total():
            return ""
        took = [one for rule in self._took.values() for one in rule]
        usual = {rule: sum(own) / len(own) for rule, own in self._took.items()}
        mean = sum(took) / len(took)
        left = sum(number * usual.get(rule, mean) for rule, number in waiting.items())
        # Jobs that ran side by side took less of the clock than their sum.
        share = min(1.0, (now - self._begun) / max(sum(took), 1e-9))
        return f"   about {duration(left * share)} left"


def _what(record: logging.LogRecord) -> str:
    """A job in words: its rule and what it is about."""
    words = dict(record.wildcards or {}).items()
    return " ".join([record.rule_name, *(f"{k} {v}" if k in _NAMED else v for k, v in words)])


def quieten(workflow) -> None:
    """Let Snakemake's stream say little, unless an option asks for more or for less."""
    settings = workflow.output_settings
    if settings.verbose or settings.quiet or settings.printshellcmds or settings.debug_dag:
        return
    console = Console(workflow)
    for handler in logger.handlers:
        # A logger plugin that writes to the stream takes its place.
        if handler.name == "DefaultStreamHandler":
            handler.setFormatter(console)
            handler.addFilter(console)


def tell_result(workflow, configuration: Configuration) -> None:
    """The end of a run: how long it took, the answer, and where to look."""
    paths, rules = configuration.paths, {job.rule.name for job in workflow.dag.needrun_jobs(False)}
    count = plural(workflow.scheduler.finished_jobs, "job")
    lines = [f"Finished {count} in {duration(time.time() - BEGUN)}."]
    if "index" in rules:
        lines += answers(configuration)
        lines.append(
            f"Open {paths.overview}. {paths.methods_text} is a methods section for your paper, "
            f"{paths.cohort('*', 'subjects.html')} shows every subject."
        )
    print("\n".join(["", *lines]), file=sys.stderr)


def report_words(configuration: Configuration) -> dict[str, list[str]]:
    """What the template of Snakemake's report finds in its configuration, as reStructuredText."""
    return {"answers": [re.sub(r"([^\w\s])", r"\\\1", line) for line in answers(configuration)]}


def answers(configuration: Configuration) -> list[str]:
    """By cohort, which method has the highest mean AUC on unseen sites, and what BRIO has."""
    found: dict[str, dict[str, dict]] = {}
    for experiment, cohort, protocol in active_pairs(configuration, changed=False):
        path = Path(configuration.paths.summary(experiment, cohort, protocol))
        with suppress(OSError, UnicodeDecodeError), open(path, encoding="utf-8") as stream:
            for row in csv.DictReader(stream) if protocol == "loso" else ():
                if row.get("auc_mean") and row["variant"] == row["method"]:
                    found.setdefault(cohort, {}).setdefault(row["variant"], row)
    return [_answer(configuration, *one) for one in found.items()]


def _answer(configuration: Configuration, cohort: str, rows: dict[str, dict]) -> str:
    best = max(rows.values(), key=lambda row: float(row["auc_mean"]))
    title = configuration.datasets[cohort].get("title", cohort)
    text = f"{title}, unseen sites: {best['label']} has the highest mean AUC, {_interval(best)}"
    if REFERENCE in rows and best["variant"] != REFERENCE:
        text += f"; {rows[REFERENCE]['label']} has {_interval(rows[REFERENCE])}"
    return f"{text}. {plural(int(float(best['sites'])), 'site')}, {plural(len(rows), 'method')}."


def _interval(row: dict) -> str:
    mean, low, high = (
        f"{100 * float(row[key]):.1f}" if row.get(key) else "–"
        for key in ("auc_mean", "auc_sites_low", "auc_sites_high")
    )
    return f"{mean} % [{low}, {high}]"
