from __future__ import annotations

from enum import Enum
from typing import Annotated, ClassVar, Literal

import pytest
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from clustersim.documents.check import located, validate_document, validate_part
from clustersim.documents.near_names import choices_hint, did_you_mean
from clustersim.documents.text import parse_document, plain_document
from clustersim.errors import ScenarioError
from clustersim.units.fields import Bytes, BytesPerSecond, PositiveInt


class Checked(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")


class Colour(Enum):
    RED = "red"
    GREEN = "green"


class DataParallel(Checked):
    mode: Literal["sync", "async"] = "sync"
    bucket: Bytes | Literal["auto"] = "auto"


class Circle(Checked):
    kind: Literal["circle"]
    radius: float


class Square(Checked):
    kind: Literal["square"]
    side: Literal["short", "long"]


class Strategy(Checked):
    dp: PositiveInt | Literal["auto"] = "auto"
    tensor: PositiveInt = Field(default=1, validation_alias=AliasChoices("tensor", "tp"))
    data_parallel: DataParallel | Literal["off"] = "off"
    offload: list[Literal["optimizer", "gradients"]] | DataParallel = []
    groups: list[DataParallel] = []
    named: dict[str, DataParallel] = {}
    fraction: Annotated[float, Field(ge=0, lt=1)] = 0
    shape: Annotated[Circle | Square, Field(discriminator="kind")] | None = None
    flag: bool = False
    colour: Colour = Colour.RED
    pair: tuple[int, int] = (1, 1)


class Run(Checked):
    name: str
    strategy: Strategy = Field(default_factory=lambda: Strategy.model_validate({}))
    bandwidth: BytesPerSecond = 1e9
    renamed: int = Field(0, alias="other")

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if name == "value":
            raise ValueError("value is a bad name")
        if name == "custom":
            raise PydanticCustomError("name", "{message}", {"message": "custom is a bad name", "hint": "choose another"})
        if name == "scenario":
            raise ScenarioError("scenario is a bad name", field="name", hint="choose another")
        return name

    @model_validator(mode="after")
    def _check_all(self) -> Run:
        if self.name == "nested":
            raise ScenarioError("does not fit", field="strategy.groups.1.mode")
        if self.name == "whole":
            raise ScenarioError("makes no sense")
        return self


def failure(text: str) -> ScenarioError:
    with pytest.raises(ScenarioError) as caught:
        validate_document(Run, parse_document(text, "run.yaml"))
    return caught.value


def told(text: str) -> tuple[str | None, str, str | None]:
    error = failure(text)
    return error.field, error.message, error.hint


def test_a_right_document_becomes_a_model() -> None:
    run = validate_document(Run, parse_document("name: a\nstrategy: {tp: 8}\nbandwidth: 400 Gbit/s\n", "run.yaml"))

    assert (run.name, run.strategy.tensor, run.bandwidth) == ("a", 8, 5e10)


def test_a_part_of_a_document_can_be_checked() -> None:
    document = parse_document("a:\n  - {tp: 8}\n  - {tpp: 8}\n", "run.yaml")

    assert validate_part(Strategy, {"tp": 8}, document, ("a", 0)).tensor == 8
    with pytest.raises(ScenarioError) as caught:
        validate_part(Strategy, {"tpp": 8}, document, ("a", 1))
    assert caught.value.field == "a.1.tpp"
    assert str(caught.value.place) == "run.yaml:3:6"


def test_a_part_without_some_keys_keeps_its_places() -> None:
    document = parse_document("cluster:\n  node: x\n  tp: many\n", "run.yaml")

    with pytest.raises(ScenarioError) as caught:
        validate_part(Strategy, {"tp": "many"}, document, ("cluster",))

    assert caught.value.field == "cluster.tp"
    assert str(caught.value.place) == "run.yaml:3:7"


def test_an_unknown_field_is_named_at_its_key_with_the_nearest() -> None:
    error = failure("name: a\nstrategy:\n  tensr: 4\n")

    assert str(error) == "run.yaml:3:3: strategy.tensr: unknown field 'tensr'; did you mean 'tensor'?\n    tensr: 4\n    ^"


@pytest.mark.parametrize(
    ("text", "field", "hint"),
    [
        ("name: a\nstrateg: 1", "strateg", "did you mean 'strategy'?"),
        ("name: a\nothr: 1", "othr", "did you mean 'other'?"),
        ("name: a\nqqq: 1", "qqq", "use one of name, strategy, bandwidth, other"),
        ("name: a\nstrategy: {data_parallel: {mod: x}}", "strategy.data_parallel.mod", "did you mean 'mode'?"),
        ("name: a\nstrategy: {groups: [{}, {mod: x}]}", "strategy.groups.1.mod", "did you mean 'mode'?"),
        ("name: a\nstrategy: {named: {first: {mod: x}}}", "strategy.named.first.mod", "did you mean 'mode'?"),
    ],
)
def test_an_unknown_field_is_found_at_any_depth(text: str, field: str, hint: str) -> None:
    found_field, message, found_hint = told(text)

    assert found_field == field
    assert message == f"unknown field '{field.rsplit('.', maxsplit=1)[-1]}'"
    assert found_hint == hint


@pytest.mark.parametrize(
    ("text", "field", "message", "hint"),
    [
        ("strategy: {tp: 2}", "name", "'name' is missing", "add 'name: ...'"),
        ("name: 3", "name", "3 is not text", None),
        ("name:", "name", "an empty value is not text", None),
        ("name: [a]", "name", "a list is not text", None),
        ("name: a\nstrategy: 4", "strategy", "4 is not a mapping", None),
        ("name: a\nstrategy: []", "strategy", "a list is not a mapping", None),
        ("name: a\nstrategy: {dp: aut}", "strategy.dp", "'aut' is not a whole number or auto", "did you mean 'auto'?"),
        ("name: a\nstrategy: {dp: true}", "strategy.dp", "true is not a whole number or auto", None),
        ("name: a\nstrategy: {dp: 0}", "strategy.dp", "0 is out of range", "write a number that is more than 0"),
        ("name: a\nstrategy: {tp: 1.5}", "strategy.tp", "1.5 is not a whole number", None),
        ("name: a\nstrategy: {tp: '8'}", "strategy.tp", "'8' is not a whole number", "write 8, without quotes"),
        ("name: a\nstrategy: {fraction: -1}", "strategy.fraction", "-1 is out of range", "write a number that is at least 0.0"),
        ("name: a\nstrategy: {fraction: 1}", "strategy.fraction", "1 is out of range", "write a number that is less than 1.0"),
        ("name: a\nstrategy: {fraction: x}", "strategy.fraction", "'x' is not a number", None),
        ("name: a\nstrategy: {flag: maybe}", "strategy.flag", "'maybe' is not true or false", None),
        ("name: a\nstrategy: {colour: gren}", "strategy.colour", "'gren' is not one of red, green", "did you mean 'green'?"),
        (
            "name: a\nstrategy: {data_parallel: {mode: synk}}",
            "strategy.data_parallel.mode",
            "'synk' is not one of sync, async",
            "did you mean 'sync'?",
        ),
        ("name: a\nstrategy: {data_parallel: 4}", "strategy.data_parallel", "4 is not a mapping or off", None),
        ("name: a\nstrategy: {offload: [optimizer, x]}", "strategy.offload.1", "'x' is not one of optimizer, gradients", None),
        ("name: a\nstrategy: {shape: {kind: circle, radius: x}}", "strategy.shape.radius", "'x' is not a number", None),
        ("name: a\nstrategy: {shape: {kind: circle}}", "strategy.shape.radius", "'radius' is missing", "add 'radius: ...'"),
        (
            "name: a\nstrategy: {shape: {kind: square}}",
            "strategy.shape.side",
            "'side' is missing",
            "add 'side: ...', one of short, long",
        ),
        ("name: a\nstrategy: {pair: 4}", "strategy.pair", "4 is not a list", None),
        ("name: a\nbandwidth: 400", "bandwidth", "400 has no unit", "write it with a unit, such as '3.35 TB/s'"),
        ("name: a\nbandwidth: -4 GB/s", "bandwidth", "-4 GB/s is negative", "write a bandwidth such as '3.35 TB/s'"),
        (
            "name: a\nstrategy: {data_parallel: {bucket: 25}}",
            "strategy.data_parallel.bucket",
            "25 has no unit",
            "write it with a unit, such as '80 GB'",
        ),
        ("name: value", "name", "value is a bad name", None),
        ("name: custom", "name", "custom is a bad name", "choose another"),
        ("name: scenario", "name", "scenario is a bad name", "choose another"),
        ("name: whole", None, "makes no sense", None),
    ],
)
def test_a_mistake_is_said_in_plain_words(text: str, field: str | None, message: str, hint: str | None) -> None:
    assert told(text) == (field, message, hint)


def test_the_first_mistake_by_line_is_told() -> None:
    text = "bandwidth: 4\nname: a\nstrategy:\n  flag: maybe\n  dp: x\nqqq: 1\n"

    assert failure(text).field == "bandwidth"
    assert failure(text.replace("bandwidth: 4\n", "")).field == "strategy.flag"


def test_a_misspelt_field_is_told_before_the_field_that_is_missing_for_it() -> None:
    assert told("nme: a\n") == ("nme", "unknown field 'nme'", "did you mean 'name'?")


def test_an_error_that_a_validator_raises_gets_its_place_from_its_field() -> None:
    error = failure("name: nested\nstrategy:\n  groups:\n    - {}\n    - mode: sync\n")

    assert error.field == "strategy.groups.1.mode"
    assert str(error.place) == "run.yaml:5:13"


def test_a_document_that_never_was_a_text_still_names_the_field() -> None:
    with pytest.raises(ScenarioError) as caught:
        validate_document(Run, plain_document({"name": "a", "bandwidth": 4}, "<mapping>"))

    assert str(caught.value) == "<mapping>: bandwidth: 4 has no unit; write it with a unit, such as '3.35 TB/s'"


def test_a_long_value_is_cut_in_the_message() -> None:
    assert len(failure(f"name: a\nstrategy: {{flag: {'x' * 500}}}").message) < 120


def test_a_place_that_is_known_is_kept() -> None:
    document = parse_document("a: {b: 1}\n", "run.yaml")
    place = document.place(("a", "b"))

    assert located(ScenarioError("wrong", field="a", place=place), document).place == place


@pytest.mark.parametrize(
    ("word", "choices", "hint"),
    [
        ("tensr", ["pipeline", "tensor"], "did you mean 'tensor'?"),
        ("Tensor", ["pipeline", "tensor"], "did you mean 'tensor'?"),
        ("RAIL-OPTIMIZED", ["rail_optimized"], "did you mean 'rail_optimized'?"),
        ("zebra", ["pipeline", "tensor"], None),
        ("", ["pipeline"], None),
        ("tensor", [], None),
    ],
)
def test_the_nearest_choice_is_proposed(word: str, choices: list[str], hint: str | None) -> None:
    assert did_you_mean(word, choices) == hint


def test_without_a_near_choice_the_choices_are_listed() -> None:
    assert choices_hint("zebra", ["a", "b"]) == "use one of a, b"
    assert choices_hint("zebra", [str(number) for number in range(20)], longest=3) == "use one of 0, 1, 2, ..."
