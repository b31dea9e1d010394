"""What the configuration resolves to, and what is said about mistakes in it."""

import itertools
from pathlib import Path

import pytest
import yaml

from workflow.lib.configuration import load
from workflow.lib.files import ConfigurationError, read_yaml
from workflow.lib.schema import schema

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ("config", "paper", "abide", "abide-cc200")
FIVE_LINES = """\
cohort: mine
source: {kind: series, folder: mine, pattern: 'series/{subject}.tsv'}
columns: {subject: id, site: site, label: diagnosis}
label: {positive: patient, negative: control}
rois: {expected: 100}
"""


def configuration(name: str = "config", **changes):
    path = ROOT / "config" / f"{name}.yaml"
    return load({**read_yaml(path), **changes}, [path], changes)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A working directory whose own config folder comes before that of the repository."""
    monkeypatch.chdir(tmp_path)

    def write(kind: str, name: str, text: str) -> None:
        path = tmp_path / "config" / kind / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    return write


@pytest.mark.parametrize("name", CONFIGS)
def test_shipped_configurations_are_valid(name):
    settings = configuration(name).settings
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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cohort": ["demo"]}, "unknown key 'cohort'; did you mean 'cohorts'?"),
        ({"block_length": {"treshold": 0.1}}, "unknown key 'block_length.treshold'; did you mean"),
        ({"seeds": []}, "'seeds' is empty"),
        ({"seeds": [0, 0]}, "'seeds' names 0 twice"),
        ({"seeds": [-1]}, "'seeds[0]' must be at least 0, not -1"),
        ({"more_seeds": {"brio": [1, 1]}}, "'more_seeds.brio' names 1 twice"),
        ({"more_seeds": {"brio": [0]}}, "'more_seeds.brio' repeats 0, which is one of 'seeds'"),
        ({"more_seeds": {"brioo": [5]}}, "unknown variant 'brioo'; did you mean 'brio'?"),
        (
            {"experiment_seeds": {"mian": "first"}},
            "unknown experiment 'mian'; did you mean 'main'?",
        ),
        ({"protocol_seeds": {"lodo": "first"}}, "unknown key 'protocol_seeds.lodo'"),
        ({"protocol_seeds": {"id": "last"}}, "'protocol_seeds.id' cannot be 'last'; it means:"),
        (
            {"documents": ["x"]},
            "unknown name 'x' in 'documents', there is no config/documents/x.md",
        ),
        ({"split_seed": "zero"}, "'split_seed' must be a whole number, not 'zero'"),
        ({"device": "tpu"}, "'device' must be one of auto, cpu, cuda, not 'tpu'"),
        (
            {"methods": "some"},
            "'methods' cannot be 'some'; it means: 'all', 'implemented' or a list",
        ),
        ({"cohorts": ["dmeo"]}, "unknown name 'dmeo' in 'cohorts', there is no config/datasets/"),
        ({"methods": ["gnc"]}, "unknown name 'gnc' in 'methods'"),
        ({"experiments": ["mian"]}, "did you mean 'main'?"),
        (
            {"overrides": {"brioo": {}}},
            "unknown method 'brioo' in 'overrides'; did you mean 'brio'",
        ),
        ({"overrides": {"gcn": {"factors": 2}}}, "overrides.gcn: unknown setting 'factors'"),
        ({"overrides": {"all": {"epoch": 2}}}, "overrides.all: unknown setting 'epoch'; did you"),
        ({"overrides": {"gcn": {"learning_rate": "1e-3"}}}, "it needs a point: 1.0e-4"),
        ({"overrides": {"gcn": {"epochs": 2.5}}}, "'epochs' must be like 200, not 2.5"),
        ({"overrides": {"gcn": {"dropout": 1.5}}}, "overrides.gcn: dropout is 1.5, but must be"),
        ({"overrides": {"all": {"batch_size": 0}}}, "batch_size is 0, but must be above 0"),
        ({"methods": ["gcn"], "experiments": ["ablations"]}, "'ablations' has nothing to run"),
        ({"variants": ["brio-k3"]}, "unknown variant 'brio-k3' in 'variants'; did you mean 'brio-"),
        ({"diagnostics": {"scan_fractions": [1.5]}}, "must be at most 1, not 1.5"),
    ],
)
def test_mistakes_are_named(changes, message):
    with pytest.raises(ConfigurationError) as error:
        configuration(**changes)
    assert message in str(error.value)
    assert str(error.value).startswith("--config: ")
    assert "\n" not in str(error.value)


def test_a_mistake_names_its_file(tmp_path):
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("cohorts: [demo]\n")
    second.write_text("sedes: [1]\n")
    with pytest.raises(ConfigurationError, match=r"second\.yaml: unknown key 'sedes'"):
        load({"cohorts": ["demo"], "sedes": [1]}, [first, second])


def test_a_key_that_stands_twice(tmp_path):
    path = tmp_path / "twice.yaml"
    path.write_text("seeds: [0]\nseeds: [1]\n")
    with pytest.raises(ConfigurationError, match=r"twice\.yaml: key 'seeds' stands there twice"):
        read_yaml(path)


def test_broken_yaml_names_the_line(tmp_path):
    path = tmp_path / "broken.yaml"
    path.write_text("cohorts: [demo\nseeds: [1]\n")
    with pytest.raises(ConfigurationError, match=r"broken\.yaml is not valid YAML \(line 2\)"):
        read_yaml(path)


@pytest.mark.parametrize(
    ("kind", "name", "text", "message"),
    [
        (
            "methods",
            "mine",
            "method: mine\nlabel: M\ngroup: Ours\nlable: M\n",
            "unknown key 'lable'",
        ),
        (
            "methods",
            "mine",
            "method: yours\nlabel: M\ngroup: Ours\n",
            "must be 'mine', like the file",
        ),
        (
            "methods",
            "mine",
            "method: mine\nlabel: M\ngroup: Ours\npresets: {common: {a: 1}, published: {b: 1}}\n",
            "presets.published: unknown setting 'b'",
        ),
        (
            "methods",
            "mine",
            "method: mine\nlabel: M\ngroup: Ours\npresets: {common: {a: 1}}\n"
            "variants: {brio-k2: {label: K, settings: {a: 2}}}\n",
            "variant 'brio-k2' is also defined by method 'brio'",
        ),
        (
            "methods",
            "mine",
            "method: mine\nlabel: M\ngroup: Ours\npresets: {common: {a: 1}}\n"
            "variants: {mine-searched: {label: S, settings: {a: 2}}}\n",
            "variant 'mine-searched' is also defined by method 'mine'",
        ),
        ("experiments", "mine", "title: M\ncells: [{variants: [brio-k3]}]\n", "unknown variant"),
        (
            "experiments",
            "mine",
            "title: M\ncells: [{protocols: [lodo]}]\n",
            "cells[0].protocols[0]",
        ),
        ("experiments", "train", "title: M\ncells: [{}]\n", "is the name of a rule"),
        (
            "experiments",
            "mine",
            "title: M\ncells: [{}]\noutputs: {tables: [{name: main-loso}]}\n",
            "'main-loso' in outputs.tables is also an output of experiment 'main'",
        ),
        (
            "experiments",
            "mine",
            "title: M\ncells: [{}]\n"
            "outputs: {tables: [{name: a, program: checkpoint_table, reference: brio-k3}]}\n",
            "unknown variant 'brio-k3'",
        ),
        (
            "experiments",
            "mine",
            "title: M\ncells: [{}]\noutputs: {tables: [{name: a, reference: brio}]}\n",
            "table 'a' has a 'reference', which only checkpoint_table takes; take it out",
        ),
        ("datasets", "demo", "cohort: demo\nsource: {kind: bids}\n", "key 'columns' is missing"),
        (
            "datasets",
            "demo",
            "cohort: demo\nsource: {kind: series, folder: x, patern: y}\n",
            "unknown key 'source.patern'; did you mean 'pattern'?",
        ),
        (
            "datasets",
            "demo",
            f"{FIVE_LINES}tr: {{1: 2.0, 2: 2.5, c: 2}}\n",
            "'tr' cannot be 1; it means: Seconds by the name of a site, which is a text; write "
            "site names in quotes, such as '1': 2.0",
        ),
        ("datasets", "demo", f"{FIVE_LINES}tr: {{NO: 2.0}}\n", "write site names in quotes"),
        ("datasets", "demo", f"{FIVE_LINES}tr: {{c: 0}}\n", "'tr.c' must be more than 0, not 0"),
        ("datasets", "demo", f"{FIVE_LINES}tr: 0\n", "'tr' must be more than 0, not 0"),
        ("datasets", "demo", f"{FIVE_LINES}tr: two\n", "or a mapping or null, not 'two'"),
    ],
)
def test_mistakes_in_other_files(elsewhere, kind, name, text, message):
    elsewhere(kind, name, text)
    with pytest.raises(ConfigurationError) as error:
        configuration()
    assert message in str(error.value)
    assert str(error.value).startswith(f"config/{kind}/{name}.yaml")


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
    assert configuration("paper").settings["overrides"] == {}
    assert configuration("paper").settings["device"] == "auto"


def test_settings_come_in_this_order(elsewhere):
    elsewhere(
        "methods",
        "mine",
        "method: mine\nlabel: M\ngroup: Ours\n"
        "presets: {common: {a: 1, b: 1, c: 1, d: 1, e: 1}, published: {b: 2, c: 2, d: 2, e: 2}}\n"
        "variants: {mine-e5: {label: M5, settings: {e: 5}}}\n",
    )
    overrides = {"all": {"c": 3, "d": 3, "epochs": 7}, "mine": {"d": 4, "e": 4}}
    resolved = configuration(methods=["mine"], experiments=["main"], preset="published",
                             overrides=overrides)  # fmt: skip
    params = resolved.train_params("mine-e5")
    assert params == {
        "method": "mine",
        "label": "M5",
        "group": "Ours",
        "settings": {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5},
        "search": {},
    }


def test_the_resolved_configuration_can_be_written():
    resolved = configuration("paper").resolved()
    assert yaml.safe_load(yaml.safe_dump(resolved)) == resolved
    assert resolved["variants"]["brio-k16"]["settings"]["reestimates"] == 16


def test_presets_state_exactly_the_settings_of_the_code():
    from brio_core.methods import registry

    for preset in ("common", "published"):
        resolved = configuration("abide", preset=preset)
        for method in resolved.settings["methods"]:
            settings = registry.find(method).Settings
            for variant in (method, *resolved.methods[method]["variants"]):
                settings.of(resolved.train_params(variant)["settings"], variant)


def test_the_demo_changes_settings_to_valid_ones():
    from brio_core.methods import registry

    resolved = configuration()
    for method in resolved.settings["methods"]:
        registry.find(method).Settings.of(resolved.train_params(method)["settings"], method)


def test_planned_methods_have_no_code():
    from brio_core.code_version import method_files

    methods = configuration().methods
    assert len(methods) == 21
    for name, method in methods.items():
        assert method["planned"] != bool(method_files(name)), name


@pytest.mark.parametrize("kind", ["config", "dataset", "method", "experiment"])
def test_the_manual_names_every_key(kind):
    manual = (ROOT / "config" / "README.md").read_text(encoding="utf-8")

    def walk(rules):
        for key, rule in rules.get("properties", {}).items():
            assert key in manual, key
            walk(rule)
            walk(rule.get("items", {}))
        for branch in rules.get("allOf", ()):
            walk(branch["then"])

    walk(schema(kind))


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
        settings, search = resolved.train_params(name)["settings"], method["search"]
        tries = [dict(zip(search, values)) for values in itertools.product(*search.values())]
        assert len(tries) == (3 if name in trained else 1), f"{name}: three tries, like all others"
        assert {key: settings[key] for key in search} in tries, f"{name}: what is shipped is tried"
        for one in tries:
            registry.find(name).Settings.of(settings | one, name)
