from __future__ import annotations

import io
import sys

import pytest

from clustersim.cli import watching
from clustersim.cli.watching import Profile, ProgressLine, watched
from clustersim.progress import advanced, counted, noted, phase, watched_by


class Terminal(io.StringIO):
    """A stream that rich takes for a terminal."""

    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, *, patience_s: float, stream: io.StringIO) -> str:
    """Return what stands on stderr after a phase that is told how far it is."""
    monkeypatch.setattr(watching, "PATIENCE_S", patience_s)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with watched(), phase("replay"):
        advanced(1, 4)
    return stream.getvalue()


@pytest.mark.parametrize(("patience_s", "stream", "told"), [(0.0, Terminal, True), (60.0, Terminal, False), (0.0, io.StringIO, False)])
def test_a_bar_shows_on_a_terminal_what_takes_long(
    monkeypatch: pytest.MonkeyPatch, patience_s: float, stream: type[io.StringIO], told: bool
) -> None:
    text = shown(monkeypatch, patience_s=patience_s, stream=stream())

    assert ("replay" in text) == bool(text) == told


def test_a_phase_that_counts_is_shown_while_its_parts_count_for_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "PATIENCE_S", 0.0)
    bar = ProgressLine()

    with watched_by(bar), phase("draw"), phase("rows"):
        advanced(3, 4)
        with phase("replay"):
            advanced(1, 9)

            assert bar.shown() == "rows, 3 of 4"

    bar.close()


def test_a_search_shows_what_it_has_done_and_no_share_of_what_nobody_knows() -> None:
    bar = ProgressLine()

    with watched_by(bar), phase("options"):
        advanced(1, 6)
        with phase("plan"):
            counted("120 bounds")

            assert bar.shown() == "options, 1 of 6; plan, 120 bounds"

    bar.close()


def test_where_stderr_is_no_terminal_a_line_says_now_and_then_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "EVERY_S", 0.0)
    assert shown(monkeypatch, patience_s=60.0, stream=io.StringIO()).splitlines() == ["0 s: replay", "0 s: replay, 1 of 4"]


def test_who_stops_a_search_is_told_how_far_it_was_and_the_best_so_far(capsys: pytest.CaptureFixture[str]) -> None:
    def search() -> None:
        with watched(hint="--time-limit ends it"), phase("options"):
            with phase("plan"):
                noted("best so far: tp=4")
            advanced(1, 4)
            noted("so far: one\nso far: two")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search()

    said = ["stopped after 0 s: options, 1 of 4", "so far: one", "so far: two", "--time-limit ends it"]
    assert capsys.readouterr().err.splitlines() == said


def test_a_phase_may_end_after_those_around_it() -> None:
    bar = ProgressLine(on_terminal=False)
    bar.begun("outer")
    bar.begun("inner")
    bar.ended("outer", 0.0)
    bar.ended("inner", 0.0)
    bar.begun("next")

    assert bar.shown() == "next"


def test_a_profile_counts_phases_by_the_way_to_them() -> None:
    profile = Profile()

    with watched_by(profile):
        for _ in range(2):
            with phase("simulate"), phase("lower"):
                advanced(1, 2)
        with phase("lower"):
            pass

    assert [(way, times) for way, (times, _) in profile.phases.items()] == [
        (("simulate",), 2),
        (("simulate", "lower"), 2),
        (("lower",), 1),
    ]
    assert profile.phases[("simulate",)][1] >= profile.phases["simulate", "lower"][1] > 0.0
    assert [line.split("  ")[0] for line in profile.lines()][-2:] == ["elsewhere", "altogether"]
    assert profile.lines()[0].endswith("2 times")


def test_a_phase_that_fails_has_ended_too() -> None:
    profile = Profile()

    with watched_by(profile), pytest.raises(ValueError, match="wrong"), phase("outer"), phase("inner"):
        raise ValueError("wrong")

    assert [times for times, _ in profile.phases.values()] == [1, 1]
