"""A scenario in an address."""

from __future__ import annotations

import base64
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.apps.ui.link import PREFIX, document_of, link_of
from clustersim.config.load import example_names, load_scenario
from clustersim.errors import ScenarioError

KEYS = st.text("abcdefghij_", min_size=1, max_size=8).filter(lambda key: key[0] != "_")
LEAVES = st.one_of(st.booleans(), st.integers(-(10**9), 10**9), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=20))
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, min_size=1, max_size=3), max_leaves=8
)


def packed(raw: bytes) -> str:
    return PREFIX + base64.urlsafe_b64encode(zlib.compress(raw)).decode().rstrip("=")


def test_an_example_comes_back_from_a_link_that_fits_into_a_message() -> None:
    for name in example_names():
        document = load_scenario(name).document.data

        link = link_of(document)

        assert document_of(link) == document, name
        assert len(link) < 1000, name
        assert set(link.removeprefix(PREFIX)) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"), name


@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=4))
def test_whatever_a_scenario_holds_comes_back(document) -> None:
    assert document_of(link_of(document)) == document


@pytest.mark.parametrize(
    ("link", "message"),
    [
        ("", "the address holds no scenario"),
        ("#scenary=eJw", "the address holds no scenario"),
        (f"{PREFIX}###", "damaged"),
        (f"{PREFIX}a", "damaged"),
        (f"{PREFIX}aaaa", "damaged"),
        (packed(b"model: \xff"), "damaged"),
        (packed(b"model: llama3-8b\n")[:-8], "cut off"),
        (packed(b"a: " + b"x" * 300_000), "too long"),
        (packed(b"- 1\n"), "is not a mapping"),
        (packed(b""), "is empty"),
        (packed(b"model: [\n"), "link:"),
        (packed(b"steps: .nan\n"), "not a finite number"),
    ],
)
def test_a_link_that_holds_no_scenario_is_refused(link: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        document_of(link)

    assert message in str(caught.value)
