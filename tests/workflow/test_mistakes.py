"""What is said about mistakes in the configuration."""

import pytest

from tests.workflow.test_configuration import FIVE_LINES, ROOT, configuration
from workflow.planning.files import ConfigurationError, read_yaml
from workflow.planning.loading import load

GCN = (ROOT / "config/methods/gcn.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cohort": ["demo"]}, "unknown key 'cohort'; did you mean 'cohorts'?"),
        ({"block_length": {"treshold": 0.1}}, "unknown key 'block_length.treshold'; did you mean"),
        ({"seeds": []}, "'seeds' is empty"),
        ({"seeds": [0, 0]}, "'seeds' names 0 twice"),
        ({"seeds": [-1]}, "'seeds[0]' must be at least 0, not -1"),
        ({"more_seeds": {"brio": [1, 1]}}, "'more_seeds.brio' names 1 twice"),
        (
            {"more_seeds": {"brio": [0]}},
            "'more_seeds.brio' repeats 0, which is one of 'seeds'; take it out",
        ),
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
        ({"split_seeds": ["zero"]}, "'split_seeds[0]' must be a whole number, not 'zero'"),
        ({"split_seeds": [1, 1]}, "'split_seeds' names 1 twice"),
        ({"seeds": [0.0]}, "'seeds[0]' must be a whole number, not 0.0"),
        ({"seeds": [10**23]}, "'seeds[0]' must be at most 4294967295"),
        ({"overrides": {"gcn": {"shrinkage": 2.0}}}, "shrinkage is 2.0, but must be above 0 and"),
        ({"split_seed": 1}, "unknown key 'split_seed'; it was renamed to 'split_seeds'"),
        ({"device": "tpu"}, "'device' must be one of auto, cpu, cuda, not 'tpu'"),
        (
            {"methods": "some"},
            "'methods' cannot be 'some'; it means: 'all', or a list of methods",
        ),
        ({"cohorts": ["dmeo"]}, "unknown name 'dmeo' in 'cohorts', there is no config/datasets/"),
        ({"methods": ["gnc"]}, "unknown name 'gnc' in 'methods'"),
        ({"experiments": ["mian"]}, "did you mean 'main'?"),
        (
            {"overrides": {"brioo": {}}},
            "'overrides': unknown method 'brioo'; did you mean 'brio'",
        ),
        ({"overrides": {"gcn": {"factors": 2}}}, "overrides.gcn: unknown hyperparameter 'factors'"),
        (
            {"overrides": {"all": {"epoch": 2}}},
            "overrides.all: unknown hyperparameter 'epoch'; did you",
        ),
        ({"overrides": {"gcn": {"learning_rate": "1e-3"}}}, "it needs a point: 1.0e-4"),
        ({"overrides": {"gcn": {"epochs": 2.5}}}, "'epochs' must be like 200, not 2.5"),
        ({"overrides": {"gcn": {"dropout": 1.5}}}, "overrides.gcn: dropout is 1.5, but must be"),
        ({"overrides": {"all": {"batch_size": 0}}}, "batch_size is 0, but must be above 0"),
        ({"methods": ["gcn"], "experiments": ["ablations"]}, "'ablations' has nothing to run"),
        ({"variants": ["brio-k3"]}, "'variants': unknown variant 'brio-k3'; did you mean 'brio-"),
        (
            {"overrides": {"brio": {"epochs": 20}}},
            "variant 'brio' would be trained for 20 epochs, but its checkpoint is chosen from",
        ),
        ({"reference": "bro"}, "'reference' is 'bro', which no experiment of this configuration"),
        ({"methods": ["gcn"], "reference": "brio"}, "'reference' is 'brio', which no experiment"),
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
    with pytest.raises(
        ConfigurationError, match=r"twice\.yaml: key 'seeds' stands there twice; keep one"
    ):
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
            "presets.published: unknown hyperparameter 'b'",
        ),
        (
            "methods",
            "mine",
            "method: mine\nlabel: M\ngroup: Ours\npresets: {common: {a: 1}}\n"
            "variants: {brio-k2: {label: K, hyperparameters: {a: 2}}}\n",
            "variant 'brio-k2' is also defined by method 'brio'",
        ),
        (
            "methods",
            "mine",
            "method: mine\nlabel: M\ngroup: Ours\npresets: {common: {a: 1}}\n"
            "variants: {mine-searched: {label: S, hyperparameters: {a: 2}}}\n",
            "variant 'mine-searched' is also defined by method 'mine'",
        ),
        (
            "methods",
            "mine",
            "method: mine\nlabel: M\ngroup: Ours\n",
            "method 'mine' has no code, brio_core/methods/mine.py does not exist; write it, or",
        ),
        ("methods", "gcn", GCN.replace("dropout:", "drop:"), "unknown hyperparameter 'drop'; did"),
        (
            "methods",
            "gcn",
            GCN.replace("    dropout:", "#"),
            "presets.common has no 'dropout', w",
        ),
        (
            "methods",
            "gcn",
            GCN.replace("learning_rate: 3.0e-4", "learning_rate: 3e-4"),
            "presets.common.learning_rate should be float, not '3e-4'",
        ),
        (
            "methods",
            "gcn",
            GCN.replace("optimiser: adamw", "optimiser: adamww"),
            "presets.common.optimiser is 'adamww', but must be one of",
        ),
        ("experiments", "mine", "title: M\nruns: [{variants: [brio-k3]}]\n", "unknown variant"),
        (
            "experiments",
            "mine",
            "title: M\nruns: [{protocols: [lodo]}]\n",
            "runs[0].protocols[0]",
        ),
        (
            "experiments",
            "mine",
            "title: M\nruns: [{}]\noutputs: {tables: [{name: main-loso}]}\n",
            "'main-loso' in outputs.tables is also an output of experiment 'main'",
        ),
        (
            "experiments",
            "mine",
            "title: M\nruns: [{}]\n"
            "outputs: {tables: [{name: a, table: checkpoints, reference: brio-k3}]}\n",
            "unknown variant 'brio-k3'",
        ),
        (
            "experiments",
            "mine",
            "title: M\nruns: [{}]\noutputs: {tables: [{name: a, names: [a, b]}]}\n",
            "table 'a' has the option 'names', which 'results' does not take; take it out",
        ),
        (
            "experiments",
            "mine",
            "title: M\nruns: [{}]\noutputs: {tables: [{name: a, table: comparisons}]}\n",
            "unknown table 'comparisons'; did you mean 'comparison'?",
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


def test_a_file_whose_class_has_another_name(monkeypatch):
    monkeypatch.setattr("workflow.planning.checks.declared", lambda _: None)
    with pytest.raises(ConfigurationError, match="gcn has no class with name = 'gcn' and Hyperp"):
        configuration(methods=["gcn"], experiments=["main"])


def test_the_source_of_methods_is_read_like_their_code():
    """Planning, which may not import torch, knows the same hyperparameters."""
    from dataclasses import MISSING, fields

    from brio_core.methods import registry
    from workflow.planning.methods import declared, has_code

    for name in registry.names():
        known = fields(registry.find(name).Hyperparameters)
        types = {field.name: field.type for field in known}
        assert {key: field.type for key, field in declared(name).items()} == types, name
        needed = [field.name for field in known if field.default is MISSING]
        assert [key for key, field in declared(name).items() if field.needed] == needed, name
    assert has_code("fc-hgnn") and not has_code("fc-hgmn")
