from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest

from clustersim.documents import json_text
from clustersim.documents.json_text import place_in, read_json
from clustersim.errors import ScenarioError

TEXT = """{
  "links": [{"name": "a"},
            {"name": "b", "latency_s": -1}],
  "flows": [
    {"route": ["a", "b"], "bytes": 5}
  ]
}
"""


def refused(source: Path | str) -> ScenarioError:
    with pytest.raises(ScenarioError) as caught:
        read_json(str(source))
    return caught.value


def written(folder: Path, raw: bytes) -> Path:
    path = folder / "x.json"
    path.write_bytes(raw)
    return path


def test_a_file_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, b'\xef\xbb\xbf{"a": [1, 2.5, null]}')

    assert read_json(str(path)) == (str(path), '{"a": [1, 2.5, null]}', {"a": [1, 2.5, None]})


def test_a_packed_file_is_read_whatever_its_name(tmp_path: Path) -> None:
    assert read_json(str(written(tmp_path, gzip.compress(b"[1]"))))[2] == [1]


@pytest.mark.parametrize("raw", [b"[1]", gzip.compress(b"[1]")], ids=["plain", "packed"])
def test_stdin_is_read(monkeypatch: pytest.MonkeyPatch, raw: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(raw)))

    assert read_json("-") == ("<stdin>", "[1]", [1])


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"\xff\xfe\x00", "is not text in UTF-8"),
        (b"[" * 100_000, "is nested too deep"),
        (b"9" * 5000, "is not JSON: Exceeds the limit"),
        (b"\x1f\x8bnonsense", "is not a gzip file, though it begins like one"),
        (gzip.compress(b"[1, 2, 3]")[:-9], "is cut off: the end of the gzip file is missing"),
    ],
    ids=["binary", "deep", "long number", "no gzip", "cut off"],
)
def test_what_is_no_json_is_refused(tmp_path: Path, raw: bytes, message: str) -> None:
    assert refused(written(tmp_path, raw)).message.startswith(message)


def test_a_slip_is_shown_where_it_is(tmp_path: Path) -> None:
    error = refused(written(tmp_path, b'{"a": 1,\n "b": 2,,\n}'))

    assert error.message.startswith("is not JSON: ")
    assert error.place is not None
    assert (error.place.line, error.place.column, error.place.text) == (2, 9, ' "b": 2,,')


@pytest.mark.parametrize("raw", [b"[1]" + b" " * 2**20, gzip.compress(b"[1]" + b" " * 2**20)], ids=["plain", "packed"])
def test_a_file_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raw: bytes) -> None:
    monkeypatch.setattr(json_text, "_MAX_BYTES", 2**20)

    assert refused(written(tmp_path, raw)).message == "is larger than 1 MiB"


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ((), (1, 1)),
        (("links",), (2, 12)),
        (("links", 1), (3, 13)),
        (("links", 1, "latency_s"), (3, 40)),
        (("flows", 0, "route", 1), (5, 21)),
        (("flows", 0, "bytes"), (5, 36)),
        # The nearest parent of what is not there.
        (("flows", 0, "start_s"), (5, 5)),
        (("flows", 7), (4, 12)),
        (("flows", "x"), (4, 12)),
    ],
)
def test_values_are_found(path: tuple[str | int, ...], where: tuple[int, int]) -> None:
    place = place_in(TEXT, "x.json", path)

    assert (place.line, place.column) == where


def test_a_key_is_found() -> None:
    place = place_in(TEXT, "x.json", ("links", 1, "latency_s"), key=True)

    assert (place.line, place.column, place.text) == (3, 27, '            {"name": "b", "latency_s": -1}],')


def test_the_last_of_several_equal_keys_counts() -> None:
    assert place_in('{"a": 1, "a": 2}', "x.json", ("a",)).column == 15


def test_a_long_line_is_not_shown() -> None:
    assert place_in('{"a": "' + "x" * 300 + '", "b": 1}', "x.json", ("b",)).text is None
