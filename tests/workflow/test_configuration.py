"""What the configuration resolves to."""

import itertools
import re
from pathlib import Path

import pytest
import yaml

from workflow.planning.configuration import load
from workflow.planning.files import read_yaml
from workflow.planning.schema import schema

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
        "hyperparameters": {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5},
        "search": {},
    }


def test_the_resolved_configuration_can_be_written():
    resolved = configuration("paper").resolved()
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


def test_planned_methods_have_no_code():
    from brio_core.system.versions import method_files

    methods = configuration().methods
    assert len(methods) == 21
    for name, method in methods.items():
        assert method["planned"] != bool(method_files(name)), name


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
