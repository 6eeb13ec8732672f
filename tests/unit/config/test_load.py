"""Scenarios from paths, names, stdin and mappings; every mistake has its place."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from clustersim.config.build import build
from clustersim.config.load import example_names, example_path, load_scenario
from clustersim.config.serving_scenario import load_serving
from clustersim.errors import ScenarioError
from tests.unit.config.samples import TEXT, small


def write(folder: Path, text: str, name: str = "small.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def refused(source: str | Path | dict[str, object], *overrides: str) -> ScenarioError:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(source, overrides)
    return caught.value


def pipe(monkeypatch: pytest.MonkeyPatch, raw: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8"))


def test_a_path_a_pipe_and_a_mapping_give_the_same_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe(monkeypatch, TEXT.encode())

    specs = [load_scenario(source).spec for source in (write(tmp_path, TEXT), str(write(tmp_path, TEXT)), "-", small())]

    assert specs == [specs[0]] * 4


def test_the_text_is_kept_as_it_was_written(tmp_path: Path) -> None:
    text = "# why\n" + TEXT

    assert load_scenario(write(tmp_path, text), ["strategy.tp=4"]).text == text


def test_a_mapping_has_a_text_that_reads_back(tmp_path: Path) -> None:
    text = load_scenario(small()).text

    assert load_scenario(write(tmp_path, text)).spec == load_scenario(small()).spec


def test_a_shipped_example_is_found_by_its_name() -> None:
    assert load_scenario("llama3-8b-8xh100").name == "llama3-8b-8xh100"


def test_a_file_goes_before_a_shipped_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, TEXT, "gpipe")
    monkeypatch.chdir(tmp_path)

    assert load_scenario("gpipe").name == "small"


def test_a_name_that_means_nothing_gets_the_nearest_example() -> None:
    error = refused("lama3-8b-8xh100")

    assert error.message == "there is no file and no shipped example 'lama3-8b-8xh100'"
    assert error.hint == "did you mean 'llama3-8b-8xh100'?"


def test_an_unknown_example_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"unknown example 'gpip'; did you mean 'gpipe'\?"):
        example_path("gpip")


def test_every_example_has_the_name_of_its_file() -> None:
    assert [load_scenario(name).name for name in example_names()] == list(example_names())


@pytest.mark.parametrize(
    ("file", "name"),
    [("run 1.yaml", "run-1"), ("a.b.yaml", "a.b"), ("--.yaml", "scenario"), ("é.yaml", "scenario"), ("x" * 150, "x" * 100)],
)
def test_a_scenario_without_a_name_is_named_after_its_file(tmp_path: Path, file: str, name: str) -> None:
    assert load_scenario(write(tmp_path, TEXT.replace("name: small\n", ""), file)).name == name


@pytest.mark.parametrize("name", ["../up", "/abs", "a/b", "", ".", "..", "-x", "a b", "x" * 101])
def test_a_name_that_could_leave_its_folder_is_refused(name: str) -> None:
    assert refused(dict(small(name=name))).field == "name"


def test_a_scenario_from_stdin_without_a_name_is_called_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe(monkeypatch, TEXT.replace("name: small\n", "").encode())

    assert load_scenario("-").name == "stdin"


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "is empty"),
        (b"\xff\xfe", "is not text in UTF-8"),
        (b"a: \x00", "is binary, not text"),
        (b"a" * 3_000_000, "is larger than 2 MB"),
    ],
)
def test_bad_input_from_stdin_is_refused(monkeypatch: pytest.MonkeyPatch, raw: bytes, message: str) -> None:
    pipe(monkeypatch, raw)

    error = refused("-")

    assert error.message == message
    assert str(error.place) == "stdin"


def test_an_unknown_key_has_its_place_and_the_nearest_key(tmp_path: Path) -> None:
    path = write(tmp_path, TEXT.replace("  tp: 2", "  tpp: 2"))

    assert str(refused(path)) == f"{path}:20:3: strategy.tpp: unknown field 'tpp'; did you mean 'tp'?\n    tpp: 2\n    ^"


def test_an_error_from_an_override_names_the_option(tmp_path: Path) -> None:
    path = write(tmp_path, TEXT)

    assert str(refused(path, "training.precision=fp12")).startswith(
        "--set training.precision=fp12: training.precision: 'fp12' is not one of"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": {1: 2}}, "key 1 is not text"),
        ({"name": object}, "a type is not understood"),
        ({"checks": {"mfu > 0"}}, "a set is not understood"),
        ({"training": {"global_batch_size": float("nan")}}, "nan is not a finite number"),
    ],
)
def test_a_mapping_with_things_that_no_file_could_hold_is_refused(changes: dict[str, object], message: str) -> None:
    assert refused({**small(), **changes}).message == message


def test_a_mapping_that_holds_itself_is_refused() -> None:
    data: dict[str, object] = dict(small())
    data["model"] = data

    assert refused(data).message == "is nested more than 50 levels deep"


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("tp=4", "did you mean 'strategy.tp'?"),
        ("micro_batch_size=2", "did you mean 'training.micro_batch_size'?"),
        ("strategy.micro_batch_size=2", "did you mean 'training.micro_batch_size'?"),
        ("microbatch_size=2", "did you mean 'training.micro_batch_size'?"),
        ("nodes=2", "did you mean 'cluster.nodes'?"),
        ("nics={count: 4}", "did you mean 'cluster.nics'?"),
        ("latency=1 us", "did you mean 'cluster.nics.latency' or 'cluster.scale_up.latency'?"),
        ("strategy.tpp=4", "did you mean 'tp'?"),
        ("stratgy.tp=4", "did you mean 'strategy'?"),
        (
            "nothing_like_it=4",
            "use one of version, name, model, cluster, training, strategy, steps, cost, reliability, checks, jobs, background, ...",
        ),
    ],
)
def test_a_key_of_another_level_is_suggested_with_its_whole_path(tmp_path: Path, override: str, hint: str) -> None:
    assert refused(write(tmp_path, TEXT), override).hint == hint


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("cluster=dgx-h100", "cluster.name: unknown cluster 'dgx-h100'; it is a node: write {node: dgx-h100, nodes: 2}, with as many"),
        (
            "cluster={node: selene-a100, nodes: 2}",
            "cluster.node: unknown node 'selene-a100'; it is a cluster: write name: selene-a100 in place",
        ),
        ("cluster.node=dgx-h10", "cluster.node: unknown node 'dgx-h10'; did you mean 'dgx-h100'?"),
        ("strategy.tp=", "holds no value; write it such as --set strategy.tp=4"),
        ("checks=mfu > 0.1", "checks: 'mfu > 0.1' is not a list; write it in brackets: [mfu > 0.1]"),
        ("name=a/b", "name: 'a/b' does not have the form ^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$; use letters, digits, dots, hyphens"),
    ],
)
def test_a_slip_is_told_with_what_would_be_right(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        build(load_scenario(write(tmp_path, TEXT), [override]))

    assert str(caught.value).startswith(f"--set {override}: {message}")


def test_a_folder_is_refused_as_one_unless_an_example_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("folder", "starter"):
        (tmp_path / name).mkdir()

    assert refused("folder").message == "is a directory, not a file"
    assert load_scenario("starter").name == "starter"


def test_a_model_of_hugging_face_in_place_of_a_scenario_is_told_the_next_step(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text('{"model_type": "llama", "hidden_size": 64}', encoding="utf-8")

    for source in (str(file), f"hf:{file}"):
        with pytest.raises(ScenarioError, match="is a model of Hugging Face and no scenario") as caught:
            load_scenario(source)
        assert f"clustersim plan hf:{file}" in str(caught.value.hint)


def test_all_mistakes_of_a_scenario_are_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(
        "model: llama3-8bb\n"
        "cluster: {node: dgx-h10, nodes: 0, host: xeon, nics: {model: own.yaml}}\n"
        "strategy: {tp: eight, zero_stag: 1}\n"
        "training: {global_batch_size: 64.5}\n"
    )
    (tmp_path / "own.yaml").write_text("bandwidth: 400 Gbit/s\n")

    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)

    fields = [(each.place and each.place.line, each.field) for each in (caught.value, *caught.value.further)]
    in_file = [(1, "model"), (2, "cluster.node"), (2, "cluster.nodes"), (2, "cluster.host"), (3, "strategy.tp"), (3, "strategy.zero_stag")]
    assert fields == [*in_file, (4, "training.global_batch_size"), (1, None)]
    assert "own lacks latency" in str(caught.value)
    assert str(caught.value.further[-1].hint).endswith("more is checked once these are mended")


def test_what_the_model_and_the_machine_refuse_is_told_at_once() -> None:
    scenario = load_scenario("llama3-8b-8xh100", ["strategy.tp=3", "cluster.node=dgx-h10"])

    with pytest.raises(ScenarioError) as caught:
        build(scenario)

    assert [each.field for each in (caught.value, *caught.value.further)] == ["cluster.node", "strategy.tp"]


def test_what_does_not_go_with_the_built_machine_is_told_at_once() -> None:
    changes = [
        "strategy.tp=3",
        "cluster.links=[{between: [node0/nic0, leaf7], fraction: 0.1}]",
        "cluster.stragglers=[{ranks: 300, slowdown: 1.3}]",
        "background=[{links: [node9/nic*/tx], load: 80 %}]",
        "cost.prices=rented-2062",
    ]

    with pytest.raises(ScenarioError) as caught:
        build(load_scenario("llama3-8b-8xh100", ["cluster.nodes=2", *changes]))

    fields = [each.field for each in (caught.value, *caught.value.further)]
    at = ["strategy.tp", "cluster.links.0.between", "cluster.stragglers.0.ranks", "background.0.links.0", "cost.prices"]
    assert sorted(map(str, fields)) == sorted(at)


def test_degrees_that_go_with_neither_model_nor_gpus_are_told_beside_a_fabric_of_another_size() -> None:
    torus = "cluster={node: dgx-h100, nodes: 4, fabric: {topology: torus, dimensions: [3, 3]}}"
    scenario = load_scenario("llama3-8b-8xh100", [torus, "strategy={tp: 3, cp: 3, pp: 40}"])

    with pytest.raises(ScenarioError) as caught:
        build(scenario)

    fields = {each.field for each in (caught.value, *caught.value.further)}
    assert fields == {"strategy.tp", "strategy.cp", "strategy.pp", "cluster.fabric.dimensions"}


def test_training_beside_serving_hides_no_other_mistake(tmp_path: Path) -> None:
    path = tmp_path / "both.yaml"
    path.write_text("model: llama3-8bb\nserving: {tp: eight}\ntraining: {tokens: 15T}\ncluster: {node: dgx-h10, nodes: 1}\n")

    for load, fields in (
        (load_serving, ["requests", "model", "serving.tp", "training", "cluster.node"]),
        (load_scenario, ["model", "serving", "cluster.node"]),
    ):
        with pytest.raises(ScenarioError) as caught:
            load(path)
        assert [each.field for each in (caught.value, *caught.value.further)] == fields


def test_a_model_in_the_place_of_a_scenario_is_told_from_a_misspelt_one() -> None:
    error = refused("llama3-8b")

    assert error.message == "'llama3-8b' is a model and no scenario"
    assert "clustersim plan llama3-8b dgx-h100" in str(error.hint)
