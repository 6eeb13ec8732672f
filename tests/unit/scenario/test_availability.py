"""Keys of later versions: neutral values pass, others get one clear refusal."""

from __future__ import annotations

import json

import pytest

from clustersim.documents.text import parse_document, plain_document
from clustersim.errors import ScenarioError
from clustersim.scenario.availability import AVAILABLE, check_availability
from tests.unit.scenario.samples import TEXT, built, refusal, small

LATER = [
    ("strategy.cp=2", "2 is not available in this version", "use 1, or leave the key out"),
    ("strategy.ep=8", "8 is not available in this version", "use 1, or leave the key out"),
    ("strategy.expert_load=zipf", "'zipf' is not available in this version", "use 'balanced', or leave the key out"),
    ("strategy.placement=auto", "'auto' is not available in this version", "name the order, fastest-varying first: [tp, cp, ep, dp, pp]"),
]


@pytest.mark.parametrize(("override", "message", "hint"), LATER)
def test_a_later_feature_is_refused_with_what_is_available(override: str, message: str, hint: str) -> None:
    error = refusal(override)

    assert (error.field, error.message, error.hint) == (override.partition("=")[0], message, hint)


@pytest.mark.parametrize("field", [field for field, values in AVAILABLE.items() if values])
def test_every_available_value_is_taken(field: str) -> None:
    for value in AVAILABLE[field]:
        assert built(f"{field}={json.dumps(value)}").plan.strategy.tp == 2


def test_the_refusal_has_the_place_of_the_value() -> None:
    document = parse_document(TEXT + "  cp: 4\n", "small.yaml")

    with pytest.raises(ScenarioError) as caught:
        check_availability(document)

    assert str(caught.value.place) == "small.yaml:22:7"


def test_a_scenario_without_later_keys_passes() -> None:
    check_availability(plain_document(small(), "small"))


def test_a_misspelt_schedule_is_a_mistake_and_not_a_later_feature() -> None:
    error = refusal("strategy.schedule=1f1")

    assert error.message.startswith("'1f1' is not one of naive, gpipe, 1f1b")
    assert error.hint == "did you mean '1f1b'?"
