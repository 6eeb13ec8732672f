"""The command line: parses arguments, calls one function, reports how it ended.

The module of a command is imported when it is asked for, so that ``clustersim --help`` starts at once.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Annotated, Any, Final

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from clustersim import __version__
from clustersim.cli.ending import ended_by, forget_interruption, interruptible
from clustersim.cli.terminal import notice, open_standard_files, write_out
from clustersim.documents.text import HALF, WHOLE
from clustersim.errors import EXIT_INTERRUPTED, EXIT_OK, ScenarioError

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
        "buy": CommandRow("buy", "Choose among clusters for a training."),
        "advise": CommandRow("advise", "Recommend a family of parallel strategies for a model."),
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


if __name__ == "__main__":
    sys.exit(main())
