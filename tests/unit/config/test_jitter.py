from __future__ import annotations

import pytest

from clustersim.config.stragglers import JitterSpec, jitter_of
from clustersim.documents.check import validate_document
from clustersim.documents.text import Data, plain_document
from clustersim.engine.pace import Jitter
from clustersim.errors import ScenarioError
from clustersim.hardware.profile_schema import Checked


class Setting(Checked):
    jitter: JitterSpec | None = None


def spec(jitter: Data) -> JitterSpec | None:
    return validate_document(Setting, plain_document({"jitter": jitter}, "test.yaml")).jitter


@pytest.mark.parametrize(
    ("written", "sigma"), [("3 %", 0.03), ("12.5%", 0.125), ({"sigma": 0.2}, 0.2), ({"sigma": 1, "distribution": "lognormal"}, 1.0)]
)
def test_a_share_or_a_sigma_is_that_of_a_lognormal_factor(written: Data, sigma: float) -> None:
    assert jitter_of(spec(written)) == Jitter(sigma=sigma, distribution="lognormal")


def test_an_exponential_factor_has_a_coefficient_of_variation_of_one() -> None:
    assert jitter_of(spec({"distribution": "exponential"})) == Jitter(sigma=1.0, distribution="exponential")


@pytest.mark.parametrize("written", ["0 %", {"sigma": 0}, None])
def test_no_jitter_is_none(written: Data) -> None:
    assert jitter_of(spec(written)) is None


@pytest.mark.parametrize(
    ("written", "field", "message", "hint"),
    [
        (3, "jitter", "3 is not a share from 0 % to 300 %", "write a share such as '3 %'"),
        ("3", "jitter", "'3' is not a share", "write a share"),
        ("three %", "jitter", "'three %' is not a share", "write a share"),
        ("-3 %", "jitter", "'-3 %' is not a share", "write a share"),
        ("nan %", "jitter", "'nan %' is not a share", "write a share"),
        ("301 %", "jitter", "'301 %' is not a share", "write a share"),
        ([0.1], "jitter", "that is not a share", "write a share"),
        ({}, "jitter", "'sigma' is missing", "sigma: 0.03"),
        ({"sigma": -0.1}, "jitter.sigma", "-0.1 is out of range", "at least 0"),
        ({"sigma": 4.0}, "jitter.sigma", "4.0 is out of range", "at most 3"),
        ({"sigma": "3 %"}, "jitter.sigma", "'3 %' is not a number", ""),
        ({"sigmas": 0.1}, "jitter.sigmas", "unknown field 'sigmas'", "did you mean 'sigma'?"),
        ({"sigma": 0.1, "distribution": "normal"}, "jitter.distribution", "'normal' is not one of lognormal, exponential", "lognormal"),
        ({"sigma": 0.1, "distribution": "exponential"}, "jitter", "no sigma to choose", "delete sigma"),
    ],
)
def test_a_mistake_is_named_at_its_place(written: Data, field: str, message: str, hint: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        spec(written)

    assert caught.value.field == field
    assert message in caught.value.message
    assert hint in str(caught.value.hint)


def test_an_editor_is_told_of_both_ways_to_write_it() -> None:
    shapes = Setting.model_json_schema()["$defs"]["JitterSpec"]["anyOf"]

    assert [shape["type"] for shape in shapes] == ["string", "object"]


@pytest.mark.parametrize("written", ["3 %", {"sigma": 0.2}, {"distribution": "exponential"}])
def test_what_was_read_can_be_written_and_read_again(written: Data) -> None:
    first = spec(written)

    assert first is not None
    assert spec(first.model_dump(mode="json", exclude_none=True)) == first
