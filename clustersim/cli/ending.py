"""Ends of a command: signals, an exit code, and one line that says why."""

from __future__ import annotations

import errno
import os
import re
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import Final, Protocol, runtime_checkable

import typer

from clustersim.cli.terminal import notice, silence_stdout
from clustersim.documents.field_names import field_meant
from clustersim.errors import EXIT_BAD_INPUT, EXIT_BUG, EXIT_INTERRUPTED, EXIT_NO, DomainError, InfeasibleError, ScenarioError

_LONGEST: Final = 400
"""Characters of one part of an error message."""
_UNKNOWN_OPTION: Final = re.compile(r"(No such option: --([a-z][\w-]*))")
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a full disk, which is no mistake of the input."""


@runtime_checkable
class _UsageProblem(Protocol):
    """Exception of the command-line library for a wrong command line, under any of its releases."""

    exit_code: int

    def format_message(self) -> str: ...


def ended_by(error: BaseException, *, interrupted: bool = False) -> int:
    """Tell a person what went wrong, and return the exit code.

    Parameters
    ----------
    interrupted
        Whether a signal came, whatever was raised after it.
    """
    if interrupted or isinstance(error, typer.Abort):
        forget_interruption()
        notice("interrupted")
        return EXIT_INTERRUPTED
    if isinstance(error, DomainError):
        for each in (error, *(error.further if isinstance(error, ScenarioError) else ())):
            notice(f"error: {_short(each)}")
        return EXIT_BAD_INPUT
    if isinstance(error, InfeasibleError):
        notice(f"error: {error}")
        return EXIT_NO
    if isinstance(error, _UsageProblem):
        # Help itself arrives here when there are no arguments at all.
        message = _with_setting(error.format_message()).replace("Input should be", "it should be").partition(", unable to parse")[0]
        notice(message if message.startswith("Usage:") else f"error: {_one_line(message)}")
        return EXIT_BAD_INPUT
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        silence_stdout()
        notice(f"error: cannot write: {error.strerror}; make room")
        return EXIT_BAD_INPUT
    if isinstance(error, OSError) and error.filename is not None:
        # A name that no file can have, or a file that is not what it was a moment ago.
        notice(f"error: {_one_line(str(error.filename))}: {error.strerror or error}")
        return EXIT_BAD_INPUT
    if isinstance(error, MemoryError):
        notice("error: there is not enough memory for this; ask for less, such as fewer nodes, layers or micro-batches")
        return EXIT_BAD_INPUT
    return _report_bug(error)


def _with_setting(message: str) -> str:
    """Return the message on an unknown option; where it is a setting of a scenario, with the way to change it."""
    option = _UNKNOWN_OPTION.match(message)
    if option is None:
        return message
    from clustersim.config.scenario_schema import ScenarioSpec

    key = field_meant(ScenarioSpec, option[2].replace("-", "_"))
    return message if key is None else f"{option[1]}; in a scenario it is {key}: write -s {key}=..."


def _short(error: DomainError) -> ScenarioError:
    """Return the error on one line that a terminal can show; what users write may be long and hold control characters."""
    field, place = (error.field, error.place) if isinstance(error, ScenarioError) else (None, None)
    return ScenarioError(
        _one_line(error.message),
        field=_one_line(field) if field else None,
        hint=_one_line(error.hint) if error.hint else None,
        place=replace(place, file=_one_line(place.file)) if place else None,
    )


def _one_line(text: str) -> str:
    shown = text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in shown)


def _report_bug(error: BaseException) -> int:
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


_ENDING: Final = tuple(number for name in ("SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None)


@dataclass(slots=True)
class Interruption:
    """Arrival of a signal: a library that is interrupted while it is imported may raise anything."""

    arrived: bool = False


@contextmanager
def interruptible() -> Generator[Interruption]:
    """Let SIGTERM and SIGHUP end what runs inside as Ctrl-C does, so that all of it is cleaned up.

    A signal that is ignored, as SIGHUP is under ``nohup``, or that somebody else handles stays as it is.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number, frame
        interruption.arrived = True
        raise KeyboardInterrupt

    defaults = {signal.SIGINT: signal.default_int_handler, **dict.fromkeys(_ENDING, signal.SIG_DFL)}
    ours = {number: default for number, default in defaults.items() if signal.getsignal(number) is default}
    for number in ours:
        signal.signal(number, interrupt)
    try:
        yield interruption
    finally:
        for number, default in ours.items():
            signal.signal(number, default)


def forget_interruption() -> None:
    """Let the process end with the exit code that it is given.

    CPython remembers a KeyboardInterrupt that left code run by ``exec``, as it makes dataclasses and named tuples, and kills the process by
    SIGINT at the end, also where the exception was caught outside; the next ``exec`` makes it forget that.
    """
    exec("")  # noqa: S102 - nothing is run
