"""``clustersim plan --serving``."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from dataclasses import dataclass
from math import inf, isinf
from pathlib import Path
from typing import Final, TextIO

from clustersim.apps.plan.exports import check_written, written
from clustersim.apps.plan.layout_table import YOURS
from clustersim.apps.plan.serving_search import MOST_REPLAYS, Replayed, ServingPlan, plan_serving
from clustersim.cli.options import other_than_stdout
from clustersim.cli.terminal import assumed_notices, notice, print_table, write_files, write_json, write_lines, write_out
from clustersim.cli.watching import watched
from clustersim.config.load import Scenario, read_source
from clustersim.config.overriding import parse_override
from clustersim.config.serving_scenario import ServingScenario, checked_serving
from clustersim.config.yaml_text import plain, yaml_text
from clustersim.documents.files import check_folder, write_text
from clustersim.documents.text import Data
from clustersim.errors import EXIT_NO, EXIT_OK, ScenarioError
from clustersim.measure.deciding import UNDECIDED
from clustersim.report.facts import percent_text
from clustersim.report.serving_summary import slo_title
from clustersim.units.divisors import count_text
from clustersim.units.quantity import format_quantity, format_range

SCHEMA_VERSION: Final = 1
_COLUMNS: Final = (">GPUs", ">tok/s/GPU", ">USD/M")
_MOST_GPUS: Final = 64
_CHEAPER: Final = 0.99
"""Share of a rent below which another is told: the power of a node differs little between deployments."""
_FULL: Final = 0.95
"""Share of the KV cache from which on first tokens wait for it."""
_FAR_BEYOND: Final = 10.0
"""Share of a limit from which on a percentage is hard to read."""
_RATE: Final = "the rate"
_SAID: Final = ("short_run", "refused", "interval_not_measured")
"""Notices on requests and intervals, not on the deployment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """The options of ``plan`` that layouts of training and deployments of serving share."""

    overrides: tuple[str, ...]
    only: tuple[str, ...]
    write: str | None
    framework: str | None
    as_json: bool
    verbose: bool

    def check(self, *, serving: bool) -> None:
        """Raise a ScenarioError where the winner cannot be written so, before anything is searched."""
        if self.framework is not None:
            check_written(self.framework, serving=serving)
        if self.as_json and self.to_stdout:
            raise ScenarioError(
                "--json and --as both write to stdout" if self.framework else "--json and -o - both write to stdout",
                field="--as",
                hint="add -o with a file",
            )
        if self.write is not None and not self.to_stdout:
            check_folder(Path(self.write), field="--write", hint="choose another file")

    @property
    def to_stdout(self) -> bool:
        """Whether the winner is alone on stdout."""
        return self.write == "-" or (self.framework is not None and self.write is None)

    def report(self) -> AbstractContextManager[TextIO | None]:
        """Return the context in which what stdout holds for a person is written: stderr where the winner is alone there."""
        return redirect_stdout(sys.stderr) if self.to_stdout else nullcontext()

    def write_winner(self, scenario: Scenario | ServingScenario) -> None:
        """Write the scenario that won, or the file of a framework in its place."""
        if self.framework is not None:
            write_files(written(scenario, self.framework), other_than_stdout(self.write))
        elif self.to_stdout:
            write_out(yaml_text(scenario.document.data))
        elif self.write is not None:
            write_text(Path(self.write), yaml_text(scenario.document.data), hint="choose another file with --write")
            notice(f"wrote {self.write}")


def plan_served(scenario: str, options: PlanOptions, *, most_gpus: int | None, most_replays: int | None) -> int:
    """Find the fewest GPUs that meet the SLO of a serving scenario, print them, and return the exit code."""
    source, changes = read_source(scenario), tuple(map(parse_override, options.overrides))
    with watched(hint="--most-replays 8 ends the search sooner, --only narrows it"):
        found = plan_serving(
            source,
            changes,
            only=_values(options.only),
            most_gpus=most_gpus or _MOST_GPUS,
            most_replays=most_replays or MOST_REPLAYS,
        )
    if options.as_json:
        write_json(plan_document(found))
    else:
        with options.report():
            _print(found, verbose=options.verbose)
    if found.best is not None:
        options.write_winner(checked_serving(source, (*changes, *found.best.overrides)))
        return EXIT_OK
    notice(_no(found))
    return EXIT_NO


def _values(only: tuple[str, ...]) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for text in only:
        name, equals, values = text.partition("=")
        if not equals or not values:
            raise ScenarioError(f"'{text}' has no values", field="--only", hint="write such as tp=1,2,4")
        found[name.strip()] = tuple(value.strip() for value in values.split(","))
    return found


def _no(found: ServingPlan) -> str:
    if found.nearest is None:
        reasons = "; ".join(f"{reason} ({count})" for reason, count in found.rejected.items())
        return f"no: none of {found.n_candidates} deployments can meet the SLOs: {reasons}"
    near = found.nearest
    broken = [*near.broken]
    broken += ["the rate: the queue grows without end"] if near.metrics.overloaded else []
    where = f"{_name(near)} with replicas={near.replicas} on {_gpus(near)}"
    bound = f"bound by {bound_by(near)}; {_largest_term(near)}"
    return f"no: no deployment meets the SLOs; nearest is {where}, which misses {', '.join(broken)}: {bound}"


def _print(found: ServingPlan, *, verbose: bool) -> None:
    best = found.best
    if best is not None:
        write_lines(f"{_whole_name(best)}: {_gpus(best)} of {best.n_nodes} {best.candidate.machine}")
        rows = [*found.kinds, *(each for each in found.frontier if each not in found.kinds)]
        write_lines(*(f"  {line}" for line in (*_figures(best), _verdict(best), *_same_bill(found, best), *_cheaper(rows, best))), "")
        _print_deployments(rows, found.own)
        write_lines("", "What the choice turns on", *(f"  {line}" for line in _turns(found, best)))
    else:
        _print_deployments([found.nearest] if found.nearest is not None else [], found.own)
    write_lines("", "Certificate")
    proven = "nothing else meets the SLOs with fewer GPUs" if best is not None else "none of them meets the SLOs"
    proof = f"{proven}, by the predicted values, not by the ends of their intervals"
    proof = proof if found.proven else f"not proven: another may do with {count_text(round(found.least_gpus), 'GPU')}"
    n_simulated, runs = found.n_candidates - found.n_pruned, count_text(len(found.replayed), "run")
    write_lines(f"  {n_simulated} of {found.n_candidates} deployments simulated, in {runs}; {proof}")
    write_lines(*(f"  {count} cannot: {reason}" for reason, count in found.rejected.items()))
    assumed_notices(found.assumed, verbose=verbose, cautions=found.cautions)
    shown = best or found.nearest
    for flag in shown.metrics.flags if shown is not None else ():
        if flag.code in _SAID:
            notice(f"{flag.code}: {flag.message}")


def _figures(best: Replayed) -> list[str]:
    """Return precision, throughput, cost and latencies, with their intervals."""
    metrics, rate_interval = best.metrics, best.metrics.output_tokens_per_s_interval
    rate = f"{metrics.output_tokens_per_s:,.0f}"
    wide = rate_interval is not None and rate_interval[0] < rate_interval[1]
    if rate_interval:
        rate += f" ({rate_interval[0]:,.0f} to {rate_interval[1]:,.0f})" if wide else " (set by the rate)"
    usd = _usd(best)
    money = "no price" if usd is None else f"{usd:.2f} USD per million of {'the tokens requested' if metrics.rate_binds else 'them'}"
    if usd is not None and rate_interval and wide:
        least, most = (usd * metrics.output_tokens_per_s / rate for rate in reversed(rate_interval))
        money += f" ({least:.2f} to {most:.2f} USD)"
    latencies = [
        f"{slo_title(check.name)} {format_quantity(check.found_s, 's')}"
        + (f" ({format_range(*check.interval_s, 's', as_of=check.found_s)})" if check.interval_s is not None else "")
        for check in best.checks
        if check.found_s is not None
    ]
    return [best.candidate.precision, f"{rate} output tokens/s; {money}{_hourly_text(best)}", ", ".join(latencies)]


def _hourly_text(best: Replayed) -> str:
    """Return the cost of an hour, of machines and of energy as far as priced."""
    cost, per_hour = best.metrics.cost, _usd_per_hour(best)
    if cost is None or per_hour is None:
        return ""
    amount = cost.per_million_output_tokens
    parts = (("machines", amount.machines_usd), ("energy", amount.energy_usd))
    shown = " and ".join(f"{usd / (amount.usd or 1.0) * per_hour:.2f} USD for {what}" for what, usd in parts if usd is not None)
    return f"; {shown} per hour, whole nodes counted"


def _verdict(best: Replayed) -> str:
    """Return whether the SLOs are met within the error bars."""
    doubts = [
        f"{slo_title(check.name)} can be {format_quantity(check.interval_s[1], 's')} of {format_quantity(check.limit_s, 's')}"
        for check in best.checks
        if check.interval_s is not None and not check.decided
    ]
    return f"{UNDECIDED}, since {', '.join(doubts)}" if doubts else "decided: the SLOs are met at the upper ends of their intervals too"


def _same_bill(found: ServingPlan, best: Replayed) -> list[str]:
    """Return the deployment on the same rented nodes that surely meets the SLOs, where the best one may not."""
    other = found.surely
    if other is None or best.decided or (other.candidate.machine, other.n_nodes) != (best.candidate.machine, best.n_nodes):
        return []
    return [f"the same bill: {_whole_name(other)} on {_gpus(other)}, {_verdict(other)}"]


def _cheaper(rows: Sequence[Replayed], best: Replayed) -> list[str]:
    """Return the deployment with the least rent, where the best one has a larger."""
    rents = [(rent, each) for each in rows if (rent := _usd_per_hour(each)) is not None]
    rent, other = min(rents, key=lambda each: each[0], default=(inf, best))
    if rent >= _CHEAPER * (_usd_per_hour(best) or 0.0):
        return []
    nodes = f"{_gpus(other)} of {other.n_nodes} {other.candidate.machine}"
    return [f"cheaper: {_whole_name(other)}, {nodes}, {rent:.2f} USD per hour, {_verdict(other)}"]


def _turns(found: ServingPlan, best: Replayed) -> list[str]:
    """Return the next best of another kind, the GPUs that are enough at the upper ends of the intervals, and the largest term of a step."""
    other = next((each for each in found.kinds if each.candidate.kind != best.candidate.kind), None)
    lines = ["no other kind that was replayed meets the SLOs"]
    if other is not None:
        more = "as many GPUs" if other.gpus == best.gpus else _gpus(other)
        lines = [f"next best of another kind: {_whole_name(other)}, {more}, {_verdict(other)}"]
    if not best.decided:
        enough = "nothing that was replayed meets the SLOs"
        if found.surely is not None:
            enough = f"{_whole_name(found.surely)} on {_gpus(found.surely)} meets the SLOs"
        lines.append(f"at the upper ends of the intervals: {enough}")
    return [*_bound_lines(found, best), *lines, _largest_term(best)]


def _largest_term(each: Replayed) -> str:
    terms = each.metrics.step_s.by_term
    largest = max(terms, key=lambda term: terms[term])
    return f"largest part of a step: {largest.replace('_', ' ')}, {percent_text(terms[largest] / each.metrics.step_s.mean)}"


def _of_limit(share: float, word: str = "") -> str:
    """Return a share of a limit in percent, with a word behind it, or how many times the limit it is, where that is ten or more."""
    return f"{share:,.0f} times" if share >= _FAR_BEYOND else percent_text(share) + word


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingBound:
    """Limit that a deployment comes nearest to, or is furthest beyond."""

    cause: str
    """The rate, KV memory, prefill time, decode time or both; ``no limit`` where there is no SLO."""
    check: str | None = None
    limit_fraction: float | None = None
    """Latency of the check as a share of its limit."""
    kv_fraction: float
    """Largest share of the KV cache in use."""

    def __str__(self) -> str:
        """Return it as a part of a sentence."""
        at = "requests come faster than they are answered" if self.cause == _RATE else "there is no SLO"
        if self.check is not None and self.limit_fraction is not None:
            at = f"{slo_title(self.check)} at {_of_limit(self.limit_fraction, ' of')} its limit"
        return f"{self.cause}, {at}; the KV cache is at most {percent_text(self.kv_fraction)} full"


def bound_by(each: Replayed) -> ServingBound:
    """Return what comes nearest to its limit, or is furthest beyond it: the rate, KV memory, prefill or decode time."""
    metrics, checks = each.metrics, [(check.found_s / check.limit_s, check) for check in each.checks if check.found_s is not None]
    if metrics.overloaded or not checks:
        return ServingBound(cause=_RATE if metrics.overloaded else "no limit", kv_fraction=metrics.kv.peak_fraction)
    share, check = max(checks, key=lambda each: each[0])
    cause = (
        "decode time" if check.name.startswith("tpot") else "prefill time" if check.name.startswith("ttft") else "prefill and decode time"
    )
    if metrics.kv.preemptions or (metrics.kv.peak_fraction > _FULL and check.name.startswith("ttft")):
        cause = "KV memory"
    return ServingBound(cause=cause, check=check.name, limit_fraction=share, kv_fraction=metrics.kv.peak_fraction)


def _bound_lines(found: ServingPlan, best: Replayed) -> list[str]:
    """Return what binds the best deployment, and the nearest miss of each kind."""
    lines, kept = [f"bound by {bound_by(best)}"], {each.candidate.kind for each in found.kinds}
    refused: dict[object, Replayed] = {}
    for each in sorted(found.replayed, key=lambda each: (each.candidate.kind in kept, each.excess)):
        if each.gpus < best.gpus or each.candidate.kind not in kept:
            refused.setdefault(each.candidate.kind, each)
    told = (f"refused: {_whole_name(each)}, {_gpus(each)}, by {bound_by(each)}; {_largest_term(each)}" for each in refused.values())
    return [*lines, *told]


def _print_deployments(found: Sequence[Replayed], own: Replayed | None) -> None:
    """Print deployments as a table, that of the scenario itself among them."""
    added = [] if own is None or own in found else [own]
    shown = sorted([*found, *added], key=lambda each: each.gpus)
    if not shown:
        return
    titles = [f">{slo_title(check.name)}" for check in shown[0].checks]
    print_table((*_COLUMNS, *titles, "deployment"), [_cells(each, YOURS if each == own else "") for each in shown])
    write_lines("  output tokens, USD per million (at a rate, of those requested); latencies with their share of the limit")


def _usd(each: Replayed) -> float | None:
    """Return the cost of a million output tokens."""
    return None if each.metrics.cost is None else each.metrics.cost.per_million_output_tokens.usd


def _usd_per_hour(each: Replayed) -> float | None:
    return None if each.metrics.cost is None else each.metrics.cost.usd_per_hour


def _whole_name(each: Replayed) -> str:
    return f"{_name(each)} replicas={each.replicas}"


def _gpus(each: Replayed) -> str:
    return count_text(each.gpus, "GPU")


def _name(each: Replayed) -> str:
    return " ".join(f"{name}={value}" for name, value in each.candidate.values)


def _cells(each: Replayed, whose: str) -> tuple[str, ...]:
    found = [
        "" if check.found_s is None else f"{format_quantity(check.found_s, 's')}, {_of_limit(check.found_s / check.limit_s)}"
        for check in each.checks
    ]
    usd = _usd(each)
    per_gpu = f"{each.metrics.output_tokens_per_s_per_gpu:,.0f}"
    where = f" on {each.n_nodes} nodes" if each.n_nodes > 1 else ""
    return f"{each.gpus}", per_gpu, "-" if usd is None else f"{usd:.2f}", *found, f"{whose}{_whole_name(each)}{where}"


def plan_document(found: ServingPlan) -> dict[str, Data]:
    """Return the document that ``plan --serving --json`` prints."""
    return {
        "schema_version": SCHEMA_VERSION,
        "best": None if found.best is None else _deployment(found.best),
        "nearest": None if found.nearest is None else _deployment(found.nearest),
        "kinds": [_deployment(each) for each in found.kinds],
        "own": None if found.own is None else _deployment(found.own),
        "surely": None if found.surely is None else _deployment(found.surely),
        "frontier": [_deployment(each) for each in found.frontier],
        "proven": found.proven,
        "least_gpus": None if isinf(found.least_gpus) else int(found.least_gpus),
        "candidates": found.n_candidates,
        "pruned": found.n_pruned,
        "replays": len(found.replayed),
        "rejected": dict(found.rejected),
        "assumed": list[Data](found.assumed),
        "cautions": list[Data](found.cautions),
    }


def _deployment(each: Replayed) -> dict[str, Data]:
    metrics = each.metrics
    return {
        **dict(each.candidate.values),
        "replicas": each.replicas,
        "gpus": each.gpus,
        "least_replicas": None if isinf(each.candidate.least_replicas) else each.candidate.least_replicas,
        "binds": each.candidate.binds,
        "bound_by": plain(bound_by(each)),
        "precision": each.candidate.precision,
        "output_tokens_per_s": metrics.output_tokens_per_s,
        "output_tokens_per_s_interval": plain(metrics.output_tokens_per_s_interval),
        "output_tokens_per_s_per_gpu": metrics.output_tokens_per_s_per_gpu,
        "usd_per_million_output_tokens": _usd(each),
        "usd_per_hour": _usd_per_hour(each),
        "decided": each.decided,
        "checks": plain(each.checks),
        "tpot_mean_s": None if metrics.tpot_s is None else metrics.tpot_s.mean,
        "of_limits_fraction": None if isinf(each.excess) else each.excess,
        "broken": list(each.broken),
        "flags": plain(metrics.flags),
    }
