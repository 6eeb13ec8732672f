"""Models by name and by file: where they are looked for, and what is said when they are not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clustersim.config.overriding import parse_override
from clustersim.documents.text import Data, parse_document
from clustersim.errors import ScenarioError
from clustersim.workloads.reading.hf_config import parse_config, read_config
from clustersim.workloads.reading.model_spec import load_model, model_names
from tests.unit.config.inline_models import SMALL, without
from tests.unit.config.samples import transformer_of


def test_a_shipped_model_is_found_by_its_name() -> None:
    assert load_model("llama3-70b").model.n_layers == 80


def test_shipped_names_are_sorted() -> None:
    assert list(model_names()) == sorted(model_names())
    assert len(model_names()) >= 26


def test_an_unknown_name_is_refused_with_its_nearest() -> None:
    document = parse_document("model: lama3-70b\n", "scenario.yaml")

    with pytest.raises(ScenarioError, match="there is no model 'lama3-70b'") as caught:
        load_model("lama3-70b", document=document)

    assert caught.value.hint == "did you mean 'llama3-70b'?"
    assert caught.value.place is not None
    assert (caught.value.place.line, caught.value.place.column) == (1, 8)


def test_a_file_is_found_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text("".join(f"{key}: {value}\n" for key, value in SMALL.items()), encoding="utf-8")
    document = parse_document("model: tiny.yaml\n", str(tmp_path / "scenario.yaml"))

    loaded = load_model("tiny.yaml", document=document)

    assert (loaded.model.name, transformer_of(loaded).hidden_size) == ("tiny", 64)


def test_a_file_is_found_from_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SMALL), encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    assert transformer_of(load_model("hf:config.json")).hidden_size == 64


def test_a_file_may_name_its_model(tmp_path: Path) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text("name: other\n" + "".join(f"{key}: {value}\n" for key, value in SMALL.items()), encoding="utf-8")

    assert load_model(str(path)).model.name == "other"


def test_an_error_in_a_file_is_placed_in_that_file(tmp_path: Path) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text("".join(f"{key}: {value}\n" for key, value in without(vocab_size=-1).items()), encoding="utf-8")

    with pytest.raises(ScenarioError) as caught:
        load_model(str(path))

    place = caught.value.place
    assert place is not None
    assert (place.file, place.line, place.column) == (str(path), 6, 13)


def test_a_missing_file_is_refused_with_its_nearest(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text("a: 1\n", encoding="utf-8")

    with pytest.raises(ScenarioError, match="there is no file") as caught:
        load_model(str(tmp_path / "tinny.yaml"))

    assert caught.value.hint == "did you mean 'tiny.yaml'?"


def test_a_model_of_the_hub_has_to_be_downloaded_first() -> None:
    with pytest.raises(ScenarioError, match="there is no file 'somebody/own-7b-hf'") as caught:
        load_model("hf:somebody/own-7b-hf")

    assert caught.value.hint is not None
    assert "download" in caught.value.hint


@pytest.mark.parametrize("reference", ["", " ", 3, None, True, ["a"], "hf:", "a\0b.yaml", "x" * 5000 + ".yaml"])
def test_what_is_no_model_is_refused_in_one_error(reference: Data) -> None:
    with pytest.raises(ScenarioError):
        load_model(reference)


@pytest.mark.parametrize(("text", "line", "column"), [("{", 1, 2), ('{\n  "a" 1\n}', 2, 7), ("nul", 1, 1), ("\0", 1, 1)])
def test_broken_json_is_refused_at_its_place(text: str, line: int, column: int) -> None:
    with pytest.raises(ScenarioError, match="is not JSON") as caught:
        parse_config(text, "config.json")

    place = caught.value.place
    assert place is not None
    assert (place.line, place.column) == (line, column)


def test_a_directory_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"config\.json: no such file"):
        read_config(tmp_path)


def test_a_name_of_the_hub_means_the_shipped_model_unless_a_file_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert load_model("Qwen/Qwen2.5-32B") is load_model("qwen2.5-32b")
    assert parse_override("model=Qwen/Qwen2.5-32B").value == "Qwen/Qwen2.5-32B"
    with pytest.raises(ScenarioError, match="there is no file 'mine/unheard-of'"):
        load_model("mine/unheard-of")
    (tmp_path / "Qwen" / "Qwen2.5-32B").mkdir(parents=True)
    assert parse_override("model=Qwen/Qwen2.5-32B").value == str(tmp_path / "Qwen" / "Qwen2.5-32B")
    with pytest.raises(ScenarioError):
        load_model("Qwen/Qwen2.5-32B")


def test_a_name_of_the_hub_that_is_shipped_needs_no_file() -> None:
    assert load_model("hf:meta-llama/Llama-3.1-8B").model == load_model("llama3.1-8b").model
