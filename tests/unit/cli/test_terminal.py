"""Output streams of the commands."""

from __future__ import annotations

import io
import json
import re
import sys

import pytest

from clustersim.cli.terminal import print_table, write_json, write_lines, write_out


def test_json_is_one_document_with_a_last_newline(capsys: pytest.CaptureFixture[str]) -> None:
    write_json({"name": "é", "value": 1.5})

    out = capsys.readouterr().out
    assert json.loads(out) == {"name": "é", "value": 1.5}
    assert out.endswith("}\n")


def test_json_never_holds_nan() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json({"value": float("nan")})


def test_a_terminal_that_cannot_show_a_character_gets_another(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))

    write_out("é\n")

    assert raw.getvalue() == b"?\n"


def test_a_table_shows_brackets_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name",), [("[bold]x[/bold]",)])

    assert "[bold]x[/bold]" in capsys.readouterr().out


@pytest.mark.parametrize("colour", [True, False])
def test_nothing_stands_behind_the_last_cell_of_a_row(
    colour: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR" if colour else "NO_COLOR", "1")

    print_table(("name", "note"), [("a", "x" * 90), ("b", "")])

    lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == [f"a     {'x' * 90}", "b"]
    assert lines[0].replace("\x1b[1m", "").replace("\x1b[0m", "") == "name  note"
    assert ("\x1b[1m" in lines[0]) == colour


def test_on_a_terminal_text_is_folded_to_the_width_and_in_a_pipe_a_row_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    table = ("name", ">size", "about"), [("one", "1,234,567 bytes", "word " * 20)]

    print_table(*table)
    piped = capsys.readouterr().out.splitlines()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_table(*table)
    folded = capsys.readouterr().out.splitlines()

    assert len(piped) == 2
    assert len(folded) > 2
    assert max(map(len, folded[1:])) <= 40
    assert folded[1].startswith("one   1,234,567 bytes  word word")


def test_columns_without_room_on_a_terminal_follow_below_and_names_are_folded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "21")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    print_table(("name", ">step-of-all-ranks", ">cost", ">", ">MFU"), [("one", "18.62 s", "14.7 MUSD", "+1 %", "40 %")])

    shown = re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out).splitlines()
    assert [line.rstrip() for line in shown] == [
        *("         step-of-all-", "name            ranks", "one           18.62 s", ""),
        *("name       cost", "one   14.7 MUSD  +1 %", ""),
        *("name   MFU", "one   40 %"),
    ]


def test_what_people_alone_read_is_folded_in_a_pipe_too(capsys: pytest.CaptureFixture[str]) -> None:
    write_lines("many words " * 20 + "17.0 %", piped=True)
    print_table(("name", "note"), [("a", "many words " * 20)], piped=True)

    assert max(map(len, capsys.readouterr().out.splitlines())) <= 100
