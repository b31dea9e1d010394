"""What the words of --config mean: the same as lines of a configuration file."""

import pytest
import yaml

from workflow.planning.assignments import merged, read_assignments
from workflow.planning.files import ConfigurationError
from workflow.planning.loading import load
from workflow.planning.schema import schema

WORDS = (
    "seeds=[0, 1]",
    "overrides={brio: {epochs: 100, learning_rate: 3.0e-4}}",
    "more_seeds={brio: [3]}",
    "allow_cpu=true",
    "results=2024_01",
)
LINES = """\
seeds: [0, 1]
overrides: {brio: {epochs: 100, learning_rate: 3.0e-4}}
more_seeds: {brio: [3]}
allow_cpu: true
results: '2024_01'
"""


def read(*words: str) -> dict:
    return read_assignments(words, schema("config"))


def test_words_are_read_like_lines_of_a_file():
    assert read(*WORDS) == yaml.safe_load(LINES)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("split_seed=3", 3),
        ("search=False", False),
        ("search=no", False),
        ("search=null", None),
        ("seeds=", None),
        ("seeds='[0]'", [0]),
        ('seeds=["0"]', ["0"]),
        ("diagnostics={scan_fractions: [0.5, 1], epsilon: 1.0e-1}",
         {"scan_fractions": [0.5, 1], "epsilon": 0.1}),
        ("experiment_seeds={main: [1], ablations: first}", {"main": [1], "ablations": "first"}),
        ("overrides={a: {b: {c: 1, d: ~, e: 'yes', f: 1e-4}}}",
         {"a": {"b": {"c": 1, "d": None, "e": "yes", "f": "1e-4"}}}),
        # What the schema wants to be text is text.
        ("results=12", "12"),
        ("results=012", "012"),
        ("results=3.10", "3.10"),
        ("results='12'", "12"),
        ("results=null", "null"),
        ("results=@home=1", "@home=1"),
        ("cohorts=[2001, no]", ["2001", "no"]),
        ("methods=[1]", ["1"]),
        ("variants=[2001]", ["2001"]),
        ("more_seeds={2001: [3], on: [4]}", {"2001": [3], "on": [4]}),
        ("external={m: {label: 1, predictions: [{split_checksum: 12345678}]}}",
         {"m": {"label": "1", "predictions": [{"split_checksum": "12345678"}]}}),
        # So is what is no YAML.
        ("seeds=[0, 1", "[0, 1"),
        ("seeds=&a [*a]", "&a [*a]"),
        ("overrides={[a]: 1}", "{[a]: 1}"),
        ("split_seed=2024-13-01", "2024-13-01"),
    ],
)  # fmt: skip
def test_a_word(word, value):
    found = read(word)[word.partition("=")[0]]
    assert found == value
    assert type(found) is type(value)


def test_words_are_merged_like_files():
    found = read("overrides={a: {x: 1}}", "seeds=[1, 2]", "overrides={a: {y: 2}}", "seeds=[3]")
    assert found == {"overrides": {"a": {"x": 1, "y": 2}}, "seeds": [3]}
    old = {"overrides": {"a": {"x": 0, "z": 0}, "b": {}}, "seeds": {"a": 1}}
    together = {"overrides": {"a": {"x": 1, "y": 2, "z": 0}, "b": {}}, "seeds": [3]}
    assert merged(old, found) == together


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("seeds={a: 1}", "'seeds' must be a list, not {'a': 1}"),
        ("seeds=[0,x]", "'seeds[1]' must be a whole number, not 'x'"),
        ("seeds=[0, 1", "'seeds' must be a list, not '[0, 1'"),
        ('seeds=["0"]', "'seeds[0]' must be a whole number, not '0'"),
        ("overrides=[1]", "'overrides' must be a mapping, not [1]"),
        ("overrides={gcn: {learning_rate: 1e-3}}", "it needs a point: 1.0e-4"),
        ("overrides={gcn: {epochs: 1, epochs: 2}}", "'overrides': key 'epochs' stands there twice"),
        ("more_seeds={brio: [x]}", "'more_seeds.brio[0]' must be a whole number, not 'x'"),
        ("allow_cpu=maybe", "'allow_cpu' must be true or false, not 'maybe'"),
        ("cohorts=[2001]", "unknown name '2001' in 'cohorts'"),
        ("seed=[1]", "unknown key 'seed'; did you mean 'seeds'?"),
    ],
)
def test_mistakes_in_words_are_named(word, message):
    with pytest.raises(ConfigurationError) as error:
        words = read(word)
        load({"cohorts": ["demo"]} | words, (), words)
    assert message in str(error.value)
    assert str(error.value).startswith("--config: ")
    assert "\n" not in str(error.value)


def test_a_plan_with_words_and_one_with_a_file(project):
    jobs = project.plan("--config", *WORDS)
    seeds = {job[-1] for job in jobs if job[:4] == ("train", "demo", "loso", "brio")}
    assert seeds == {"0", "1", "3"}
    (project.folder / "lines.yaml").write_text(LINES)
    assert project.plan("--configfile", "config/config.yaml", "lines.yaml") == jobs


def test_a_job_in_a_process_of_its_own_gets_the_same(after_demo):
    """Jobs of a cluster are given the words again, and check nothing."""
    (after_demo.folder / "results").rename(after_demo.folder / "2024_01")
    job = "train:cohort=demo,protocol=loso,variant=brio,seed=3"
    words = ("--mode", "subprocess", "--target-jobs", job, "--allowed-rules", "train", "--force")
    done = after_demo.snakemake(*words, "--cores", "1", "--config", *WORDS)
    assert done.returncode == 0, done.stdout
    assert (after_demo.folder / "2024_01/runs/demo/loso/brio/seed-3/predictions.csv").exists()
