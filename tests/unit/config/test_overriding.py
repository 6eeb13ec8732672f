"""``--set key=value``: dotted keys, YAML values, errors that name the option."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.config.build import build
from clustersim.config.load import load_scenario
from clustersim.config.overriding import apply_overrides, blame, parse_override
from clustersim.documents.text import Data, parse_document, plain_document
from clustersim.errors import Place, ScenarioError

DOCUMENT = plain_document({"name": "a", "strategy": {"tp": 2, "pp": 4}, "model": "gpt2", "cluster": "superpod-h100"}, "a.yaml")


def changed(*texts: str) -> dict[str, Data]:
    return apply_overrides(DOCUMENT, [parse_override(text) for text in texts]).data


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("model=./mine.yaml", "HERE/mine.yaml"),
        ("model=mine.yaml", "HERE/mine.yaml"),
        ("model=models/mine", "HERE/models/mine"),
        ("model=../mine.yml", "HERE/../mine.yml"),
        ("model=/mine.yaml", "/mine.yaml"),
        ("model=hf:mine", "hf:HERE/mine"),
        ("model=llama3-8b", "llama3-8b"),
        ("strategy.schedule=mine.csv", "HERE/mine.csv"),
        ("strategy.schedule=1f1b", "1f1b"),
        ("strategy={schedule: mine.csv, tp: 2}", {"schedule": "HERE/mine.csv", "tp": 2}),
        ("strategy.expert_load=mine.csv", "HERE/mine.csv"),
        ("cluster.calibration=mine.yaml", "HERE/mine.yaml"),
        ("cluster.accelerator=mine.yaml", "HERE/mine.yaml"),
        ("cluster.nics={model: mine.yaml}", {"model": "HERE/mine.yaml"}),
        ("cost.prices=[mine.yaml, rented-2026]", ["HERE/mine.yaml", "rented-2026"]),
        ("jobs=[{scenario: mine.yaml, nodes: 1}]", [{"scenario": "HERE/mine.yaml", "nodes": 1}]),
        ("jobs=[{scenario: {model: mine.yaml}}]", [{"scenario": {"model": "HERE/mine.yaml"}}]),
        ("description=see mine.yaml", "see mine.yaml"),
        ("cluster.nics.bandwidth=50 GB/s", "50 GB/s"),
        ("checks=['a/b <= 1']", ["a/b <= 1"]),
    ],
)
def test_a_path_counts_from_the_current_directory(text: str, value: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    # As text, since a path may stand anywhere in it.
    assert repr(parse_override(text).value) == repr(value).replace("HERE", str(tmp_path))


def test_a_model_is_that_of_the_current_directory_and_not_one_beside_the_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = "num_hidden_layers: {}\nhidden_size: 1024\nintermediate_size: 4096\nnum_attention_heads: 16\nvocab_size: 32000\n"
    (tmp_path / "sub").mkdir()
    (tmp_path / "mine.yaml").write_text(sizes.format(4))
    (tmp_path / "sub" / "mine.yaml").write_text(sizes.format(8))
    (tmp_path / "sub" / "s.yaml").write_text(
        "model: mine.yaml\ncluster: {node: dgx-h100, nodes: 1}\ntraining: {global_batch_size: 16, seq_length: 512}\n"
    )
    monkeypatch.chdir(tmp_path)

    def n_layers(*overrides: str) -> int:
        return build(load_scenario("sub/s.yaml", overrides)).plan.model.n_layers

    assert (n_layers("model=./mine.yaml"), n_layers("model=sub/mine.yaml"), n_layers()) == (4, 8, 8)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a=4", 4),
        ("a=0.5", 0.5),
        ("a=true", True),
        ("a=25 MB", "25 MB"),
        ("a=1f1b", "1f1b"),
        ("a=[tp, dp]", ["tp", "dp"]),
        ("a={count: 4, bandwidth: 200 Gbit/s}", {"count": 4, "bandwidth": "200 Gbit/s"}),
        ("a=x=y", "x=y"),
        (" a =  b", "b"),
        ("a=null", None),
    ],
)
def test_the_value_is_read_as_yaml(text: str, value: Data) -> None:
    override = parse_override(text)

    assert (override.path, override.value) == (("a",), value)


@pytest.mark.parametrize("text", ["", "a", "=4", "1a=3", "a..b=3", "a.=3", ".a=3", "a b=3"])
def test_what_is_not_key_and_value_is_refused(text: str) -> None:
    with pytest.raises(ScenarioError, match=r"is not key=value; write it such as --set strategy\.tp=4"):
        parse_override(text)


@pytest.mark.parametrize("text", ["a=", "a= "])
def test_a_key_without_a_value_is_refused_as_that(text: str) -> None:
    with pytest.raises(ScenarioError, match=r"holds no value; write it such as --set strategy\.tp=4"):
        parse_override(text)


@pytest.mark.parametrize("text", ["a=[1, 2", "a=b: c: d", "a={x: 1, x: 2}", "a=!!python/object:os.system {}", "a=.nan", "a=\x07"])
def test_a_value_that_is_not_yaml_names_the_option(text: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_override(text)

    assert str(caught.value.place) == f"--set {text}"
    assert caught.value.place is not None
    assert caught.value.place.line is None


def test_a_comment_alone_is_no_value() -> None:
    with pytest.raises(ScenarioError, match="holds no value"):
        parse_override("a=# nothing")


def test_a_long_value_is_not_repeated() -> None:
    override = parse_override("name=" + "x" * 200)

    assert str(override.place) == "--set name=..."


def test_a_value_is_replaced_and_its_neighbours_stay() -> None:
    assert changed("strategy.tp=8")["strategy"] == {"tp": 8, "pp": 4}


def test_a_key_that_is_not_there_is_made_with_its_mappings() -> None:
    assert changed("training.data.bucket=25 MB")["training"] == {"data": {"bucket": "25 MB"}}


def test_the_last_of_two_wins() -> None:
    assert changed("strategy.tp=8", "strategy.tp=4")["strategy"] == {"tp": 4, "pp": 4}


def test_the_document_that_was_given_is_not_changed() -> None:
    changed("strategy.tp=8")

    assert DOCUMENT.data["strategy"] == {"tp": 2, "pp": 4}


def test_nothing_can_be_set_below_a_name() -> None:
    with pytest.raises(ScenarioError, match="model is not a mapping, so nothing below it can be set; set model itself"):
        changed("model.hidden_size=4096")


def test_a_cluster_that_is_only_named_can_be_changed() -> None:
    assert changed("cluster.nodes=16")["cluster"] == {"name": "superpod-h100", "nodes": 16}
    assert changed("cluster=superpod-b200", "cluster.nodes=2")["cluster"] == {"name": "superpod-b200", "nodes": 2}


def blamed(field: str | None, file: str = "a.yaml") -> str:
    error = ScenarioError("wrong", field=field, place=Place(file=file, line=3))
    return str(blame(error, [parse_override("strategy.tp=6"), parse_override("model={a: 1}")], DOCUMENT).place)


def test_an_error_about_an_overridden_value_names_the_option() -> None:
    assert blamed("strategy.tp") == "--set strategy.tp=6"
    assert blamed("model.a") == "--set model={a: 1}"


@pytest.mark.parametrize("field", ["strategy.pp", "strategy", "strategy.tpp", None])
def test_an_error_about_another_value_keeps_its_place(field: str | None) -> None:
    assert blamed(field) == "a.yaml:3"


def test_an_error_in_another_file_keeps_its_place() -> None:
    assert blamed("strategy.tp", file="model.yaml") == "model.yaml:3"


def test_places_of_the_file_are_kept() -> None:
    document = apply_overrides(parse_document("strategy:\n  tp: 2\n  pp: 4\n", "b.yaml"), [parse_override("strategy.tp=8")])

    assert str(document.place(["strategy", "pp"])) == "b.yaml:3:7"


def test_an_unknown_parent_that_an_override_made_is_blamed_on_it() -> None:
    with pytest.raises(ScenarioError) as caught:
        load_scenario("1f1b", ["fabric.routing=adaptive"])

    assert str(caught.value).startswith("--set fabric.routing=adaptive: fabric: unknown field 'fabric'")


def test_an_unknown_parent_that_the_file_wrote_is_blamed_on_the_file(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("fabric: {routing: ecmp}\n", encoding="utf-8")

    with pytest.raises(ScenarioError) as caught:
        load_scenario(file, ["fabric.routing=adaptive"])

    assert caught.value.place is not None
    assert caught.value.place.file == str(file)
