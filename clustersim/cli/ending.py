"""How a command line ends when something goes wrong: one clear line, and an exit code."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Final, Protocol, runtime_checkable

import typer

from clustersim.cli.terminal import notice
from clustersim.errors import EXIT_BAD_INPUT, EXIT_BUG, EXIT_INTERRUPTED, EXIT_NO, InfeasibleError, ScenarioError

_LONGEST: Final = 400
"""Characters of one part of an error message."""


@runtime_checkable
class _UsageProblem(Protocol):
    """What the command-line library raises on a wrong command line, wherever a release of it keeps the class."""

    exit_code: int

    def format_message(self) -> str: ...


def ended_by(error: Exception) -> int:
    """Tell a person what went wrong, and return the exit code."""
    if isinstance(error, ScenarioError):
        notice(f"error: {_short(error)}")
        return EXIT_BAD_INPUT
    if isinstance(error, InfeasibleError):
        notice(f"error: {error}")
        return EXIT_NO
    if isinstance(error, _UsageProblem):
        # Help itself arrives here when there are no arguments at all.
        message = error.format_message()
        notice(message if message.startswith("Usage:") else f"error: {_one_line(message)}")
        return EXIT_BAD_INPUT
    if isinstance(error, typer.Abort):
        notice("interrupted")
        return EXIT_INTERRUPTED
    return _report_bug(error)


def _short(error: ScenarioError) -> ScenarioError:
    """Return the error on one line that a terminal can show; what users write may be long and hold control characters."""
    place = error.place
    return ScenarioError(
        _one_line(error.message),
        field=_one_line(error.field) if error.field else None,
        hint=_one_line(error.hint) if error.hint else None,
        place=replace(place, file=_one_line(place.file)) if place else None,
    )


def _one_line(text: str) -> str:
    shown = text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in shown)


def _report_bug(error: Exception) -> int:
    import traceback

    if os.environ.get("CLUSTERSIM_TRACEBACK", "") not in {"", "0"}:
        notice("".join(traceback.format_exception(error)).rstrip())
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].name}, line {frames[-1].lineno})" if frames else ""
    text = str(error)
    notice(f"bug: {type(error).__name__}{': ' if text else ''}{text}{where}")
    notice(
        "This is a mistake in clustersim and not in your input. Please report it with your scenario,"
        " the version (clustersim --version) and the output of 'clustersim --traceback ...'."
    )
    return EXIT_BUG
