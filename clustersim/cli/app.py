"""The command line: reads arguments, calls one function, says how it ended.

Everything heavy is imported inside the commands, so that ``clustersim --help`` starts at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Final

import typer

from clustersim import __version__
from clustersim.cli import many_runs, one_run
from clustersim.cli.ending import ended_by
from clustersim.cli.options import JsonOption
from clustersim.cli.signals import forget_interruption, interruptible
from clustersim.cli.terminal import notice, open_standard_files, write_out
from clustersim.documents.spots import HALF, WHOLE
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


def show(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="accelerators, nodes, clusters, models, examples, prices or presets.")],
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show this one in full, with its sources.")] = None,
    json: JsonOption = False,
) -> int:
    """List what is shipped, or show one thing in full."""
    from clustersim.cli.show import show_command

    return show_command(kind, name, as_json=json)


def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new scenario.")] = "my-scenario",
    example: Annotated[str, typer.Option("--from", metavar="EXAMPLE", help="Shipped example to start from.")] = "starter",
    out: Annotated[str | None, typer.Option("--out", "-o", metavar="FILE", help="File to write; default NAME.yaml.")] = None,
) -> int:
    """Write a commented scenario to start from."""
    from clustersim.cli.init import init_command

    return init_command(name, example, out)


def schema(*, serving: Annotated[bool, typer.Option("--serving", help="Of a serving scenario.")] = False) -> int:
    """Print the JSON Schema of a scenario."""
    from clustersim.cli.schema import schema_command

    return schema_command(serving=serving)


COMMANDS: Final[Mapping[str, Callable[..., int]]] = MappingProxyType(
    {
        "run": one_run.run,
        "compare": one_run.compare,
        "runs": many_runs.runs,
        "explain": one_run.explain,
        "sweep": many_runs.sweep,
        "what-if": many_runs.what_if,
        "plot": one_run.plot,
        "report": one_run.report,
        "export": one_run.export,
        "import": one_run.import_,
        "plan": many_runs.plan,
        "buy": many_runs.buy,
        "advise": many_runs.advise,
        "ui": one_run.ui,
        "show": show,
        "validate": many_runs.validate,
        "calibrate": many_runs.calibrate,
        "collective": one_run.collective,
        "flows": one_run.flows,
        "study": many_runs.study,
        "schedule": one_run.schedule,
        "init": init,
        "schema": schema,
    }
)
"""In the order in which help lists them."""

for _name, _command in COMMANDS.items():
    app.command(_name)(_command)


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
    with interruptible() as heard:
        try:
            ended: object = typer.main.get_command(app).main(
                args=None if arguments is None else list(arguments), prog_name="clustersim", standalone_mode=False
            )
        except SystemExit:
            # The command-line library ends so when nobody reads its help any more.
            return EXIT_OK
        except Exception as error:  # noqa: BLE001 - the outermost frame: whatever arrives here gets a clear line and an exit code
            return ended_by(error, interrupted=heard.any)
        except KeyboardInterrupt as error:
            return ended_by(error, interrupted=True)
    code = ended if isinstance(ended, int) else EXIT_OK
    if code == EXIT_INTERRUPTED:
        forget_interruption()
        notice("interrupted")
    return code


if __name__ == "__main__":
    sys.exit(main())
