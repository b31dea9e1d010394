"""The configuration: files, and assignments on the command line."""

import itertools
import re
from pathlib import Path

import pytest
import yaml

from workflow.planning.assignments import merged, read_assignments
from workflow.planning.files import ConfigurationError, read_yaml
from workflow.planning.loading import load
from workflow.planning.runs import resolved as resolved_configuration
from workflow.planning.schema import schema

ROOT = Path(__file__).resolve().parents[2]
STUDY = "studies/abide-cc200"
CONFIGS = ("config", "paper", "abide", f"{STUDY}/config")
FIVE_LINES = """\
cohort: mine
source: {kind: series, folder: mine, pattern: 'series/{subject}.tsv'}
columns: {subject: id, site: site, label: diagnosis}
label: {positive: patient, negative: control}
rois: {expected: 100}
"""


def configuration(name: str = "config", **changes):
    """A configuration of the repository; without a folder in its name, one of ``config``."""
    path = ROOT / (f"{name}.yaml" if "/" in name else f"config/{name}.yaml")
    return load({**read_yaml(path), **changes}, [path], changes)


@pytest.mark.parametrize("name", CONFIGS)
def test_shipped_configurations_are_valid(name):
    settings = configuration(name).config
    assert set(settings) == set(schema("config")["properties"]), "defaults fill every key"


@pytest.mark.parametrize("kind", ["config", "dataset", "method", "experiment"])
def test_every_key_is_described(kind):
    def walk(rules, path):
        for key, rule in rules.get("properties", {}).items():
            if rule:
                assert rule.get("description"), f"{kind}: {path}{key}"
                walk(rule, f"{path}{key}.")
                walk(rule.get("items", {}), f"{path}{key}[].")
        for branch in rules.get("allOf", ()):
            walk(branch["then"], path)

    assert schema(kind)["additionalProperties"] is False
    walk(schema(kind), "")


def test_own_data_in_five_lines(elsewhere):
    elsewhere("datasets", "mine", FIVE_LINES)
    dataset = configuration(cohorts=["mine"]).datasets["mine"]
    assert dataset["source"]["participants"] == "participants.tsv"
    assert dataset["inclusion"]["min_frames"] == 60
    assert dataset["tr"] is None


def test_repetition_times_by_site(elsewhere):
    elsewhere("datasets", "mine", FIVE_LINES + "tr: {'1': 2.0, c: 2}\n")
    assert configuration(cohorts=["mine"]).datasets["mine"]["tr"] == {"1": 2.0, "c": 2}


def test_a_configuration_file_replaces_the_demo():
    """No value of config.yaml may reach a run that names another file."""
    assert configuration("paper").config["overrides"] == {}
    assert configuration("paper").config["device"] == "auto"


def test_a_home_folder_is_found(monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    assert configuration(results="~/brio").config["results"] == "/home/someone/brio"


def test_settings_come_in_this_order(elsewhere, monkeypatch):
    # A method of this name has no code.
    monkeypatch.setattr("workflow.planning.checks._code", lambda *_: ())
    elsewhere(
        "methods",
        "mine",
        "method: mine\nlabel: M\ngroup: Ours\n"
        "presets: {common: {a: 1, b: 1, c: 1, d: 1, e: 1}, published: {b: 2, c: 2, d: 2, e: 2}}\n"
        "variants: {mine-e5: {label: M5, hyperparameters: {e: 5}}}\n",
    )
    overrides = {"all": {"c": 3, "d": 3, "epochs": 7}, "mine": {"d": 4, "e": 4}}
    resolved = configuration(methods=["mine"], experiments=["main"], preset="published",
                             overrides=overrides)  # fmt: skip
    params = resolved.train_params("mine-e5")
    assert params == {
        "method": "mine",
        "label": "M5",
        "group": "Ours",
        "hyperparameters": {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5},
        "search": {},
    }


def test_the_resolved_configuration_can_be_written():
    resolved = resolved_configuration(configuration("paper"))
    assert yaml.safe_load(yaml.safe_dump(resolved)) == resolved
    assert resolved["variants"]["brio-k16"]["hyperparameters"]["reestimates"] == 16


def test_presets_state_exactly_the_settings_of_the_code():
    from brio_core.methods import registry

    for preset in ("common", "published"):
        resolved = configuration("abide", preset=preset)
        for method in resolved.config["methods"]:
            settings = registry.find(method).Hyperparameters
            for variant in (method, *resolved.methods[method]["variants"]):
                settings.of(resolved.train_params(variant)["hyperparameters"], variant)


def test_the_demo_changes_settings_to_valid_ones():
    from brio_core.methods import registry

    resolved = configuration()
    for method in resolved.config["methods"]:
        registry.find(method).Hyperparameters.of(
            resolved.train_params(method)["hyperparameters"], method
        )


def test_the_reference_of_all_keys_is_up_to_date(tmp_path, run_script):
    assert run_script("manual", "--out", tmp_path / "made.md").returncode == 0
    made = (tmp_path / "made.md").read_text(encoding="utf-8")
    kept = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert kept == made, "run 'make pages'"
    assert "`cohorts` (list, required)" in made and "`n_compcor` (whole number or `all`)" in made


@pytest.mark.parametrize("kind", ["config", "dataset", "method", "experiment"])
def test_every_key_is_described_in_short_sentences(kind):
    def walk(rules, above):
        for key, rule in rules.get("properties", {}).items():
            path = (*above, key)
            if rule:
                for sentence in re.split(r"[.;] ", rule["description"]):
                    assert len(sentence.split()) <= 25, path
            walk(rule, path)
            walk(rule.get("items", {}), path)
        for branch in rules.get("allOf", ()):
            walk(branch["then"], above)

    walk(schema(kind), ())


def test_settings_are_searched_unless_somebody_fixes_them():
    def searched(variant="coral", **words):
        return load({"cohorts": ["demo"], **words}).train_params(variant)["search"]

    assert searched() == searched("gcn") == {}, "one try, unless more are asked for"
    assert list(searched(search=True)) == list(searched("coral-searched")) == ["penalty_weight"]
    assert list(searched("gcn", search=True)) == ["learning_rate"]
    assert searched("linear-correlation", search=True) == {}, "it chooses along a path"
    for words in ({"search": True}, {"variant": "coral-searched"}):
        assert searched(preset="published", **words) == {}
        assert searched(overrides={"coral": {"penalty_weight": 1.0}}, **words) == {}


def test_every_trained_method_has_as_many_tries():
    from brio_core.methods import registry

    resolved = configuration("abide")
    trained = {name: method for name, method in resolved.methods.items() if method["gpu"]}
    for name, method in resolved.methods.items():
        settings, search = resolved.train_params(name)["hyperparameters"], method["search"]
        tries = [dict(zip(search, values)) for values in itertools.product(*search.values())]
        assert len(tries) == (3 if name in trained else 1), f"{name}: three tries, like all others"
        assert {key: settings[key] for key in search} in tries, f"{name}: what is shipped is tried"
        for one in tries:
            registry.find(name).Hyperparameters.of(settings | one, name)


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
        ("smallest_cell=3", 3),
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
        ("smallest_cell=2024-13-01", "2024-13-01"),
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
    seeds = [job[-1] for job in jobs if job[:4] == ("train", "demo", "loso", "brio")]
    assert sorted("+".join(seeds).split("+")) == ["0", "1", "3"]
    (project.folder / "lines.yaml").write_text(LINES)
    assert project.plan("--configfile", "config/config.yaml", "lines.yaml") == jobs


def test_a_job_in_a_process_of_its_own_gets_the_same(after_demo):
    """Jobs of a cluster are given the words again, and check nothing."""
    (after_demo.folder / "results").rename(after_demo.folder / "2024_01")
    rules, job = ("diagnose", "train"), "cohort=demo,protocol=loso,variant=brio,seed=1+3"
    words = ("--mode", "subprocess", "--target-jobs", *(f"{rule}:{job}" for rule in rules))
    words += ("--allowed-rules", *rules, "--force", "--cores", "1", "--config", *WORDS)
    done = after_demo.snakemake(*words)
    assert done.returncode == 0, done.stdout
    for file in ("runs/{}/seed-3/meta.json", "logs/train/{}/seed-1+3.log"):
        assert (after_demo.folder / "2024_01" / file.format("demo/loso/brio")).exists()
