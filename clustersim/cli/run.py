"""``clustersim run``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from clustersim.apps.explain.explanation import measured_changes
from clustersim.apps.importing.opening import open_job
from clustersim.apps.run.result import Result, print_result
from clustersim.apps.run.rundir import write_page, write_run_directory
from clustersim.apps.run.running import run_built
from clustersim.apps.serve.deployment import build_serving
from clustersim.apps.serve.deployment_run import files_of_serving, resolved_serving, run_serving
from clustersim.apps.serve.serving_result import ServingResult
from clustersim.cli.options import JsonOption, ScenarioArgument, SeedOption, SetOption
from clustersim.cli.terminal import make_console, notice, write_json, write_out
from clustersim.cli.watching import watched
from clustersim.config.build import Built, build
from clustersim.config.planning import rank_layout
from clustersim.config.resolve import files_of, resolved_scenario, scenario_hash
from clustersim.config.serving_scenario import ServingScenario
from clustersim.config.yaml_text import plain, yaml_text
from clustersim.documents.text import Data
from clustersim.engine.passes import Passes
from clustersim.errors import EXIT_NO, EXIT_OK
from clustersim.progress import phase
from clustersim.report.facts import memory_text
from clustersim.report.serving_summary import summary_text
from clustersim.units.quantity import format_quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of ``run`` that do not change the scenario."""

    as_json: bool
    out: str
    seed: int
    dry_run: bool
    quiet: bool
    verbose: bool
    plots: bool
    passes: Passes
    profile: bool


def run_command(
    scenario: ScenarioArgument,
    *,
    set_: SetOption = None,
    json: JsonOption = False,
    out: Annotated[str, typer.Option("--out", "-o", metavar="DIR", help="Folder for the run directories.")] = "runs",
    seed: SeedOption = 0,
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
    changed = tuple(set_ or ())
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
    with watched(profiles=options.profile, shows=not options.quiet):
        with phase("read and build"):
            job = open_job(scenario, changed, tell=None if options.quiet else notice)
            if isinstance(job, ServingScenario):
                return serve_command(job, options)
            built = build(job)
        if options.dry_run:
            _print_dry_run(built, options)
            return EXIT_OK
        with phase("simulate"):
            result = run_built(built, seed=options.seed, passes=options.passes)
        with phase("write"):
            folder = write_run_directory(result, Path(options.out), plots=options.plots)
        # Changes cost as much as the run, and are measured where somebody reads them.
        reads = not options.quiet and not options.as_json
        measured = measured_changes(scenario, changed, result) if reads else None
        if measured is not None and options.plots:
            write_page(result, folder, (*measured.changes, *measured.remarks))
    if options.as_json:
        write_json(result.to_dict())
    elif measured is not None:
        print_result(result, make_console(), verbose=options.verbose, measured=measured)
    if not options.quiet:
        for line in _failures(result):
            notice(line)
        notice(f"wrote {folder}")
    return EXIT_OK if result.ok else EXIT_NO


def serve_command(scenario: ServingScenario, options: RunOptions) -> int:
    """Simulate a serving scenario, write the run directory, report, and return the exit code."""
    built = build_serving(scenario, seed=options.seed)
    if options.dry_run:
        resolved = resolved_serving(built)
        if options.as_json:
            flags: list[Data] = [plain(flag) for flag in built.flags]
            write_json(
                {"scenario": resolved, "scenario_hash": scenario_hash(resolved, options.seed, files_of_serving(built)), "flags": flags}
            )
        else:
            write_out(yaml_text(resolved))
        return EXIT_OK
    result = run_serving(built, every_step=not options.passes.repeat)
    with phase("write"):
        folder = write_run_directory(result, Path(options.out), plots=options.plots)
    if options.as_json:
        write_json(result.to_dict())
    elif not options.quiet:
        console = make_console()
        write_out(summary_text(result.metrics, console.width, ascii_only=console.options.ascii_only))
    if not options.quiet:
        for line in _broken(result):
            notice(line)
        notice(f"wrote {folder}")
    return EXIT_OK if result.ok else EXIT_NO


def _broken(result: ServingResult) -> list[str]:
    slo, refused = result.metrics.slo, result.metrics.requests.refused
    lines = [f"no: {refused} requests are too long for the model, or larger than the KV cache"] if refused else []
    for check in slo.checks if slo is not None else ():
        if not check.holds and check.found_s is not None:
            found, limit = format_quantity(check.found_s, "s"), format_quantity(check.limit_s, "s")
            lines.append(f"no: {check.name} is {found}, and {limit} is promised")
    return lines


def _failures(result: Result) -> list[str]:
    memory = result.metrics.memory
    lines = [f"no: the check '{check.check}' is false: {check.found()}" for check in result.checks if not check.holds]
    lines = [*(f"no: does not fit in memory, {flag.message}" for flag in result.host_shortages), *lines]
    if not memory.fits:
        need, have = memory_text(memory.peak_bytes), memory_text(memory.capacity_bytes)
        lines.insert(0, f"no: does not fit in memory, {need} of {have}")
    return lines


def _print_dry_run(built: Built, options: RunOptions) -> None:
    resolved = resolved_scenario(built)
    digits = scenario_hash(resolved, options.seed, files_of(built))
    # Where there are several kinds of nodes, the smallest domain is where groups first leave one.
    node = min((node for node, _ in built.cluster.kinds), key=lambda each: each.scale_up.nodes_per_domain)
    spans = rank_layout(built.plan.strategy, node_size=node.n_accelerators, domain_size=node.domain_size)
    if options.as_json:
        layout: list[Data] = [plain(span) for span in spans]
        flags: list[Data] = [plain(flag) for flag in built.flags]
        write_json({"scenario": resolved, "scenario_hash": digits, "ranks": built.plan.n_ranks, "layout": layout, "flags": flags})
        return
    write_out(yaml_text(resolved))
    micro_batches = built.plan.n_micro_batches
    lines = [f"scenario hash {digits}", f"{built.plan.n_ranks} ranks, {micro_batches} micro-batches per replica; fastest-varying first:"]
    lines += [f"  {span.dimension} {span.degree:>5}  stride {span.stride:>5}  {span.reach}" for span in spans]
    lines += [f"{flag.code}: {flag.message}" for flag in built.flags]
    # Comments, so that the output is still a scenario.
    write_out("".join(f"# {line}\n" for line in lines))
