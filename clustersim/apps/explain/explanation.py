"""Explain a run: its chain of tasks, its figures, their constants, and what would shorten the step."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from clustersim.apps.compare.run_directories import named_directory, named_scenario, replayed
from clustersim.apps.explain.candidates import Gain, Gains, candidates, gains
from clustersim.apps.explain.changing import ChangedRun
from clustersim.apps.explain.constants import ROUND_OFF, Constant, Explained, constants_of, explained
from clustersim.apps.explain.savings import fitting_changes
from clustersim.apps.explain.served_explanation import ServedExplanation, explain_served
from clustersim.apps.explain.unsaid import Unsaid, alternatives, unsaid
from clustersim.apps.importing.opening import open_written
from clustersim.apps.run.replaying import Conditions, critical_path_of
from clustersim.apps.run.result import NOT_MEASURED, UNSAID, MeasuredChanges, Result, changes_heading
from clustersim.apps.run.running import run_scenario
from clustersim.apps.serve.serving_result import ServingResult
from clustersim.collection import collection_paused
from clustersim.config.build import Built
from clustersim.config.overriding import set_options
from clustersim.config.yaml_text import plain
from clustersim.documents.text import Data
from clustersim.engine.critical_path import CriticalPath
from clustersim.errors import ScenarioError
from clustersim.hardware.calibrations import calibration_of
from clustersim.hardware.models import Source
from clustersim.measure.deciding import MARK, MARKED, UNDECIDED
from clustersim.report.facts import interval_note, memory_text, percent_text
from clustersim.report.shares import computing_percent
from clustersim.report.text_tables import TextAnswer, TextTable, shown
from clustersim.trace.timeline import Span
from clustersim.units.quantity import format_alike, format_quantity


def critical_path(built: Built, *, seed: int = 0) -> CriticalPath:
    """Return which chain of tasks sets the time of one step, and the slack of everything else.

    The step is replayed by itself, without other jobs, background or what varies from step to step.

    Raises
    ------
    ScenarioError
        When workers go at their own pace, so that no chain sets the step time.
    """
    mode = built.plan.strategy.data_parallel.mode
    if mode != "sync":
        message = f"with mode {mode} workers do not wait for each other, and no chain of tasks sets the step time"
        raise ScenarioError(message, field="strategy.data_parallel.mode", hint="use mode: sync")
    calibration = calibration_of([node for node, _ in built.cluster.kinds])
    with collection_paused():
        return critical_path_of(built.plan, built.cluster, calibration, Conditions(uneven=built.uneven, seed=seed))


MOST_EFFORT: Final = 300_000
"""Events, tasks and ranks of all replays of changes after a run, together: some ten seconds."""
SCHEMA_VERSION = 1
N_CHANGES = 5
"""Number of reported ones."""
N_SLACK = 10
"""Rows of the table of slack."""
N_ENDS = 6
"""Tasks at either end of a long chain that the document holds."""
LEAST_SHARE = 0.005
"""Share of the critical path from which on a part is listed separately."""
N_TOLD: Final = 3
"""Changes in the report of a run."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Explanation(TextAnswer):
    """Explanation of one run."""

    result: Result
    path: CriticalPath | None
    """None where no chain sets the step time, because workers do not wait for each other."""
    figures: tuple[Explained, ...]
    constants: tuple[Constant, ...]
    gains: Gains | None
    """None where not requested, and of a run that does not fit."""
    fitting: tuple[str, ...] = ()
    """Changes with which a run fits that does not."""
    unsaid: tuple[Unsaid, ...] = ()
    """Settings of the software that were left to defaults and that decide; none where changes were not asked for."""

    def headline(self) -> str:
        """Return whether the run fits, and how long a step takes."""
        metrics = self.result.metrics
        computing = metrics.breakdown_s.compute / metrics.step_time_s
        interval = f" ({interval_note(metrics)})" if interval_note(metrics) else ""
        peak, capacity = (memory_text(each) for each in (metrics.memory.peak_bytes, metrics.memory.capacity_bytes))
        misfit = "" if metrics.memory.fits else f"The run does not fit in memory, {peak} of {capacity}. If it did: "
        return (
            f"{misfit}A step takes {format_quantity(metrics.step_time_s, 's')}{interval}, {percent_text(metrics.mfu)} MFU: accelerators"
            f" compute for {computing_percent(metrics):.1f} % of it, at {percent_text(metrics.hfu / computing)} of their peak"
            " (plot roofline has it by kernel)."
        )

    def lines(self) -> Sequence[str]:
        """Return its critical path, and the changes that shorten it most, in sentences."""
        metrics, path, gains, said = self.result.metrics, self.path, self.gains, list[str]()
        if not metrics.memory.fits:
            return ("The chain of tasks, figures and constants of a step that cannot be run are in --json.",)
        if path is None:
            said.append("Workers do not wait for each other: no chain of tasks sets the step time.")
        else:
            shares = path.shares()
            parts = ", ".join(
                f"{what} {percent_text(seconds / path.step_time_s)}"
                for what, seconds in shares.items()
                if seconds >= LEAST_SHARE * path.step_time_s
            )
            said.append(f"What sets it: a chain of {len(path.spans):,} tasks, of which {parts}.")
            if abs(path.step_time_s / metrics.step_time_s - 1.0) > ROUND_OFF:
                alone = format_quantity(path.step_time_s, "s")
                said.append(f"That is one step by itself, {alone}; stages begin the next one when they have ended it.")
            where = ", ".join(f"{name} {percent_text(seconds / path.step_time_s)}" for name, seconds in list(path.classes().items())[:3])
            said.append(f"It runs through {where}; {path.n_tasks - path.n_critical:,} of {path.n_tasks:,} tasks have slack.")
        said += [f"Left to its default, and changes the step most: {each.sentence}." for each in self.unsaid[:1]]
        if gains is not None and gains.best:
            plain_ones = [gain for gain in gains.best if not gain.change.remark]
            first = _gain_text(gains.best[0], metrics.step_time_s)
            alone = (
                f"; by settings alone {_gain_text(plain_ones[0], metrics.step_time_s)}"
                if plain_ones and gains.best[0].change.remark
                else ""
            )
            said.append(f"What would shorten it most: {first}{alone}.")
        elif gains is not None:
            said.append(f"None of {gains.n_tried} changes would shorten it.")
        return said

    def tables(self) -> Sequence[TextTable]:
        """Return changes, chain, figures, constants and slack as tables."""
        if not self.result.metrics.memory.fits:
            return (TextTable(changes_heading(self.result), sentences=self.fitting),) if self.fitting else ()
        found = [_changes(self)] if self.gains is not None and self.gains.best else []
        if self.unsaid:
            found.append(_unsaid(self.unsaid))
        if self.path is not None:
            found.append(_chain(self.path))
        slack = () if self.path is None else (_slack(self.path),)
        sources = tuple(f"{number}. {source}" for number, source in enumerate(_sources(self.constants), 1))
        return (*found, _figures(self.figures), _constants(self), *slack, TextTable("Sources of constants", sentences=sources))

    def to_dict(self) -> dict[str, Data]:
        """Return all of it as plain data; of a long chain its two ends."""
        result, path = self.result, self.path
        return {
            "schema_version": SCHEMA_VERSION,
            "scenario": result.metrics.scenario,
            "scenario_hash": result.scenario_hash,
            "step_time_s": result.step_time_s,
            "critical_path": None if path is None else _path_document(path),
            "changes": None if self.gains is None else plain(self.gains),
            "fitting": list[Data](self.fitting),
            "unsaid": plain(self.unsaid),
            "figures": [
                {
                    "name": figure.name,
                    "value": figure.value,
                    "formula": figure.formula,
                    "inputs": dict(figure.inputs),
                    "remark": figure.remark,
                }
                for figure in self.figures
            ],
            "constants": plain(self.constants),
        }


def explain(source: str, overrides: Sequence[str] = (), *, seed: int = 0, changes: bool = True) -> Explanation | ServedExplanation:
    """Return why the step of a scenario, or the requests of a service, take as long as they do.

    Parameters
    ----------
    source
        A scenario file, one of a framework, a shipped name, ``-``, or a run directory.
    overrides
        ``key=value`` texts for a scenario.
    seed
        Of everything random in a scenario; a run directory has its own.
    changes
        Whether to look for changes that shorten the step, each replayed.
    """
    folder = named_directory(source, overrides)
    if folder is not None:
        kept = replayed(folder)
        written, changed, result = kept.written, kept.changes, kept.result
    else:
        written, changed = open_written(source, overrides)
        result = run_scenario(written, changed, seed=seed)
    if isinstance(result, ServingResult):
        return explain_served(written, changed, result, replays=changes)
    built, run = result.built, ChangedRun(written=written, changes=changed, result=result)
    replays = changes and result.metrics.memory.fits
    return Explanation(
        result=result,
        path=critical_path(built, seed=result.seed) if built.plan.strategy.data_parallel.mode == "sync" else None,
        figures=explained(result),
        constants=constants_of(built),
        gains=gains(run, candidates(built)) if replays else None,
        fitting=fitting_changes(run, _command(source, overrides)) if changes and not replays else (),
        unsaid=unsaid(run, alternatives(built)) if replays else (),
    )


def measured_changes(source: str, overrides: Sequence[str], result: Result) -> MeasuredChanges:
    """Return the changes that shorten a step most, and settings left to defaults that change it, each replayed, as sentences.

    Of a run that does not fit in memory the changes with which it fits. Of a step that takes long to replay only some are replayed. None
    for a run that is not from a scenario that can be read again. A run directory is read as ``run`` wrote it.
    """
    if source == "-" or result.built.plan.strategy.data_parallel.mode != "sync":
        return NOT_MEASURED
    written, changed = named_scenario(source, overrides)
    run = ChangedRun(written=written, changes=changed, result=result)
    command = _command(source, overrides)
    if not result.metrics.memory.fits:
        return MeasuredChanges(changes=fitting_changes(run, command))
    engine = result.metrics.engine
    most = MOST_EFFORT // (engine.events + engine.n_tasks + engine.ranks) // 2
    found, others = gains(run, candidates(result.built), most, N_TOLD), alternatives(result.built)
    settings = unsaid(run, others[:most])
    told = tuple(_change_text(gain, result.step_time_s) for gain in found.best[:N_TOLD])
    remarks = [] if told else [f"none of {found.n_tried - found.n_left} changes does, each by itself"]
    n_left = found.n_left + len(others[most:])
    if n_left:
        remarks.append(f"not replayed, to stay short: {n_left} more changes and settings; clustersim explain {command} has them")
    searched = result.built.plan.n_ranks > 1 and named_directory(source, overrides) is None
    further = (f"clustersim plan {command} searches layouts, and names those that it leaves out",) if searched else ()
    return MeasuredChanges(told, tuple(remarks), tuple(each.sentence for each in settings[:N_TOLD]), further)


def _command(source: str, overrides: Sequence[str]) -> str:
    return f"{shlex.quote(source)} {set_options(overrides)}".rstrip()


def _change_text(gain: Gain, step_s: float) -> str:
    doubt = ", not decided" if gain.better_than_base == "not decided" else ""
    return f"-{percent_text(gain.saved_s / step_s)}{doubt}: {gain.change}; {set_options(gain.change.overrides)}"


def _gain_text(gain: Gain, step_s: float) -> str:
    remark = f", which {gain.change.remark}" if gain.change.remark and " " in gain.change.remark else ""
    doubt = f", {UNDECIDED}" if gain.better_than_base == "not decided" else ""
    return f"{gain.change.what}{remark}, {percent_text(gain.saved_s / step_s)} less{doubt}"


def _changes(explanation: Explanation) -> TextTable:
    assert explanation.gains is not None
    step_s, gains = explanation.result.step_time_s, explanation.gains
    times = format_alike([gain.step_time_s for gain in gains.best[:N_CHANGES]], "s")
    rows = tuple(
        (
            f"-{percent_text(gain.saved_s / step_s)} {MARK if gain.better_than_base == 'not decided' else ' '}",
            time,
            memory_text(gain.peak_bytes),
            f"{gain.change} {set_options(gain.change.overrides)}",
        )
        for gain, time in zip(gains.best, times, strict=False)
    )
    left = [f"{gains.n_impossible} are not possible in this scenario"] if gains.n_impossible else []
    left += [f"{gains.n_misfits} could be faster but do not fit in memory"] if gains.n_misfits else []
    tried = f"{gains.n_tried} tried{', of which ' if left else ''}{', '.join(left)}"
    shown = f"the first {len(rows)} of {len(gains.best)}" if len(rows) < len(gains.best) else "the best of each kind"
    heading = f"Changes that shorten the step, each by itself, {shown} ({tried}; {MARKED})"
    return TextTable(heading, (">step  ", ">takes", ">memory", "change, and its options"), rows)


def _unsaid(settings: Sequence[Unsaid]) -> TextTable:
    rows = tuple(
        (
            each.key,
            each.taken,
            each.instead,
            f"{100 * each.change_fraction:+.1f} % {' ' if each.decided else MARK}",
        )
        for each in settings
    )
    heading = f"{UNSAID}, each with the other value that changes the step most ({MARKED})"
    return TextTable(heading, ("setting", "taken", "other", ">step  "), rows)


def _chain(path: CriticalPath) -> TextTable:
    shares = path.shares()
    times = format_alike(list(shares.values()), "s")
    rows = tuple(
        (what, time, percent_text(seconds / path.step_time_s)) for (what, seconds), time in zip(shares.items(), times, strict=True)
    )
    return TextTable("The chain that sets the step time", ("spent on", ">time", ">share"), rows)


def _slack(path: CriticalPath) -> TextTable:
    rows = tuple(
        (
            path.rank_classes[slack.rank_class].name,
            slack.what,
            f"{slack.n_tasks:,}",
            *(
                "none" if slack_s <= ROUND_OFF * path.step_time_s else format_quantity(slack_s, "s")
                for slack_s in (slack.least_s, slack.mean_s)
            ),
        )
        for slack in path.slack[:N_SLACK]
    )
    n_more = len(path.slack) - len(rows)
    return TextTable(
        f"Slack of tasks{f', the first {len(rows)} rows (--json has {n_more} more)' if n_more else ''}",
        ("ranks", "what", ">tasks", ">least", ">mean"),
        rows,
    )


def _figures(figures: tuple[Explained, ...]) -> TextTable:
    rows = [row for figure in figures for row in _figure_rows(figure)]
    return TextTable("How figures follow from each other", ("figure", ">value", "formula and inputs"), tuple(rows))


def _figure_rows(figure: Explained) -> list[tuple[str, str, str]]:
    remark = f" ({figure.remark})" if figure.remark else ""
    inputs = [("", "", f"  {name} = {shown(name, value)}") for name, value in figure.inputs]
    return [(figure.name, shown(figure.name, figure.value), f"= {figure.formula}{remark}"), *inputs]


def _constants(explanation: Explanation) -> TextTable:
    numbers = {source: number for number, source in enumerate(_sources(explanation.constants), 1)}
    rows = tuple(
        (constant.name, constant.value, constant.meaning, ", ".join(str(numbers[_cited(source)]) for source in constant.sources))
        for constant in explanation.constants
    )
    return TextTable("Constants and where they are from", ("constant", ">value", "meaning", "from"), rows)


def _sources(constants: Sequence[Constant]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_cited(source) for constant in constants for source in constant.sources))


def _cited(source: Source) -> str:
    return f"{source.title}, {source.url}" if "://" in source.url else source.title


def _path_document(path: CriticalPath) -> dict[str, Data]:
    spans = path.spans if len(path.spans) <= 2 * N_ENDS else (*path.spans[:N_ENDS], *path.spans[-N_ENDS:])
    return {
        "step_time_s": path.step_time_s,
        "tasks": path.n_tasks,
        "critical_tasks": path.n_critical,
        "chain_tasks": len(path.spans),
        "shares_s": dict(path.shares()),
        "rank_classes_s": dict(path.classes()),
        "ends": [_span_document(path, span) for span in spans],
        "slack": [
            {
                "rank_class": path.rank_classes[slack.rank_class].name,
                "what": slack.what,
                "tasks": slack.n_tasks,
                "least_s": slack.least_s,
                "mean_s": slack.mean_s,
            }
            for slack in path.slack
        ],
    }


def _span_document(path: CriticalPath, span: Span) -> dict[str, Data]:
    return {
        "rank_class": path.rank_classes[span.rank_class].name,
        "stream": span.stream,
        "kind": span.kind,
        "name": span.name,
        "micro_batch": span.micro_batch,
        "start_s": span.start_s,
        "end_s": span.end_s,
    }
