"""Command lines about one run, or a few beside each other; what is heavy is imported inside."""

from __future__ import annotations

from typing import Annotated

import typer

from clustersim.cli.options import JobsOption, JsonOption, ScenarioArgument, SetOption


def run(
    scenario: ScenarioArgument,
    *,
    set_: SetOption = None,
    json: JsonOption = False,
    out: Annotated[str, typer.Option("--out", "-o", metavar="DIR", help="Folder for the run directories.")] = "runs",
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and lay out, simulate nothing, write nothing.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No report and no notices.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Links, collectives, bottleneck, lower bound and all assumptions too.")
    ] = False,
    plots: Annotated[bool, typer.Option("--plots/--no-plots", help="Draw the plots of the run directory.")] = True,
    fold: Annotated[bool, typer.Option("--fold/--no-fold", help="Replay one rank for all that cannot be told apart, or every one.")] = True,
    collapse: Annotated[
        bool, typer.Option("--collapse/--no-collapse", help="Fire events for contended tasks alone, or for every task.")
    ] = True,
    repeat: Annotated[
        bool, typer.Option("--repeat/--no-repeat", help="Replay one period of micro-batches or steps that repeats, or every one.")
    ] = True,
    profile: Annotated[bool, typer.Option("--profile", help="Print where the time of the simulation went.")] = False,
) -> int:
    """Simulate one training step and report where the time goes."""
    from clustersim.cli.run import RunOptions, run_command
    from clustersim.engine.passes import Passes

    passes = Passes(fold=fold, collapse=collapse, repeat=repeat)
    options = RunOptions(
        as_json=json,
        out=out,
        seed=seed,
        dry_run=dry_run,
        quiet=quiet,
        verbose=verbose,
        plots=plots,
        passes=passes,
        profile=profile,
    )
    return run_command(scenario, tuple(set_ or ()), options)


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN RUN...", help="Run directories, scenario files or shipped examples; or one of them and traces."),
    ],
    *,
    set_: SetOption = None,
    md: Annotated[bool, typer.Option("--md", help="Write Markdown.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Write a table of all figures.")] = False,
    json: JsonOption = False,
    out: Annotated[str | None, typer.Option("--out", "-o", metavar="FILE", help="File to write, such as both.md; else stdout.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random in scenarios.")] = 0,
    device: Annotated[str | None, typer.Option(metavar="NAME", help="Device that traces are of; default: what they say.")] = None,
    names: Annotated[str | None, typer.Option(metavar="FILE", help="Classes of further names of kernels in traces.")] = None,
) -> int:
    """Hold runs against the first, and show what differs.

    Show keys of the scenarios that differ, and all figures side by side; of traces of a run, kernels and collectives by class.
    """
    from clustersim.cli.compare import OutputChoice, TraceOptions, compare_command

    formats = tuple(name for name, asked in (("md", md), ("csv", csv), ("json", json)) if asked)
    traced = TraceOptions(device=device, names=names)
    return compare_command(tuple(runs), tuple(set_ or ()), OutputChoice(formats=formats, out=out), seed=seed, traced=traced)


def explain(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run directory, a scenario file or a shipped example.")],
    *,
    set_: SetOption = None,
    json: JsonOption = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    changes: Annotated[bool, typer.Option("--changes/--no-changes", help="Look for changes that shorten the step.")] = True,
) -> int:
    """Say what sets the step time, and what would shorten it.

    Say also how figures and constants come about.
    """
    from clustersim.cli.explain import explain_command

    return explain_command(run, tuple(set_ or ()), as_json=json, seed=seed, changes=changes)


def plot(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="pipeline, timeline, breakdown, communication, links, topology, memory, memory_over_time, roofline, cost, goodput,"
            " strong_scaling, weak_scaling, pareto, heatmap, validation, tornado; of serving latency, timeline, kv or throughput_latency.",
        ),
    ],
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN...", help="Run directories, scenario files or shipped examples; a CSV for heatmap and pareto."),
    ] = None,
    *,
    set_: SetOption = None,
    out: Annotated[str | None, typer.Option("--out", "-o", metavar="FILE", help="File to write, .png or .svg; default KIND.png.")] = None,
    jobs: JobsOption = None,
    json: JsonOption = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random in scenarios.")] = 0,
) -> int:
    """Draw a picture of runs, of a table or of predictions."""
    from clustersim.cli.plot import PlotOptions, plot_command

    return plot_command(kind, tuple(runs or ()), PlotOptions(overrides=tuple(set_ or ()), out=out, seed=seed, jobs=jobs, as_json=json))


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
    """Write a page of one run, of several, or of a sweep.

    The page is one file that opens without a network. Several runs stand side by side.
    """
    from clustersim.cli.report import report_command

    return report_command(tuple(runs), tuple(set_ or ()), out=out, seed=seed, static=static, as_json=json)


def export(
    run_: Annotated[str, typer.Argument(metavar="RUN", help="A run directory, a scenario file or a shipped example.")],
    *,
    as_: Annotated[
        str, typer.Option("--as", metavar="FORMAT", help="chrome, kineto, csv, parquet, chakra, simai; or as of plan: megatron, ...")
    ],
    set_: SetOption = None,
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", metavar="PATH", help="File, or folder for kineto and chakra; default by the format, or stdout."),
    ] = None,
    json: JsonOption = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random in a scenario.")] = 0,
) -> int:
    """Write a run for Perfetto, or a scenario for a framework.

    Other tools are Holistic Trace Analysis and spreadsheets.
    """
    from clustersim.cli.export import export_command

    return export_command(run_, as_, overrides=tuple(set_ or ()), out=out, seed=seed, as_json=json)


def import_(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Configuration, script, command line or log of a job; - for stdin.")
    ],
    *,
    out: Annotated[str | None, typer.Option("--out", "-o", metavar="FILE", help="Scenario to write; stdout if left out.")] = None,
    as_: Annotated[str | None, typer.Option("--as", metavar="FRAMEWORK", help="Framework; recognised by content if left out.")] = None,
    cluster: Annotated[str | None, typer.Option(metavar="NAME", help="A shipped node or cluster.")] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="How many nodes, where no file says it.")] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="A shipped model, or hf:path/to/config.json.")] = None,
    set_: SetOption = None,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse files with unknown keys.")] = False,
    json: JsonOption = False,
) -> int:
    """Turn files of a training framework into a scenario.

    Say for each key what became of it. Nothing is executed.
    """
    from clustersim.apps.importing.asked import ImportOptions
    from clustersim.cli.import_ import import_command

    asked = ImportOptions(framework=as_, cluster=cluster, nodes=nodes, model=model, overrides=tuple(set_ or ()), strict=strict)
    return import_command(tuple(files), asked, out=out, as_json=json)


def collective(
    *,
    cluster: Annotated[str, typer.Option(metavar="NAME", help="A shipped node or cluster.")],
    nodes: Annotated[int | None, typer.Option(min=1, help="How many nodes; 1, or those of the cluster, if left out.")] = None,
    op: Annotated[str, typer.Option(help="all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, ...")] = "all_reduce",
    algorithm: Annotated[str, typer.Option(help="auto, ring, tree, nvls, parameter_server, ...")] = "auto",
    sizes: Annotated[str, typer.Option(help="1M:1G doubles, 1KB:8GB:4 multiplies by 4, or a list.")] = "1KiB:8GiB",
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


def flows(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A JSON file of links and flows, also packed by gzip, or - for stdin.")],
    *,
    json: JsonOption = False,
) -> int:
    """Print when flows on shared links finish.

    This is the network model alone.
    """
    from clustersim.cli.flows import flows_command

    return flows_command(file, as_json=json)


def schedule(
    scenario: ScenarioArgument,
    *,
    set_: SetOption = None,
    out: Annotated[str | None, typer.Option("--out", "-o", metavar="FILE", help="File to write; stdout if left out.")] = None,
    json: JsonOption = False,
) -> int:
    """Print the pipeline schedule of a scenario.

    Each rank has a row, as PyTorch writes it.
    """
    from clustersim.cli.schedule import schedule_command

    return schedule_command(scenario, tuple(set_ or ()), out=out, as_json=json)


def ui(
    scenario: Annotated[
        str, typer.Argument(metavar="EXAMPLE", help="A shipped example to begin with, or 'run NAME/HASH'.")
    ] = "llama3-70b-h100-512",
    *,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of 127.0.0.1; 0 for one that is free.")] = 8050,
    runs: Annotated[str, typer.Option(metavar="DIR", help="Folder of runs that can be opened.")] = "runs",
) -> int:
    """Show a page on which a scenario is changed and run.

    The result is seen at once. The page is for a browser on this machine only.
    """
    from clustersim.cli.ui import ui_command

    return ui_command(scenario, port=port, runs=runs)
