"""The command line: reads arguments, calls one function, says how it ended.

Everything heavy is imported inside the commands, so that ``clustersim --help`` starts at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Final, Protocol, runtime_checkable

import typer

from clustersim import __version__
from clustersim.cli.terminal import notice, write_out
from clustersim.errors import (
    EXIT_BAD_INPUT,
    EXIT_BUG,
    EXIT_INTERRUPTED,
    EXIT_NO,
    EXIT_OK,
    InfeasibleError,
    ScenarioError,
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
)

_LONGEST: Final = 400
"""Characters of one part of an error message."""

ScenarioArgument = Annotated[str, typer.Argument(metavar="SCENARIO", help="A path, the name of a shipped example, or - for stdin.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", "-s", metavar="KEY=VALUE", help="Change a value, such as strategy.tp=4. Repeatable.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write one JSON document to stdout.")]


@runtime_checkable
class _UsageProblem(Protocol):
    """What the command-line library raises on a wrong command line, wherever a release of it keeps the class."""

    exit_code: int

    def format_message(self) -> str: ...


def _print_version(asked: bool) -> None:
    if asked:
        write_out(f"clustersim {__version__}\n")
        raise typer.Exit


def _remember_traceback(asked: bool) -> None:
    if asked:
        os.environ["CLUSTERSIM_TRACEBACK"] = "1"


@app.callback()
def common_options(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")] = False,
    traceback: Annotated[bool, typer.Option("--traceback", callback=_remember_traceback, help="Print the traceback of a bug.")] = False,
) -> None:
    """Take the options that stand before the command; their callbacks do the work."""
    del version, traceback


@app.command()
def run(
    scenario: ScenarioArgument,
    *,
    set_: SetOption = None,
    json: JsonOption = False,
    out: Annotated[str, typer.Option("--out", "-o", metavar="DIR", help="Folder for the run directories.")] = "runs",
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and lay out, simulate nothing, write nothing.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No report and no notices.")] = False,
    plots: Annotated[bool, typer.Option("--plots/--no-plots", help="Draw the plots of the run directory.")] = True,
    fold: Annotated[bool, typer.Option("--fold/--no-fold", help="Replay one rank for all that cannot be told apart, or every one.")] = True,
    profile: Annotated[bool, typer.Option("--profile", help="Print where the time of the simulation went.")] = False,
) -> int:
    """Simulate one training step and report where the time goes."""
    from clustersim.cli.run import RunOptions, run_command

    options = RunOptions(as_json=json, out=out, seed=seed, dry_run=dry_run, quiet=quiet, plots=plots, fold=fold, profile=profile)
    return run_command(scenario, tuple(set_ or ()), options)


@app.command()
def compare(
    runs: Annotated[list[str], typer.Argument(metavar="RUN RUN...", help="Run directories, scenario files or shipped examples.")],
    *,
    set_: SetOption = None,
    md: Annotated[bool, typer.Option("--md", help="Write Markdown.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Write a table of all figures.")] = False,
    json: JsonOption = False,
    out: Annotated[str | None, typer.Option("--out", "-o", metavar="FILE", help="File to write, such as both.md; else stdout.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random in scenarios.")] = 0,
) -> int:
    """Hold runs against the first: only what differs, and their figures side by side."""
    from clustersim.cli.compare import CompareOptions, compare_command

    formats = tuple(name for name, asked in (("md", md), ("csv", csv), ("json", json)) if asked)
    return compare_command(tuple(runs), CompareOptions(overrides=tuple(set_ or ()), formats=formats, out=out, seed=seed))


@app.command()
def explain(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run directory, a scenario file or a shipped example.")],
    *,
    set_: SetOption = None,
    json: JsonOption = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    changes: Annotated[bool, typer.Option("--changes/--no-changes", help="Look for changes that shorten the step.")] = True,
) -> int:
    """Say what sets the step time, how figures and constants come about, and what would shorten it."""
    from clustersim.cli.explain import explain_command

    return explain_command(run, tuple(set_ or ()), as_json=json, seed=seed, changes=changes)


@app.command()
def sweep(
    source: Annotated[str, typer.Argument(metavar="SCENARIO|STUDY", help="A scenario as for run, or a study: a path or a shipped name.")],
    *,
    over: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUES", help="Vary a key: 1,2,4 or 1..8 or 1..64 step 8 or 1..64 times 2. Repeatable."),
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="CONDITION", help="Leave points out, such as 'strategy.tp * strategy.pp > 64'. Repeatable.")
    ] = None,
    where: Annotated[
        list[str] | None, typer.Option(metavar="CONDITION", help="What an answer must meet, such as 'mfu > 0.3'. Repeatable.")
    ] = None,
    sort: Annotated[
        str | None, typer.Option(metavar="METRIC", help="Smallest first; -METRIC: largest first; default -tokens_per_s.")
    ] = None,
    metrics: Annotated[list[str] | None, typer.Option(metavar="NAME,...", help="Columns of the table; all for every figure.")] = None,
    set_: SetOption = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; default: one for each processor.")] = None,
    executor: Annotated[str, typer.Option(help="local, dask (a cluster on this machine), or dask:tcp://host:8786.")] = "local",
    file_format: Annotated[str, typer.Option("--format", help="Of the table: csv, parquet or duckdb.")] = "csv",
    out: Annotated[str | None, typer.Option("--out", "-o", metavar="DIR", help="Folder; default runs/sweeps/NAME/HASH.")] = None,
    max_points: Annotated[int, typer.Option(min=1, help="Refuse a sweep of more points.")] = 100_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the points, run nothing.")] = False,
    json: JsonOption = False,
) -> int:
    """Run a scenario for all combinations of some values; the same command goes on where it was stopped."""
    from clustersim.cli.sweep import SweepOptions, sweep_command
    from clustersim.studies.sweeps.study_file import Asked

    asked = Asked(
        over=tuple(over or ()),
        exclude=tuple(exclude or ()),
        changes=tuple(set_ or ()),
        where=tuple(where or ()),
        sort=sort,
        metrics=tuple(name.strip() for text in metrics or () for name in text.split(",")),
        most_points=max_points,
        seed=seed,
    )
    options = SweepOptions(executor=executor, workers=workers, out=out, file_format=file_format, as_json=json, dry_run=dry_run)
    return sweep_command(source, asked, options)


@app.command("what-if")
def what_if(
    source: Annotated[str, typer.Argument(metavar="SCENARIO|FILE", help="A scenario as for run, or a file with cases; shipped or a path.")],
    *,
    case: Annotated[
        list[str] | None, typer.Option(metavar="NAME:KEY=VALUE,...", help="Changes under a name, such as wide:strategy.tp=8. Repeatable.")
    ] = None,
    where: Annotated[
        list[str] | None, typer.Option(metavar="CONDITION", help="What a case must meet, such as 'memory_fraction <= 0.9'. Repeatable.")
    ] = None,
    metric: Annotated[str | None, typer.Option(metavar="METRIC", help="What cases are judged by; default tokens_per_s.")] = None,
    break_even: Annotated[
        str | None, typer.Option(metavar="KEY=LOW..HIGH", help="Where the two best cases are equally good while a key goes so far.")
    ] = None,
    sensitivity: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=LOW..HIGH", help="A figure to vary; hardware: each rate by 20 % up and down. Repeatable."),
    ] = None,
    method: Annotated[str, typer.Option(help="one (figure at a time), morris or sobol.")] = "one",
    samples: Annotated[int | None, typer.Option(min=2, help="Of morris (8) or sobol (32).")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes, for morris and sobol.")] = 1,
    set_: SetOption = None,
    plot: Annotated[str | None, typer.Option(metavar="FILE", help="Draw the tornado, such as tornado.png.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    json: JsonOption = False,
) -> int:
    """Say which of some changes is best, where that changes, and what it depends on."""
    from clustersim.cli.what_if import WhatIfOptions, what_if_command
    from clustersim.studies.what_if.question_file import Asked

    asked = Asked(
        cases=tuple(case or ()),
        changes=tuple(set_ or ()),
        where=tuple(where or ()),
        metric=metric,
        break_even=break_even,
        sensitivity=tuple(sensitivity or ()),
        method=method,
        samples=samples,
        workers=workers,
        seed=seed,
    )
    return what_if_command(source, asked, WhatIfOptions(plot=plot, as_json=json))


@app.command()
def plot(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="pipeline, timeline, breakdown, communication, links, topology, memory, memory_over_time, roofline, cost, goodput,"
            " strong_scaling, weak_scaling, pareto, heatmap or validation.",
        ),
    ],
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN...", help="Run directories, scenario files or shipped examples; a CSV for heatmap and pareto."),
    ] = None,
    *,
    set_: SetOption = None,
    out: Annotated[str | None, typer.Option("--out", "-o", metavar="FILE", help="File to write, .png or .svg; default KIND.png.")] = None,
    json: JsonOption = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random in scenarios.")] = 0,
) -> int:
    """Draw a picture of runs, of a table or of predictions."""
    from clustersim.cli.plot import PlotOptions, plot_command

    return plot_command(kind, tuple(runs or ()), PlotOptions(overrides=tuple(set_ or ()), out=out, seed=seed, as_json=json))


@app.command()
def report(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN...", help="Run directories, scenario files or shipped examples; or the table of a sweep.")
    ],
    *,
    set_: SetOption = None,
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="File to write.")] = "report.html",
    static: Annotated[bool, typer.Option("--static", help="Pictures that stand still, as without the html extra.")] = False,
    json: JsonOption = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random in scenarios.")] = 0,
) -> int:
    """Write a page of one run, of several side by side, or of a sweep: one file that opens without a network."""
    from clustersim.cli.report import ReportOptions, report_command

    options = ReportOptions(overrides=tuple(set_ or ()), out=out, seed=seed, static=static, as_json=json)
    return report_command(tuple(runs), options)


@app.command()
def export(
    run_: Annotated[str, typer.Argument(metavar="RUN", help="A run directory, a scenario file or a shipped example.")],
    *,
    as_: Annotated[str, typer.Option("--as", metavar="FORMAT", help="chrome, kineto or csv.")],
    set_: SetOption = None,
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", metavar="PATH", help="File, or folder for kineto; default trace.json.gz, timeline.csv, kineto."),
    ] = None,
    json: JsonOption = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random in a scenario.")] = 0,
) -> int:
    """Write the timeline of a run for Perfetto, Holistic Trace Analysis or a spreadsheet."""
    from clustersim.cli.export import export_command

    return export_command(run_, as_, overrides=tuple(set_ or ()), out=out, seed=seed, as_json=json)


@app.command()
def plan(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model; without a cluster, a scenario whose layout is open.")],
    cluster: Annotated[str | None, typer.Argument(metavar="[CLUSTER]", help="A shipped node or cluster.")] = None,
    *,
    nodes: Annotated[int | None, typer.Option(min=1, metavar="N", help="How many nodes.")] = None,
    set_: SetOption = None,
    only: Annotated[list[str] | None, typer.Option("--only", metavar="KEY=VALUES", help="Search these values, such as tp=4,8.")] = None,
    constraint: Annotated[list[str] | None, typer.Option(metavar="TEXT", help="A condition, such as 'memory_fraction <= 0.9'.")] = None,
    most_replays: Annotated[int, typer.Option(min=1, metavar="N", help="Give up after so many.")] = 400,
    tokens: Annotated[str | None, typer.Option(metavar="COUNT", help="A goal: so many tokens, such as 15T.")] = None,
    within: Annotated[str | None, typer.Option(metavar="TIME", help="Of a goal, such as '60 days'.")] = None,
    budget: Annotated[str | None, typer.Option(metavar="USD", help="Of a goal, such as '12 MUSD'.")] = None,
    power: Annotated[str | None, typer.Option(metavar="POWER", help="Of a goal, such as '5 MW'.")] = None,
    accelerators: Annotated[str, typer.Option(metavar="NODES", help="Of a goal: nodes to choose from, such as dgx-h100,dgx-b200.")] = "",
    max_nodes: Annotated[int, typer.Option(min=1, metavar="N", help="Of a goal.")] = 2048,
    write: Annotated[str | None, typer.Option("--write", metavar="FILE", help="Write the winner as a scenario, or as --as says.")] = None,
    as_: Annotated[str | None, typer.Option("--as", metavar="FRAMEWORK", help="megatron, torchtitan or deepspeed.")] = None,
    json: JsonOption = False,
) -> int:
    """Find the fastest layout of a model on a cluster, and say why no other one is faster; or what reaches a goal."""
    from clustersim.cli.plan import PlanOptions, goal_of, plan_command

    goal = None
    if tokens is not None:
        names = accelerators or cluster or ""
        goal = goal_of(tokens, within=within, budget=budget, power=power, nodes=names, most_nodes=max_nodes)
    options = PlanOptions(
        nodes=nodes,
        overrides=tuple(set_ or ()),
        only=tuple(only or ()),
        constraints=tuple(constraint or ()),
        most_replays=most_replays,
        write=write,
        framework=as_,
        as_json=json,
        goal=goal,
    )
    return plan_command(model, cluster, options)


@app.command()
def advise(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model; without a cluster, a scenario whose layout is open.")],
    cluster: Annotated[str | None, typer.Argument(metavar="[CLUSTER]", help="A shipped node or cluster.")] = None,
    *,
    nodes: Annotated[int | None, typer.Option(min=1, metavar="N", help="How many nodes.")] = None,
    set_: SetOption = None,
    only: Annotated[list[str] | None, typer.Option("--only", metavar="KEY=VALUES", help="Look at these values, such as tp=4,8.")] = None,
    json: JsonOption = False,
) -> int:
    """Say which family of parallel strategies suits a model on a cluster, with the best run of each."""
    from clustersim.cli.advise import advise_command

    return advise_command(model, cluster, nodes=nodes, overrides=tuple(set_ or ()), only=tuple(only or ()), as_json=json)


@app.command()
def show(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="accelerators, nodes, clusters, models, examples, prices or presets.")],
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Show this one in full, with its sources.")] = None,
    json: JsonOption = False,
) -> int:
    """List what is shipped, or show one thing in full."""
    from clustersim.cli.show import show_command

    return show_command(kind, name, as_json=json)


@app.command()
def validate(
    sources: Annotated[list[str] | None, typer.Argument(metavar="[SOURCE]...", help="Shipped sources, or paths; all if left out.")] = None,
    *,
    json: JsonOption = False,
    quality: Annotated[str, typer.Option(metavar="A|B", help="Least quality of a row; A: nothing had to be assumed.")] = "B",
    fail_over: Annotated[
        str | None, typer.Option(metavar="PERCENT", help="End with 1 if the mean absolute error exceeds this, such as '8 %'.")
    ] = None,
    plot: Annotated[str | None, typer.Option(metavar="FILE", help="Draw measured against predicted: a .png or .svg file.")] = None,
    write_residuals: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the error bars that follow from all rows, for a checkout.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Processes; the result is the same.")] = 2,
) -> int:
    """Compare predictions with published measurements."""
    from clustersim.cli.validate import ValidateOptions, validate_command

    options = ValidateOptions(as_json=json, quality=quality, fail_over=fail_over, plot=plot, write_residuals=write_residuals, jobs=jobs)
    return validate_command(tuple(sources or ()), options)


@app.command()
def calibrate(
    *,
    accelerator: Annotated[str, typer.Option(metavar="NAME", help="The shipped accelerator that was measured.")],
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="Calibration file to write, such as mine.yaml.")],
    base: Annotated[
        str | None, typer.Option(metavar="GENERATION", help="Shipped calibration, or a file, to start from; default: the accelerator's.")
    ] = None,
    gemm: Annotated[list[str] | None, typer.Option(metavar="CSV", help="Measured matrix products. Repeatable.")] = None,
    attention: Annotated[list[str] | None, typer.Option(metavar="CSV", help="Measured fused attention. Repeatable.")] = None,
    nccl: Annotated[list[str] | None, typer.Option(metavar="FILE", help="nccl-tests as text or JSON, or a CSV. Repeatable.")] = None,
    trace: Annotated[list[str] | None, typer.Option(metavar="JSON", help="Trace of the PyTorch profiler. Repeatable.")] = None,
    steps: Annotated[list[str] | None, typer.Option(metavar="YAML", help="Whole steps, as published sources. Repeatable.")] = None,
    node: Annotated[str | None, typer.Option(metavar="NAME", help="Shipped node that collectives ran on.")] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Nodes that collectives ran on, where their files do not say.")] = None,
    ranks_per_node: Annotated[int | None, typer.Option(min=1, help="Ranks in each of them.")] = None,
    json: JsonOption = False,
) -> int:
    """Fit a calibration file to measurements of your own, and show errors before and after."""
    from clustersim.cli.calibrate import CalibrateOptions, calibrate_command, request_of

    files = {"gemm": gemm, "attention": attention, "nccl": nccl, "trace": trace, "steps": steps}
    given = {name: tuple(paths or ()) for name, paths in files.items()}
    request = request_of(accelerator, given, base=base, node=node, ranks=(nodes, ranks_per_node))
    return calibrate_command(request, CalibrateOptions(out=out, as_json=json))


@app.command()
def collective(
    *,
    cluster: Annotated[str, typer.Option(metavar="NAME", help="A shipped node or cluster.")],
    nodes: Annotated[int | None, typer.Option(min=1, help="How many nodes; 1, or those of the cluster, if left out.")] = None,
    op: Annotated[str, typer.Option(help="all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, ...")] = "all_reduce",
    algorithm: Annotated[str, typer.Option(help="auto, ring, tree, nvls, parameter_server, ...")] = "auto",
    sizes: Annotated[str, typer.Option(help="1KB:8GB doubles, 1KB:8GB:4 multiplies by 4, or a list.")] = "1KiB:8GiB",
    ranks_per_node: Annotated[int | None, typer.Option(help="The first so many accelerators of each node.")] = None,
    servers: Annotated[int | None, typer.Option(help="Parameter servers.")] = None,
    placement: Annotated[str, typer.Option(help="Of parameter servers: colocated or dedicated.")] = "colocated",
    set_: SetOption = None,
    json: JsonOption = False,
) -> int:
    """Print time and bandwidth of a collective, as nccl-tests would."""
    from clustersim.cli.collective import CollectiveOptions, collective_command

    options = CollectiveOptions(
        cluster=cluster,
        nodes=nodes,
        op=op,
        algorithm=algorithm,
        sizes=sizes,
        ranks_per_node=ranks_per_node,
        servers=servers,
        placement=placement,
        overrides=tuple(set_ or ()),
        as_json=json,
    )
    return collective_command(options)


@app.command()
def flows(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A JSON file of links and flows, also packed by gzip, or - for stdin.")],
    *,
    json: JsonOption = False,
) -> int:
    """Print when flows on shared links finish: the network model alone."""
    from clustersim.cli.flows import flows_command

    return flows_command(file, as_json=json)


@app.command()
def study(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A shipped study, or a path; a list of them if left out.")] = None,
    *,
    out: Annotated[
        str | None, typer.Option("--out", "-o", metavar="DIR", help="Folder for tables and plots; default runs/studies/NAME.")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Run many cases to answer one question, with tables and plots."""
    from clustersim.cli.study import StudyOptions, study_command

    return study_command(name, StudyOptions(out=out, as_json=json))


@app.command()
def schedule(
    scenario: ScenarioArgument,
    *,
    set_: SetOption = None,
    out: Annotated[str | None, typer.Option("--out", "-o", metavar="FILE", help="File to write; stdout if left out.")] = None,
    json: JsonOption = False,
) -> int:
    """Print the pipeline schedule of a scenario as PyTorch writes it, a row for each rank."""
    from clustersim.cli.schedule import schedule_command

    return schedule_command(scenario, tuple(set_ or ()), out=out, as_json=json)


@app.command()
def init(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Name of the new scenario.")] = "my-scenario",
    example: Annotated[str, typer.Option("--from", metavar="EXAMPLE", help="Shipped example to start from.")] = "starter",
    out: Annotated[str | None, typer.Option("--out", "-o", metavar="FILE", help="File to write; default NAME.yaml.")] = None,
) -> int:
    """Write a commented scenario to start from."""
    from clustersim.cli.init import init_command

    return init_command(name, example, out)


@app.command()
def schema() -> int:
    """Print the JSON Schema of a scenario."""
    from clustersim.cli.schema import schema_command

    return schema_command()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Parameters
    ----------
    arguments
        Words after the program's name; those of the process when omitted.
    """
    try:
        ended: object = typer.main.get_command(app).main(
            args=None if arguments is None else list(arguments), prog_name="clustersim", standalone_mode=False
        )
    except Exception as error:  # noqa: BLE001 - the outermost frame: whatever arrives here gets a clear line and an exit code
        return _explain(error)
    code = ended if isinstance(ended, int) else EXIT_OK
    if code == EXIT_INTERRUPTED:
        notice("interrupted")
    return code


def _explain(error: Exception) -> int:
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


if __name__ == "__main__":
    sys.exit(main())
