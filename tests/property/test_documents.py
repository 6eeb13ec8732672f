from __future__ import annotations

import math
from io import StringIO

from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from clustersim.documents.text import Document, parse_document
from clustersim.errors import ScenarioError

words = st.text(alphabet="abcdefgh xyz-_0123456789.", min_size=1, max_size=12)
scalars = st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False) | words
documents = st.dictionaries(
    words,
    st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4), max_leaves=12),
    min_size=1,
    max_size=5,
)


def written(data: object) -> str:
    yaml = YAML(typ="safe", pure=True)
    yaml.version = (1, 2)
    # The library breaks long lines inside keys, which it then cannot read itself.
    yaml.default_flow_style = False
    yaml.width = 10**6
    stream = StringIO()
    yaml.dump(data, stream)
    return stream.getvalue()


def document_or_error(text: str) -> Document | ScenarioError:
    try:
        return parse_document(text, "run.yaml")
    except ScenarioError as error:
        return error


@settings(deadline=None)
@given(data=documents)
def test_what_was_written_is_read_back(data: dict[str, object]) -> None:
    assert parse_document(written(data), "run.yaml").data == data


@settings(deadline=None)
@given(data=documents)
def test_every_scalar_stands_where_its_place_says(data: dict[str, object]) -> None:
    document = parse_document(written(data), "run.yaml")

    for key, value in data.items():
        place = document.place((key,), key=True)
        assert place.text is not None
        assert place.column is not None
        assert key.strip() in place.text[place.column - 1 :]
        if isinstance(value, int) and not isinstance(value, bool):
            at = document.place((key,))
            assert at.text is not None
            assert at.column is not None
            assert at.text[at.column - 1 :].startswith(str(value))


@settings(deadline=None, max_examples=150)
@given(text=st.text(max_size=200) | st.text(alphabet="a: -[]{}?&*!|>'\"%#,\n\t0.~<=", max_size=80))
def test_any_text_is_a_mapping_or_one_clear_error(text: str) -> None:
    read = document_or_error(text)

    if isinstance(read, ScenarioError):
        assert read.message
        assert read.place is not None
        assert read.place.file == "run.yaml"
    else:
        assert all(not isinstance(value, float) or math.isfinite(value) for value in read.data.values())
