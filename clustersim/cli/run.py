"""``clustersim run`` and ``clustersim explain``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clustersim.apps.explain.explanation import explain, measured_changes
from clustersim.apps.importing.opening import open_job
from clustersim.apps.run.result import NOT_MEASURED, Result, print_result
from clustersim.apps.run.rundir import write_page, write_run_directory
from clustersim.apps.run.running import run_built
from clustersim.apps.serve.deployment import BuiltServing, build_serving
from clustersim.apps.serve.deployment_run import files_of_serving, resolved_serving, run_serving
from clustersim.apps.serve.serving_result import ServingResult
from clustersim.cli.options import JsonOption, RunArgument, ScenarioArgument, SeedOption, SetOption
from clustersim.cli.terminal import make_console, notice, print_answer, write_json, write_out
from clustersim.cli.watching import watched
from clustersim.config.build import Built, build
from clustersim.config.planning import MeshDimension, rank_layout
from clustersim.config.resolve import files_of, resolved_scenario, scenario_hash
from clustersim.config.serving_scenario import ServingScenario
from clustersim.config.yaml_text import plain, yaml_text
from clustersim.documents.text import Data
from clustersim.engine.passes import Passes
from clustersim.errors import EXIT_NO, EXIT_OK
from clustersim.progress import phase
from clustersim.report.facts import memory_text
from clustersim.report.serving_summary import print_serving
from clustersim.units.divisors import count_text
from clustersim.units.quantity import format_quantity


def run_command(
    scenario: ScenarioArgument,
    *,
    set_: SetOption = None,
    json: JsonOption = False,
    out: Annotated[str, typer.Option("--out", "-o", metavar="DIR", help="Folder for the run directories.")] = "runs",
    seed: SeedOption = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the scenario and its layout; simulate and write nothing.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No report and no notices.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also print links, collectives, bottleneck, lower bound and all assumptions.")
    ] = False,
    plots: Annotated[bool, typer.Option("--plots/--no-plots", help="Draw the plots of the run directory.")] = True,
    fold: Annotated[bool, typer.Option("--fold/--no-fold", help="Replay one rank of each class of equal ranks, or every rank.")] = True,
    collapse: Annotated[
        bool, typer.Option("--collapse/--no-collapse", help="Use events only for contended tasks, or for every task.")
    ] = True,
    repeat: Annotated[
        bool, typer.Option("--repeat/--no-repeat", help="Replay one period of repeated micro-batches or steps, or all.")
    ] = True,
    profile: Annotated[bool, typer.Option("--profile", help="Print a profile of the simulation itself.")] = False,
) -> int:
    """Simulate one training step and report where the time goes."""
    changed = tuple(set_ or ())
    with watched(profiles=profile, shows=not quiet):
        with phase("read and build"):
            job = open_job(scenario, changed)
            built = build_serving(job, seed=seed) if isinstance(job, ServingScenario) else build(job)
        if dry_run:
            _print_dry_run(built, seed, as_json=json)
            return EXIT_OK
        with phase("simulate"):
            passes = Passes(fold=fold, collapse=collapse, repeat=repeat)
            serves = isinstance(built, BuiltServing)
            result = run_serving(built, every_step=not repeat) if serves else run_built(built, seed=seed, passes=passes)
        with phase("write"):
            folder = write_run_directory(result, Path(out), plots=plots)
        measured = NOT_MEASURED
        # Changes cost as much as the run, and are measured where somebody reads them.
        if isinstance(result, Result) and not quiet and not json:
            measured = measured_changes(scenario, changed, result)
            if plots:
                write_page(result, folder, (*measured.changes, *measured.remarks))
    if json:
        write_json(result.to_dict())
    elif not quiet:
        console = make_console()
        if isinstance(result, Result):
            print_result(result, console, verbose=verbose, measured=measured)
        else:
            print_serving(result.metrics, console)
    if not quiet:
        _notice_failures(result)
        notice(f"wrote {folder}")
    return EXIT_OK if result.ok else EXIT_NO


def _notice_failures(result: Result | ServingResult) -> None:
    for line in _failures(result) if isinstance(result, Result) else _broken(result):
        notice(line)


def _broken(result: ServingResult) -> list[str]:
    slo, refused = result.metrics.slo, result.metrics.requests.refused
    lines = [f"no: {count_text(refused, 'request')} too long for the model, or larger than the KV cache"] if refused else []
    for check in slo.checks if slo is not None else ():
        if not check.holds and check.found_s is not None:
            found, limit = format_quantity(check.found_s, "s"), format_quantity(check.limit_s, "s")
            lines.append(f"no: {check.name} is {found}, above the SLO of {limit}")
    return lines


def _failures(result: Result) -> list[str]:
    memory = result.metrics.memory
    lines = [f"no: the check '{check.check}' is false: {check.found()}" for check in result.checks if not check.holds]
    lines = [*(f"no: does not fit in memory, {flag.message}" for flag in result.host_shortages), *lines]
    if not memory.fits:
        need, have = memory_text(memory.peak_bytes), memory_text(memory.capacity_bytes)
        lines.insert(0, f"no: does not fit in memory, {need} of {have}")
    return lines


def _print_dry_run(built: Built | BuiltServing, seed: int, *, as_json: bool) -> None:
    serves = isinstance(built, BuiltServing)
    resolved = resolved_serving(built) if serves else resolved_scenario(built)
    digits = scenario_hash(resolved, seed, files_of_serving(built) if serves else files_of(built))
    spans = () if serves else _layout(built)
    if as_json:
        ranks: dict[str, Data] = {} if serves else {"ranks": built.plan.n_ranks, "layout": [plain(span) for span in spans]}
        flags: list[Data] = [plain(flag) for flag in built.flags]
        write_json({"scenario": resolved, "scenario_hash": digits, **ranks, "flags": flags})
        return
    write_out(yaml_text(resolved))
    if serves:
        return
    told = f"{count_text(built.plan.n_ranks, 'rank')}, micro-batches per replica: {built.plan.n_micro_batches}"
    lines = [f"scenario hash {digits}", f"{told}; fastest-varying first:"]
    lines += [f"  {span.dimension} {span.degree:>5}  stride {span.stride:>5}  {span.reach}" for span in spans]
    lines += [f"{flag.code}: {flag.message}" for flag in built.flags]
    # Comments, so that the output is still a scenario.
    write_out("".join(f"# {line}\n" for line in lines))


def _layout(built: Built) -> tuple[MeshDimension, ...]:
    # Where there are several kinds of nodes, the smallest domain is where groups first leave one.
    node = min((node for node, _ in built.cluster.kinds), key=lambda each: each.scale_up.nodes_per_domain)
    return rank_layout(built.plan.strategy, node_size=node.n_accelerators, domain_size=node.domain_size)


def explain_command(
    run: RunArgument,
    *,
    set_: SetOption = None,
    json: JsonOption = False,
    seed: SeedOption = 0,
    changes: Annotated[bool, typer.Option("--changes/--no-changes", help="Look for changes that shorten the step.")] = True,
) -> int:
    """Explain what sets the step time, and what would shorten it.

    Also show where figures and constants come from.
    """
    with watched():
        explanation = explain(run, tuple(set_ or ()), seed=seed, changes=changes)
    print_answer(explanation, as_json=json, piped=True)
    _notice_failures(explanation.result)
    return EXIT_OK if explanation.result.ok else EXIT_NO
