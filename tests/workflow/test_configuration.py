"""What the configuration resolves to, and what is said about mistakes in it."""

from pathlib import Path

import pytest
import yaml

from workflow.lib.cells import experiment_cells
from workflow.lib.configuration import load
from workflow.lib.documents import document_files
from workflow.lib.files import ConfigurationError, read_yaml
from workflow.lib.outputs import item, item_cells, output_inputs, output_names
from workflow.lib.paths import Paths
from workflow.lib.schema import schema

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ("config", "paper", "abide", "abide-cc200")


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
        ("datasets", "demo", "cohort: demo\nsource: {kind: bids}\n", "key 'columns' is missing"),
        (
            "datasets",
            "demo",
            "cohort: demo\nsource: {kind: series, folder: x, patern: y}\n",
            "unknown key 'source.patern'; did you mean 'pattern'?",
        ),
    ],
)
def test_mistakes_in_other_files(elsewhere, kind, name, text, message):
    elsewhere(kind, name, text)
    with pytest.raises(ConfigurationError) as error:
        configuration()
    assert message in str(error.value)
    assert str(error.value).startswith(f"config/{kind}/{name}.yaml")


def test_own_data_in_five_lines(elsewhere):
    elsewhere(
        "datasets",
        "mine",
        "cohort: mine\n"
        "source: {kind: series, folder: mine, pattern: 'series/{subject}.tsv'}\n"
        "columns: {subject: id, site: site, label: diagnosis}\n"
        "label: {positive: patient, negative: control}\n"
        "rois: {expected: 100}\n",
    )
    dataset = configuration(cohorts=["mine"]).datasets["mine"]
    assert dataset["source"]["participants"] == "participants.tsv"
    assert dataset["inclusion"]["min_frames"] == 60
    assert dataset["tr"] is None


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


def test_cells_are_chosen_by_cohorts_methods_and_seeds():
    resolved = configuration(seeds=[3, 4], methods=["gcn", "brio", "linear-correlation"])
    cells = experiment_cells(resolved, "main")
    assert len(cells) == 2 * (2 * 2 + 1)
    assert {cell.seed for cell in cells if cell.variant == "linear-correlation"} == {3}
    permuted = experiment_cells(resolved, "permuted")
    assert len(permuted) == 5 * 3
    assert {cell.seed for cell in permuted} == {3}


def test_variants_and_protocols_may_have_other_seeds():
    def seeds(**words):
        methods = ["gcn", "brio", "linear-correlation"]
        resolved = configuration(seeds=[3, 4], methods=methods, variants="all", **words)
        found = {}
        for experiment in ("main", "ablations", "presets"):
            for cell in experiment_cells(resolved, experiment):
                found.setdefault((experiment, *cell[1:3]), []).append(cell.seed)
        return found

    usual = seeds()
    changed = seeds(more_seeds={"brio": [7]}, protocol_seeds={"id": "first"})
    assert changed.pop(("main", "loso", "brio")) == [3, 4, 7]
    assert changed.pop(("ablations", "loso", "brio")) == [3, 4, 7], "the same row everywhere"
    for method in ("gcn", "brio"):
        assert usual["main", "id", method] == [3, 4]
        assert changed.pop(("main", "id", method)) == [3]
    assert changed.items() <= usual.items(), "and nothing else"
    assert seeds(protocol_seeds={"id": [9]})["main", "id", "gcn"] == [9]
    assert seeds(protocol_seeds={"loso": [9]})["presets", "loso", "gcn"] == [3], "asks for one"
    one = seeds(experiment_seeds={"ablations": "first"}, more_seeds={"brio": [7]})
    assert one["ablations", "loso", "brio"] == one["ablations", "loso", "brio-wo-rs"] == [3]
    assert one["main", "loso", "brio"] == [3, 4, 7], "other experiments keep theirs"


def test_the_run_of_the_document_on_abide():
    """Three seeds of all, five of BRIO, one where sites were seen in training."""
    resolved = configuration("abide-cc200")
    cells = experiment_cells(resolved, "main")
    unseen = [cell for cell in cells if cell.protocol == "loso"]
    assert len(unseen) == 16 * 3 + 5 + 4
    assert len(cells) - len(unseen) == 17 + 4
    common = ["paper_vs_ours", "settings", "settings-others"]
    files = document_files(resolved, Paths("r"), common)
    assert "r/tables/presets.csv" in files["tables"] and "r/tables/presets.json" in files["printed"]
    assert "r/figures/diagnostics-abide-cc200.png" in files["figures"]
    tables = set(files["tables"]) - {f"r/tables/{name}.csv" for name in common}
    names = output_names(resolved, "tables", tuple(resolved.settings["experiments"]))
    assert tables == {f"r/tables/{name}.csv" for name in names if name != "sites"}


def test_sweeps_are_shortened_by_variants():
    resolved = configuration()
    swept = {cell.variant for cell in experiment_cells(resolved, "sensitivity")}
    assert swept == {"brio", "brio-k2", "brio-j2"}
    resolved = configuration(variants="all")
    assert len(experiment_cells(resolved, "sensitivity")) == 9
    resolved = configuration(variants=[], experiments=["main"])
    assert {cell.variant for cell in experiment_cells(resolved, "ablations")} == {"brio"}


def test_a_figure_per_cohort_shows_that_cohort():
    resolved = configuration("paper")
    names = output_names(resolved, "figures", ("diagnostics",))
    assert [name for name in names if name.startswith("diagnostics-")] == [
        f"diagnostics-{cohort}" for cohort in resolved.settings["cohorts"]
    ]
    cells = item_cells(resolved, "figures", "diagnostics-srpbs-aal116")
    assert {cell.cohort for cell in cells} == {"srpbs-aal116"}
    assert "linear-confounds" not in {cell.variant for cell in cells}, "nothing to diagnose"
    assert item(resolved, "figures", "diagnostics-srpbs-aal116")["title"].endswith(": SRPBS")
    inputs = output_inputs(resolved, Paths("results"), "figures", "diagnostics-srpbs-aal116")
    assert inputs == {"diagnostics": ["results/diagnostics/diagnostics/srpbs-aal116/loso"]}


def test_published_settings_are_a_variant_of_every_method_that_has_them():
    resolved = configuration("abide", methods=["gcn", "coral", "brio", "linear-tangent"])
    cells = experiment_cells(resolved, "presets")
    assert {cell.variant for cell in cells} == {
        "gcn", "gcn-published", "coral", "coral-published", "brio", "linear-tangent"
    }  # fmt: skip
    assert {cell.seed for cell in cells} == {0}
    params = resolved.train_params("gcn-published")
    published = resolved.methods["gcn"]["presets"]["published"]
    assert published.items() <= params["settings"].items()
    assert params["label"] == "GCN (published)" and params["method"] == "gcn"
    assert output_inputs(resolved, Paths("r"), "tables", "presets").keys() == {"summaries", "runs"}


def test_figures_about_brio_are_left_out_without_it():
    resolved = configuration(methods=["gcn"], experiments=["main"])
    assert output_names(resolved, "figures", ("diagnostics",)) == ["diagnostics-demo"]
    assert output_names(resolved, "tables", ("diagnostics",)) == ["scan-length"]


def test_the_paper_is_complete():
    resolved = configuration("paper")
    count = {name: len(experiment_cells(resolved, name)) for name in resolved.experiments}
    assert count["main"] == (17 * 5 + 4) * 5 * 2
    assert count["ablations"] == (4 + 1) * 5 * 5
    assert count["sensitivity"] == (8 + 1) * 5 * 5
    assert count["block-length"] == (2 + 1) * 5 * 5
    assert count["lambda-sweep"] == (5 + 1) * 5 * 5
    # All methods, five strengths without guidance, and without re-estimation support.
    assert count["diagnostics"] == ((17 + 6) * 5 + 4) * 5


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

    assert list(searched()) == ["penalty_weight"]
    assert searched("gcn") == {}
    assert searched(search=False) == {}
    assert searched(preset="published") == {}
    assert searched(overrides={"coral": {"penalty_weight": 1.0}}) == {}
