"""Leave one source, or one accelerator, of served runs out, fit what was fitted to served runs to the others, and predict it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, combinations
from math import exp, log
from statistics import fmean, median
from types import MappingProxyType
from typing import Final

from clustersim.apps.serve.deployment import BuiltServing, build_serving
from clustersim.apps.serve.served_intervals import ServedBand, ServedFold, ServedResiduals
from clustersim.apps.study.pools import in_order
from clustersim.apps.validate.quantiles import LEVEL_FRACTION, weighted_quantile
from clustersim.apps.validate.residuals import rounded_data
from clustersim.apps.validate.served import METRICS, ServedResult, ServedRow, served_result, served_rows, served_source_names
from clustersim.config.serving_scenario import load_serving
from clustersim.documents.text import Data
from clustersim.hardware.catalog import load_accelerator, profile_names
from clustersim.hardware.serving_constants import without_measurements
from clustersim.progress import phase
from clustersim.serving.engines import EngineConstants
from clustersim.serving.step_model import FUSED_EXPERTS
from clustersim.units.grouping import grouped


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A constant that was fitted to served runs: the values it may take, and the runs that depend on it."""

    shipped: float
    neutral: float
    """The nearest to it is taken of values that meet the other runs alike."""
    values: tuple[float, ...]
    metrics: tuple[str, ...]
    concerns: Callable[[BuiltServing], bool]


def _engine(built: BuiltServing) -> EngineConstants:
    return built.pools[0].model.engine


def _is_vllm(built: BuiltServing) -> bool:
    return _engine(built).engine == "vllm"


def _is_sglang(built: BuiltServing) -> bool:
    return _engine(built).engine == "sglang"


def _has_experts(built: BuiltServing) -> bool:
    return any(layer.experts is not None for layer in built.pools[0].model.work.layers)


def _has_separate_experts(built: BuiltServing) -> bool:
    return _has_experts(built) and built.pools[0].model.formats.experts not in FUSED_EXPERTS


def _is_tensorrt_llm(built: BuiltServing) -> bool:
    return _engine(built).engine == "tensorrt_llm"


def _has_few_requests(built: BuiltServing) -> bool:
    concurrency = built.asked.requests.concurrency
    return concurrency is not None and concurrency <= 16


FITTED: Final[Mapping[str, Fitted]] = MappingProxyType(
    {
        "popularity_shape": Fitted(
            shipped=0.6, neutral=100.0, values=(0.3, 0.6, 1.0, 3.0, 100.0), metrics=("tpot_s", "output_tokens_per_s"), concerns=_has_experts
        ),
        "vllm_host": Fitted(
            shipped=1.0, neutral=0.5, values=(0.25, 0.5, 1.0, 1.5, 2.0), metrics=("tpot_s", "output_tokens_per_s"), concerns=_is_vllm
        ),
        "sglang_gap": Fitted(
            shipped=1.0, neutral=0.25, values=(0.25, 0.5, 1.0, 1.5, 2.0), metrics=("tpot_s", "output_tokens_per_s"), concerns=_is_sglang
        ),
        "expert_launches": Fitted(
            shipped=1.0, neutral=0.5, values=(0.25, 0.5, 1.0, 1.5, 2.0), metrics=("ttft_s",), concerns=_has_separate_experts
        ),
        "frontend": Fitted(
            shipped=1.0,
            neutral=0.0,
            values=(0.0, 1 / 3, 2 / 3, 1.0, 4 / 3),
            metrics=("ttft_s",),
            concerns=lambda built: _has_few_requests(built) and not _is_tensorrt_llm(built),
        ),
        "tensorrt_llm_frontend": Fitted(
            shipped=1.0,
            neutral=0.0,
            values=(0.0, 0.5, 1.0, 1.5, 2.0),
            metrics=("ttft_s",),
            concerns=lambda built: _has_few_requests(built) and _is_tensorrt_llm(built),
        ),
    }
)
"""Shape of expert popularity; host time of vLLM, gap between the steps of SGLang, launches of experts and times of both front ends over
the shipped ones."""

ROWS_OF_A_GROUP: Final = 6
"""Rows of one model, machine, engine and number format that are predicted, so that no group outweighs the others by its size."""

Constants = tuple[tuple[str, float], ...]


def adapted(constants: Constants, built: BuiltServing) -> BuiltServing:
    """Return a deployment with other values of the fitted constants."""
    value = dict(constants)
    engine = _engine(built)
    host = value.get("vllm_host", 1.0) if _is_vllm(built) else 1.0
    gap = value.get("sglang_gap", 1.0) if _is_sglang(built) else 1.0
    frontend = value.get("tensorrt_llm_frontend" if _is_tensorrt_llm(built) else "frontend", 1.0)
    engine = replace(
        engine,
        host_base_s=engine.host_base_s * host,
        host_per_sequence_s=engine.host_per_sequence_s * host,
        sampling_base_s=engine.sampling_base_s * gap,
        expert_launches=round(engine.expert_launches * value.get("expert_launches", 1.0)),
        frontend_base_s=engine.frontend_base_s * frontend,
        frontend_per_token_s=engine.frontend_per_token_s * frontend,
    )
    shape = value.get("popularity_shape", FITTED["popularity_shape"].shipped)
    return replace(
        built, pools=tuple(replace(pool, model=replace(pool.model, engine=engine, popularity_shape=shape)) for pool in built.pools)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedCase:
    """A served run, and what is left out together with it."""

    row: ServedRow
    accelerator: str
    depends_on: tuple[str, ...]
    """Names of the fitted constants that its prediction depends on."""


def cross_validate_served(names: Sequence[str] = (), *, jobs: int | None = None) -> ServedResiduals:
    """Return how each source, and each accelerator, is predicted by the others, and error bars made of the sources' residuals.

    Each constant is fitted alone, with the others as shipped: the value with the least median error, of the runs of the others that
    depend on it. What was measured on kernels and collectives is not of these sources, and stays.
    """
    cases, known = [_case(row) for name in names or served_source_names() for row in _chosen(name)], Known()
    errors = _errors_by_value(cases, known, jobs)
    results: dict[str, list[tuple[str, ServedResult]]] = {}
    folds: list[ServedFold] = []
    left_out: dict[str, list[str]] = {"source": [case.row.source_id for case in cases], "accelerator": [case.accelerator for case in cases]}
    for kind, lots in left_out.items():
        of_cases = list(zip(lots, cases, strict=True))
        constants = {lot: _refitted([case for own, case in of_cases if own != lot], errors) for lot in lots}
        with phase(f"predict each {kind} without it"):
            found = _results([(case, constants[lot]) for lot, case in of_cases], known, jobs)
        results[kind] = list(zip(lots, found, strict=True))
        folds += chain.from_iterable(_folds(kind, lot, own, results[kind]) for lot, own in constants.items())
    bands = _bands(results["source"], borrowed_widenings(cases, jobs, known))
    return ServedResiduals(sources=sorted(set(left_out["source"])), level=LEVEL_FRACTION, bands=list(bands), folds=folds)


def borrowed_widenings(cases: Sequence[ServedCase], jobs: int | None = None, known: Known | None = None) -> Mapping[str, float]:
    """Return how many times as large the errors of a metric are where another generation lends all constants; at least 1.

    Errors are mean absolute logarithms, of an accelerator and then of all accelerators.
    """
    sizes: dict[tuple[str, str, bool], list[float]] = {}
    with phase("predict as shipped"):
        shipped = _results([(case, ()) for case in cases], Known() if known is None else known, jobs)
    with phase("predict with constants of other generations"):
        borrowed = list(in_order(_borrowed, cases, jobs=jobs))
    for borrows, results in ((False, shipped), (True, borrowed)):
        for case, result in zip(cases, results, strict=True):
            for metric, value in result.measured.items():
                size = abs(log(result.predicted[metric] / value))
                sizes.setdefault((metric, case.accelerator, borrows), []).append(size)

    def mean(metric: str, *, borrows: bool) -> float:
        return fmean(fmean(found) for (name, _, of), found in sizes.items() if (name, of) == (metric, borrows))

    metrics = dict.fromkeys(metric for metric, *_ in sizes)
    return {metric: max(1.0, mean(metric, borrows=True) / mean(metric, borrows=False)) for metric in metrics}


def _borrowed(case: ServedCase) -> ServedResult:
    generation = load_accelerator(case.accelerator).generation
    with without_measurements(name for name in profile_names("accelerators") if load_accelerator(name).generation == generation):
        return served_result(case.row)


def _chosen(name: str) -> list[ServedRow]:
    """Return rows of a source at equal distances in each group of one model, machine, engine and number format."""
    groups = grouped((row.group, row) for row in served_rows(name))
    return [row for rows in groups.values() for row in rows[:: max(1, len(rows) // ROWS_OF_A_GROUP)][:ROWS_OF_A_GROUP]]


def _case(row: ServedRow) -> ServedCase:
    built = build_serving(load_serving(row.scenario))
    depends_on = tuple(name for name, each in FITTED.items() if each.concerns(built) and set(each.metrics) & set(row.measured))
    return ServedCase(row=row, accelerator=built.node.accelerator.name, depends_on=depends_on)


def _predicted(task: tuple[ServedCase, Constants]) -> ServedResult:
    case, constants = task
    return served_result(case.row, partial(adapted, constants))


Known = dict[tuple[str, Constants], ServedResult]
"""Results by row and the constants that are not as shipped."""


def _results(tasks: Sequence[tuple[ServedCase, Constants]], known: Known, jobs: int | None) -> list[ServedResult]:
    """Return the result of each task, each computed once, and remember them."""
    keys = [(case.row.id, tuple(each for each in constants if each[1] != FITTED[each[0]].shipped)) for case, constants in tasks]
    missing = {key: task for key, task in zip(keys, tasks, strict=True) if key not in known}
    known.update(zip(missing, in_order(_predicted, list(missing.values()), jobs=jobs), strict=True))
    return [known[key] for key in keys]


Errors = Mapping[tuple[str, str, float], float]
"""Absolute logarithm of predicted over measured, by row, constant and value; the mean of the metrics that depend on it."""


def _errors_by_value(cases: Sequence[ServedCase], known: Known, jobs: int | None) -> Errors:
    tasks = [(case, ((name, value),)) for case in cases for name in case.depends_on for value in FITTED[name].values]
    with phase("predict with each value of the fitted constants"):
        found = _results(tasks, known, jobs)
        return {
            (case.row.id, name, value): fmean(
                abs(log(result.predicted[metric] / result.measured[metric])) for metric in FITTED[name].metrics if metric in result.measured
            )
            for (case, ((name, value),)), result in zip(tasks, found, strict=True)
        }


def _refitted(others: Sequence[ServedCase], errors: Errors) -> Constants:
    fitted: list[tuple[str, float]] = []
    for name, constant in FITTED.items():
        rows = [case.row.id for case in others if name in case.depends_on]
        error_of = {value: round(median(errors[row, name, value] for row in rows), 3) if rows else 0.0 for value in constant.values}
        fitted.append((name, min((error, abs(value - constant.neutral), value) for value, error in error_of.items())[-1]))
    return tuple(fitted)


def _folds(kind: str, lot: str, constants: Constants, results: Sequence[tuple[str, ServedResult]]) -> Iterator[ServedFold]:
    for metric in METRICS:
        sizes = [abs(result.errors[metric]) for name, result in results if name == lot and metric in result.measured]
        if sizes:
            yield ServedFold(
                kind=kind,
                left_out=lot,
                metric=metric,
                rows=len(sizes),
                median=median(sizes),
                p90=weighted_quantile(sizes, [1.0] * len(sizes), 0.9),
                constants=dict(constants),
            )


def _bands(results: Sequence[tuple[str, ServedResult]], borrowed: Mapping[str, float]) -> Iterator[ServedBand]:
    for metric in METRICS:
        ratios = [(source, each.measured[metric] / each.predicted[metric]) for source, each in results if metric in each.measured]
        if not ratios:
            continue
        sources = list(dict.fromkeys(source for source, _ in ratios))
        covered: list[float] = []
        for source in sources if len(sources) > 1 else ():
            least, most = _quantiles([each for each in ratios if each[0] != source])
            covered.append(fmean(least <= ratio <= most for name, ratio in ratios if name == source))
        least, most = _quantiles(ratios)
        coverage, ratio = fmean(covered) if covered else 0.0, _ratio(metric, [each for _, each in results if metric in each.measured])
        yield ServedBand(metric=metric, least=least, most=most, ratio=ratio, rows=len(ratios), coverage=coverage, borrowed=borrowed[metric])


def _ratio(metric: str, results: Sequence[ServedResult]) -> float:
    """Return the factor that meets the ratio of two runs alike as often as the level says; a group weighs as the root of its pairs."""
    groups = grouped(
        ((each.source_id, each.model, each.node, each.engine), log(each.measured[metric] / each.predicted[metric])) for each in results
    )
    pairs = [[abs(one - other) for one, other in combinations(errors, 2)] for errors in groups.values()]
    sizes = [size for of in pairs for size in of]
    weights = [len(of) ** -0.5 for of in pairs for _ in of]
    return exp(weighted_quantile(sizes, weights, LEVEL_FRACTION)) if sizes else 1.0


def _quantiles(ratios: Sequence[tuple[str, float]]) -> tuple[float, float]:
    """Return the ends of the band; a source weighs as the root of its rows, since its rows share its own errors."""
    sizes: dict[str, int] = {}
    for source, _ in ratios:
        sizes[source] = sizes.get(source, 0) + 1
    values, weights = [ratio for _, ratio in ratios], [sizes[source] ** -0.5 for source, _ in ratios]
    outside = (1.0 - LEVEL_FRACTION) / 2.0
    return weighted_quantile(values, weights, outside), weighted_quantile(values, weights, 1.0 - outside)


def residuals_document(found: ServedResiduals) -> dict[str, Data]:
    """Return what is shipped as ``hardware_profiles/residuals/serving.yaml``, rounded."""
    document = {key: rounded_data(value, 3) for key, value in found.model_dump().items()}
    two_digits = ({"coverage": round(each.coverage, 2), "borrowed": round(each.borrowed, 2)} for each in found.bands)
    bands = [rounded_data(each.model_dump() | two, 3) for each, two in zip(found.bands, two_digits, strict=True)]
    return {**document, "bands": bands}
