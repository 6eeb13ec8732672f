"""The command line: parses arguments, calls one function, reports how it ended.

The module of a command is imported when it is asked for, so that ``clustersim --help`` starts at once.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from types import FrameType, MappingProxyType
from typing import Annotated, Any, Final, Protocol, runtime_checkable

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from clustersim import __version__
from clustersim.cli.terminal import notice, open_standard_files, silence_stdout, write_out
from clustersim.documents.field_names import field_meant
from clustersim.documents.text import HALF, WHOLE
from clustersim.errors import (
    EXIT_BAD_INPUT,
    EXIT_BUG,
    EXIT_INTERRUPTED,
    EXIT_NO,
    EXIT_OK,
    DomainError,
    InfeasibleError,
    ScenarioError,
    forget_interruption,
)

app: Final = typer.Typer(
    name="clustersim",
    help="Predict how long a training step of a large model takes on a GPU cluster, and where the time goes.",
    epilog=(
        "Exit codes: 0 done; 1 done, and the answer is no; 2 wrong command line or input; 3 some points of a sweep failed;"
        " 70 a bug; 130 interrupted."
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Plain help: rich alone would take longer to import than the start-up budget.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        write_out(f"clustersim {__version__}\n")
        raise typer.Exit


def _remember_traceback(asked: bool) -> None:
    if asked:
        os.environ["CLUSTERSIM_TRACEBACK"] = "1"


@app.callback()
def common_options(
    version: Annotated[bool, typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Print the version.")] = False,
    traceback: Annotated[bool, typer.Option("--traceback", callback=_remember_traceback, help="Print the traceback of a bug.")] = False,
) -> None:
    """Take the options that stand before the command; their callbacks do the work."""
    del version, traceback


@dataclass(frozen=True, slots=True)
class CommandRow:
    """A command: its module, and the line that help has about it."""

    module: str
    summary: str

    def load(self, name: str) -> TyperCommand:
        """Return the command with its options, which imports what it needs."""
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
        alone.command(name)(getattr(import_module(f"clustersim.cli.{self.module}"), f"{name.replace('-', '_')}_command"))
        command = typer.main.get_command(alone)
        assert isinstance(command, TyperCommand)
        for parameter in command.params:
            if isinstance(parameter, TyperArgument):
                _show_plainly(parameter)
        return command


def _show_plainly(argument: TyperArgument) -> None:
    """Let help say ``RUN...`` and ``[CLUSTER]`` where the library would say ``{RUN}... <list[str]>``."""
    name = f"{argument.metavar}{'...' if argument.nargs != 1 else ''}"
    argument.display_type_rich = lambda ctx: None  # noqa: ARG005 - the name is the library's
    argument.get_usage_pieces = lambda ctx: [name if argument.required else f"[{name}]"]  # noqa: ARG005


COMMANDS: Final[Mapping[str, CommandRow]] = MappingProxyType(
    {
        "run": CommandRow("run", "Simulate one training step and report where the time goes."),
        "compare": CommandRow("compare", "Compare runs with the first, and show what differs."),
        "runs": CommandRow("compare", "List, tag or compare earlier runs, the latest first."),
        "explain": CommandRow("run", "Explain what sets the step time, and what would shorten it."),
        "sweep": CommandRow("sweep", "Run a scenario for all combinations of some values."),
        "what-if": CommandRow("sweep", "Compare changes: which is best, and what that depends on."),
        "plot": CommandRow("plot", "Draw a plot of runs, of a sweep or of predictions."),
        "report": CommandRow("plot", "Write an HTML page of a run, of several runs, or of a sweep."),
        "export": CommandRow("export", "Write a run for Perfetto, or a scenario for a framework."),
        "import": CommandRow("export", "Convert files of a training framework into a scenario."),
        "plan": CommandRow("plan", "Find the fastest layout of a model on a cluster."),
        "buy": CommandRow("plan", "Choose among clusters for a training."),
        "advise": CommandRow("plan", "Recommend a family of parallel strategies for a model."),
        "ui": CommandRow("ui", "Open a page to change and run a scenario."),
        "show": CommandRow("show", "List shipped files, or show some in full."),
        "validate": CommandRow("validate", "Compare predictions with published measurements."),
        "measure": CommandRow("calibrate", "Write a script of microbenchmarks for one node."),
        "calibrate": CommandRow("calibrate", "Fit a calibration file to your own measurements."),
        "collective": CommandRow("collective", "Print time and bandwidth of a collective, in the columns of nccl-tests."),
        "flows": CommandRow("collective", "Print the end times of flows on shared links."),
        "study": CommandRow("sweep", "Answer a question by many runs, with tables and plots."),
        "schedule": CommandRow("schedule", "Print the pipeline schedule of a scenario."),
        "init": CommandRow("init", "Write a commented scenario to start from."),
        "schema": CommandRow("init", "Print the JSON Schema of a scenario."),
    }
)
"""In the order in which help lists them."""


class LazyCommand(TyperCommand):
    """A command whose module is imported when it is asked for, so that ``clustersim --help`` starts at once."""

    def __init__(self, name: str, row: CommandRow) -> None:
        super().__init__(name, help=row.summary, short_help=row.summary, rich_markup_mode=None)
        self._load = row.load

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:  # noqa: ANN401 - contexts are private to the library
        """Return a context of the command itself."""
        assert self.name is not None
        return self._load(self.name).make_context(info_name, args, parent, **extra)


def make_app() -> TyperGroup:
    """Return the command line with all commands."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    for name, row in COMMANDS.items():
        group.commands[name] = LazyCommand(name, row)
    return group


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Parameters
    ----------
    arguments
        Words after the program's name; those of the process when omitted.
    """
    open_standard_files()
    for word in arguments or ():
        try:
            os.fsencode(word)
        except UnicodeEncodeError:
            return ended_by(ScenarioError(f"{word!r} {HALF}", hint=WHOLE))
    with interruptible() as interruption:
        try:
            ended: object = make_app().main(
                args=None if arguments is None else list(arguments), prog_name="clustersim", standalone_mode=False
            )
        except SystemExit:
            # The command-line library ends so when nobody reads its help any more.
            return EXIT_OK
        except Exception as error:  # noqa: BLE001 - the outermost frame: whatever arrives here gets a clear line and an exit code
            if isinstance(error, ScenarioError) and error.options:
                words = [*(sys.argv[1:] if arguments is None else arguments)]
                end = words.index("--") if "--" in words else len(words)
                error.hint = f"all at once: clustersim {shlex.join(words[:end])} {error.options} {shlex.join(words[end:])}".rstrip()
            return ended_by(error, interrupted=interruption.arrived)
        except KeyboardInterrupt as error:
            return ended_by(error, interrupted=True)
    code = ended if isinstance(ended, int) else EXIT_OK
    if code == EXIT_INTERRUPTED:
        forget_interruption()
        notice("interrupted")
    return code


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


if __name__ == "__main__":
    sys.exit(main())
