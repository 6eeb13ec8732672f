from __future__ import annotations

import time
from pathlib import Path

import pytest

from clustersim.documents.text import Document, parse_document, plain_document, read_document
from clustersim.errors import Place, ScenarioError

SCENARIO = """\
version: 1
name: big run
cluster:
  node: dgx-h100
  nodes: 64
strategy: {tp: 8, dp: auto}
checks: ["a <= 1", b]
parts:
  - {kind: x}
  -
    kind: y
"""


def failure(text: str) -> ScenarioError:
    with pytest.raises(ScenarioError) as caught:
        parse_document(text, "run.yaml")
    return caught.value


def test_a_document_becomes_plain_python() -> None:
    data = parse_document(SCENARIO, "run.yaml").data

    assert data == {
        "version": 1,
        "name": "big run",
        "cluster": {"node": "dgx-h100", "nodes": 64},
        "strategy": {"tp": 8, "dp": "auto"},
        "checks": ["a <= 1", "b"],
        "parts": [{"kind": "x"}, {"kind": "y"}],
    }
    assert type(data) is dict
    assert type(data["checks"]) is list


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("017", 17),
        ("0o17", 15),
        ("0x1F", 31),
        ("-8", -8),
        ("+8", 8),
        ("1_000", 1000),
        ("1e3", 1000.0),
        ("1.5e12", 1.5e12),
        ("-.5", -0.5),
        ("true", True),
        ("False", False),
        ("yes", "yes"),
        ("on", "on"),
        ("~", None),
        ("", None),
        ("null", None),
        ("2026-11-20", "2026-11-20"),
        ("12:30:45", "12:30:45"),
        ("=", "="),
        ("'8'", "8"),
        ('"true"', "true"),
        ("3.35 TB/s", "3.35 TB/s"),
        ("!!str 8", "8"),
        ("|\n  two\n  lines", "two\nlines"),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    read = parse_document(f"key: {text}", "run.yaml").data["key"]

    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("path", "key", "line", "column"),
    [
        ((), False, 1, 1),
        (("version",), False, 1, 10),
        (("version",), True, 1, 1),
        (("cluster",), False, 4, 3),
        (("cluster",), True, 3, 1),
        (("cluster", "nodes"), False, 5, 10),
        (("cluster", "nodes"), True, 5, 3),
        (("strategy", "dp"), False, 6, 23),
        (("strategy", "dp"), True, 6, 19),
        (("checks", 1), False, 7, 20),
        (("checks", 1), True, 7, 20),
        (("parts", 0, "kind"), False, 9, 12),
        (("parts", 1, "kind"), True, 11, 5),
    ],
)
def test_every_key_and_value_has_its_place(path: tuple[str | int, ...], key: bool, line: int, column: int) -> None:
    place = parse_document(SCENARIO, "run.yaml").place(path, key=key)

    assert place == Place(file="run.yaml", line=line, column=column, text=SCENARIO.splitlines()[line - 1])


@pytest.mark.parametrize("path", [("cluster", "fabric"), ("cluster", "fabric", "topology"), ("cluster", 3)])
def test_the_place_of_what_is_absent_is_that_of_its_parent(path: tuple[str | int, ...]) -> None:
    document = parse_document(SCENARIO, "run.yaml")

    assert document.place(path) == document.place(("cluster",))


def test_the_place_of_an_empty_value_is_its_key() -> None:
    document = parse_document("a:\nb: 1\n", "run.yaml")

    assert (document.place(("a",)).line, document.place(("a",)).column) == (1, 1)


def test_tabs_become_blanks_so_that_the_caret_fits() -> None:
    assert parse_document('a: "x\ty"', "run.yaml").place(("a",)).text == 'a: "x y"'


def test_a_very_long_line_is_not_shown() -> None:
    place = parse_document(f"a: {'x' * 5000}", "run.yaml").place(("a",))

    assert (place.line, place.column, place.text) == (1, 4, None)


def test_aliases_share_their_value() -> None:
    assert parse_document("a: &x {n: 1}\nb: *x\n", "run.yaml").data == {"a": {"n": 1}, "b": {"n": 1}}


def test_a_duplicate_key_is_an_error_at_the_second() -> None:
    error = failure("a: 1\nb:\n  c: 2\n  c: 3\n")

    assert str(error) == "run.yaml:4:3: key 'c' is given twice; it stands already in line 3; delete one\n    c: 3\n    ^"


@pytest.mark.parametrize(
    ("text", "message", "line", "column"),
    [
        ("- a\n- b\n", "is not a mapping", 1, 1),
        ("just words\n", "is not a mapping", 1, 1),
        ("a: [1, 2\n", "is not YAML: '[' is not closed before the end", 1, 4),
        ("a: {b: 1\nc: 2\n", "is not YAML: expected ',' or '}', but got ':', inside '{' of line 1", 2, 2),
        ("a: {b: 1 c: 2}\n", "is not YAML: expected", 1, 11),
        ('a: "b\nc: 2\n', "is not YAML: the quote is not closed before the end", 1, 4),
        ("a: b: c\n", "is not YAML: mapping values are not allowed", 1, 5),
        ("x: 1\n\ty: 2\n", "is not YAML: found character", 2, 1),
        ("a: *nowhere\n", "is not YAML: found undefined alias", 1, 4),
        ("a: 1\n---\nb: 2\n", "is not YAML: expected a single document in the stream, but found another document", 2, 1),
        ("a: !python/object:os.system x\n", "tag !python/object:os.system is not understood", 1, 4),
        ("a: !!binary aGk=\n", "tag tag:yaml.org,2002:binary is not understood", 1, 4),
        ("a: !!set {x, y}\n", "is not understood", 1, 4),
        ("a: !!int many\n", "many is not a number", 1, 4),
        ("1: a\n", "key 1 is not text", 1, 1),
        ("b: 2\ntrue: a\n", "key true is not text", 2, 1),
        ("? [a, b]\n: c\n", "a list or mapping as key is not text", 1, 3),
        ("<<: {a: 1}\n", "'<<' is not part of YAML 1.2", 1, 1),
        ("a: .nan\n", ".nan is not a finite number", 1, 4),
        ("a: -.inf\n", "-.inf is not a finite number", 1, 4),
        ("a: 1e999\n", "1e999 is not a finite number", 1, 4),
        (f"a: {'9' * 5000}\n", "is not a number", 1, 4),
    ],
)
def test_what_cannot_be_read_is_one_error_with_line_and_column(text: str, message: str, line: int, column: int) -> None:
    error = failure(text)

    assert message in error.message
    assert error.place is not None
    assert (error.place.file, error.place.line, error.place.column) == ("run.yaml", line, column)
    assert len(error.message) < 120


def test_a_tab_as_indent_gets_a_hint() -> None:
    assert failure("a:\n\tb: 1\n").hint == "indent with blanks, not with tabs"


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n", "\ufeff"])
def test_an_empty_document_is_refused(text: str) -> None:
    assert "is empty" in failure(text).message or "is not a mapping" in failure(text).message


@pytest.mark.parametrize("text", ["a\0b", "a: \x07", "\x1b[31mred"])
def test_control_characters_are_refused_and_not_echoed(text: str) -> None:
    error = failure(text)

    assert error.message in {"is binary, not text", "is not YAML: it holds characters that are not allowed"}
    assert str(error).isprintable()


def billion_laughs() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "{a: " * 100_000,
        "- " * 100_000,
        "? " * 100_000,
        "a: " + "[" * 60 + "]" * 60,
        "&a {a: *a}",
        "a: &a [*a]",
        billion_laughs(),
        "a: [" + "b, " * 100_000,
        "x" * 1_900_000,
        '"' + "x" * 1_900_000,
        "#" * 1_900_000,
    ],
    ids=[
        "brackets",
        "braces",
        "dashes",
        "keys",
        "deep",
        "loop",
        "list loop",
        "aliases",
        "long list",
        "word",
        "string",
        "comment",
    ],
)
def test_garbage_is_refused_quickly_and_without_a_traceback(text: str) -> None:
    before_s = time.process_time()

    error = failure(text)

    assert error.place is not None
    assert len(str(error)) < 500
    # A generous bound for a slow machine, whatever else it does: what it must not do is hang.
    assert time.process_time() - before_s < 30


def test_a_file_is_read_with_its_path_as_name(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("name: Ünïcode\n", encoding="utf-8-sig")

    document = read_document(path)

    assert document.name == str(path)
    assert document.data == {"name": "Ünïcode"}
    assert document.place(("name",)).column == 7


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_line_endings_of_all_systems_are_read(tmp_path: Path, ending: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes(f"a: 1{ending}b: 2{ending}".encode())

    document = read_document(path)

    assert document.data == {"a": 1, "b": 2}
    assert document.place(("b",)).line == 2


def test_a_missing_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="no such file") as caught:
        read_document(tmp_path / "nowhere" / "run.yaml")

    assert "nowhere does not exist" in str(caught.value.hint)


def test_a_document_without_a_text_has_places_without_lines() -> None:
    document = plain_document({"a": {"b": 1}}, "<mapping>")

    assert document.data == {"a": {"b": 1}}
    assert document.place(("a", "b")) == Place(file="<mapping>")


def test_a_value_can_be_set_and_the_original_stays() -> None:
    document = parse_document(SCENARIO, "run.yaml")

    changed = document.with_value(("strategy", "tp"), 4)

    assert changed.data["strategy"] == {"tp": 4, "dp": "auto"}
    assert document.data["strategy"] == {"tp": 8, "dp": "auto"}
    assert changed.place(("strategy", "tp")) == document.place(("strategy", "tp"))


def test_setting_a_value_makes_the_mappings_on_the_way() -> None:
    document = Document(name="run.yaml", data={"a": 1})

    assert document.with_value(("b", "c", "d"), "x").data == {"a": 1, "b": {"c": {"d": "x"}}}
    assert document.with_value(("a", "c"), "x").data == {"a": {"c": "x"}}


def test_a_document_knows_what_its_text_wrote_and_what_was_set_later() -> None:
    document = parse_document("a: {b: 1}\n", "x.yaml").with_value(["c", "d"], 2)

    assert document.wrote(["a"])
    assert document.wrote(["a", "b"])
    assert not document.wrote(["c"])
    assert not document.wrote(["a", "b", "e"])


def test_a_mapping_that_never_was_a_text_wrote_nothing() -> None:
    assert not plain_document({"a": 1}, "mapping").wrote(["a"])
