"""Explain a serving run: terms of its step, constants, and changes that shorten requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from clustersim.apps.explain.candidates import LEAST, CandidateChange
from clustersim.apps.explain.constants import Constant, served_constants
from clustersim.apps.serve.deployment import build_serving
from clustersim.apps.serve.deployment_run import machine_of_serving, run_serving
from clustersim.apps.serve.served_intervals import served_bar
from clustersim.apps.serve.serving_result import ServingResult
from clustersim.config.checks import serving_values
from clustersim.config.load import ScenarioText
from clustersim.config.overriding import Override, parse_override, set_options
from clustersim.config.serving_scenario import checked_serving
from clustersim.config.yaml_text import plain
from clustersim.documents.text import Data
from clustersim.errors import InfeasibleError, ScenarioError
from clustersim.measure.deciding import MARK, MARKED, UNDECIDED, Decision, Judged, figures_at, is_better
from clustersim.measure.serving_metrics import Interval, ServingMetrics
from clustersim.progress import advanced, phase
from clustersim.report.facts import percent_text
from clustersim.report.serving_summary import slo_rows, slo_title, slo_verdict
from clustersim.report.text_tables import TextAnswer, TextTable
from clustersim.units.divisors import count_text
from clustersim.units.quantity import format_quantity

SCHEMA_VERSION = 1
_DOCUMENTED: Final = ("gpus", "slo", "step_s", "ttft_s", "ttft_interval_s", "tpot_s", "tpot_interval_s", "e2e_interval_s")
"""Metrics of the run in the document."""
_WHOLE: Final = "e2e_s.mean"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedGain:
    """One change, replayed with the same requests."""

    change: CandidateChange
    metrics: ServingMetrics
    saved_fraction: float
    """Reduction of the mean time from sending a request to its last token, as a share of it."""
    better_than_base: Decision | None
    """Whether it is better as far as the error bars tell."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ServedExplanation(TextAnswer):
    """Explanation of one serving run."""

    result: ServingResult
    frontend_s: float
    """Mean time of a measured request outside the engine, in seconds."""
    constants: tuple[Constant, ...]
    gains: tuple[ServedGain, ...]
    """Those that shorten a request, the largest first."""
    overloaded: tuple[str, ...]
    """Changes with which requests come faster than they are answered."""
    n_tried: int
    n_impossible: int
    """Contradict the scenario, or do not fit in memory."""

    def headline(self) -> str:
        """Return the mean time of an engine step, and its largest terms."""
        step = self.result.metrics.step_s
        terms = sorted(step.by_term.items(), key=lambda each: -each[1])[:3]
        parts = ", ".join(f"{name.replace('_', ' ')} {percent_text(seconds / step.mean)}" for name, seconds in terms)
        return f"An engine step takes {format_quantity(step.mean, 's')} on average, of which {parts}."

    def lines(self) -> Sequence[str]:
        """Return times of requests, and the change that shortens them most, in sentences."""
        metrics, said = self.result.metrics, list[str]()
        if metrics.ttft_s is not None:
            parts_s = (metrics.ttft_s.mean, self.frontend_s, metrics.ttft_s.mean - self.frontend_s)
            whole, outside, inside = (format_quantity(each, "s") for each in parts_s)
            expected = _expected(metrics.ttft_interval_s)
            said.append(f"The first token takes {whole} on average{expected}: {outside} in the front end, {inside} in queue and steps.")
        if metrics.tpot_s is not None:
            said.append(f"Between tokens pass {format_quantity(metrics.tpot_s.mean, 's')}{_expected(metrics.tpot_interval_s)}.")
        if metrics.rate_binds:
            share = percent_text(min(metrics.output_tokens_per_s / metrics.full_load_output_tokens_per_s, 1.0))
            said.append(f"Throughput is the rate that requests come at, {share} of what full batches would give.")
        if metrics.overloaded:
            said.append("The queue grows without end: latencies are those of the overload.")
        said += (
            [f"SLO of {name}, {limit}: {found}, {verdict}." for name, limit, found, _, verdict in slo_rows(metrics.slo)]
            if metrics.slo
            else []
        )
        if self.gains:
            first, n_now = self.gains[0], metrics.gpus
            others = [_gain_text(gain, n_now) for gain in self.gains if first.metrics.gpus != n_now == gain.metrics.gpus]
            more = f"; on as many GPUs {others[0]}" if others else ""
            said.append(f"What would shorten requests most: {_gain_text(first, n_now)}{more}.")
        elif self.n_tried:
            said.append(f"None of {self.n_tried} changes would shorten requests.")
        if self.overloaded and not metrics.overloaded:
            said.append(f"Requests would come faster than they are answered with {', or '.join(self.overloaded)}.")
        return said

    def tables(self) -> Sequence[TextTable]:
        """Return terms of a step, changes and constants as tables."""
        step = self.result.metrics.step_s
        terms = tuple(
            (name.replace("_", " "), format_quantity(seconds, "s"), percent_text(seconds / step.mean))
            for name, seconds in sorted(step.by_term.items(), key=lambda each: -each[1])
            if seconds > 0.0
        )
        found = [TextTable("Terms of an engine step, mean over steps", ("term", ">time", ">share"), terms)]
        if self.gains:
            left = f"{self.n_impossible} impossible, {len(self.overloaded)} overloaded"
            heading = f"Changes that shorten a request, each by itself ({self.n_tried} tried, {left}; {MARKED})"
            slo = ("SLO",) if self.result.metrics.slo else ()
            columns = (">end to end  ", ">TTFT, p50", ">TPOT, p50", ">GPUs", ">tokens/s per GPU", *slo, "change", "as options")
            found.append(TextTable(heading, columns, tuple(map(_gain_row, self.gains))))
        rows = tuple((each.name, each.value, each.meaning, "; ".join(source.title for source in each.sources)) for each in self.constants)
        return (*found, TextTable("Constants", ("constant", ">value", "meaning", "source"), rows))

    def to_dict(self) -> dict[str, Data]:
        """Return the document that ``explain --json`` prints of a serving run."""
        metrics = self.result.metrics
        return {
            "schema_version": SCHEMA_VERSION,
            "scenario": metrics.scenario,
            **{name: plain(getattr(metrics, name)) for name in _DOCUMENTED},
            "frontend_s": self.frontend_s,
            "changes": [
                {
                    "change": gain.change.what,
                    "set": list[Data](gain.change.overrides),
                    "saved_fraction": gain.saved_fraction,
                    "better_than_base": gain.better_than_base,
                    "e2e_s": plain(gain.metrics.e2e_s),
                    "ttft_s": plain(gain.metrics.ttft_s),
                    "tpot_s": plain(gain.metrics.tpot_s),
                    "gpus": gain.metrics.gpus,
                    "output_tokens_per_s_per_gpu": gain.metrics.output_tokens_per_s_per_gpu,
                    "slo": plain(gain.metrics.slo),
                }
                for gain in self.gains
            ],
            "overloaded": list[Data](self.overloaded),
            "tried": self.n_tried,
            "impossible": self.n_impossible,
            "constants": [plain(each) for each in self.constants],
        }


def explain_served(written: ScenarioText, changes: Sequence[Override], result: ServingResult, *, replays: bool) -> ServedExplanation:
    """Return the causes of request latency in a serving run, with changes that shorten it if requested."""
    tried = tuple(served_candidates(result)) if replays else ()
    gains: list[ServedGain] = []
    overloaded, n_impossible = list[str](), 0
    with phase("replay changes"):
        for number, candidate in enumerate(tried):
            advanced(number, len(tried))
            try:
                scenario = checked_serving(written, (*changes, *map(parse_override, candidate.overrides)))
                replay = run_serving(build_serving(scenario, seed=result.seed))
            except (ScenarioError, InfeasibleError):
                n_impossible += 1
                continue
            if replay.metrics.overloaded:
                overloaded.append(candidate.what)
                continue
            base, other = result.metrics.e2e_s, replay.metrics.e2e_s
            as_many = replay.metrics.requests.refused <= result.metrics.requests.refused
            if base is not None and other is not None and as_many and other.mean < (1.0 - LEAST) * base.mean:
                gain_fraction, better = 1.0 - other.mean / base.mean, is_better(_judged(replay), _judged(result))
                gains.append(ServedGain(change=candidate, metrics=replay.metrics, saved_fraction=gain_fraction, better_than_base=better))
    engine, requests = result.built.pools[0].model.engine, result.run.requests
    tokens = float(requests.input_tokens[requests.n_warmup :].mean())
    return ServedExplanation(
        result=result,
        frontend_s=engine.frontend_base_s + engine.frontend_per_token_s * tokens,
        constants=served_constants(result.built.node),
        gains=tuple(sorted(gains, key=lambda gain: -gain.saved_fraction)),
        overloaded=tuple(overloaded),
        n_tried=len(tried),
        n_impossible=n_impossible,
    )


def _judged(result: ServingResult) -> Judged | None:
    """Return a run by the mean time of its requests."""
    figures = serving_values(result.metrics)
    bar = served_bar((_WHOLE,), figures, machine_of_serving(result.built))
    return bar and Judged(at=lambda fraction: figures_at(figures, fraction)[_WHOLE], bar=bar, run=result.scenario_hash)


def served_candidates(result: ServingResult) -> Iterator[CandidateChange]:
    """Yield changes of a deployment; requests, model and engine stay, and the number of accelerators where whole replicas allow it."""
    serving, pool = result.built.scenario.spec.serving, result.built.pools[0]
    if serving.disaggregated is None:
        for tp in (pool.layout.tp // 2, pool.layout.tp * 2):
            if tp:
                replicas = max(1, pool.n_replicas * pool.layout.tp // tp)
                yield _change("layout", f"tp {tp} instead of {pool.layout.tp}", f"serving.tp={tp}", f"serving.replicas={replicas}")
    for key, what in (("max_num_seqs", "sequences in a batch"), ("max_batched_tokens", "tokens in a step")):
        now: int = getattr(pool.rules, key) // pool.layout.dp
        for size in (now // 2, now * 2):
            yield _change(key, f"at most {size:,} {what} instead of {now:,}", f"serving.{key}={size}")
    if serving.precision == "bf16":
        yield _change("precision", "weights in fp8 instead of bf16", "serving.precision=fp8", remark="changes the model")
    if serving.kv_precision == "bf16":
        yield _change("KV precision", "KV cache in fp8 instead of bf16", "serving.kv_precision=fp8", remark="changes the model")
    if not pool.rules.prefix_cache and result.run.requests.prefixes:
        yield _change("prefix cache", "with a prefix cache", "serving.prefix_cache=true")
    if pool.n_replicas > 1 and serving.router != "least_loaded":
        yield _change("router", f"the router least_loaded instead of {serving.router}", "serving.router=least_loaded")


def _change(family: str, what: str, *overrides: str, remark: str = "") -> CandidateChange:
    return CandidateChange(family=family, what=what, overrides=overrides, remark=remark)


def _expected(interval: Interval | None) -> str:
    return "" if interval is None else f" (80 % of runs: {format_quantity(interval[0], 's')} to {format_quantity(interval[1], 's')})"


def _gain_text(gain: ServedGain, gpus: int) -> str:
    doubt = f", {UNDECIDED}" if gain.better_than_base == "not decided" else ""
    on = "" if gain.metrics.gpus == gpus else f" on {count_text(gain.metrics.gpus, 'GPU')} instead of {gpus}"
    return f"{gain.change}{on}, {percent_text(gain.saved_fraction)} less{doubt}"


def _gain_row(gain: ServedGain) -> tuple[str, ...]:
    metrics = gain.metrics
    latencies = ("" if each is None else format_quantity(each.p50, "s") for each in (metrics.ttft_s, metrics.tpot_s))
    options = set_options(gain.change.overrides)
    mark = MARK if gain.better_than_base == "not decided" else " "
    speed = f"{metrics.output_tokens_per_s_per_gpu:,.4g}"
    slo = (", ".join(f"{slo_title(each.name)} {slo_verdict(each)}" for each in metrics.slo.checks),) if metrics.slo else ()
    return f"-{percent_text(gain.saved_fraction)} {mark}", *latencies, f"{metrics.gpus:,}", speed, *slo, str(gain.change), options
