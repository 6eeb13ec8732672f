"""Served runs that others have published, measured and predicted."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from pydantic import Field, JsonValue

from clustersim.apps.serve.deployment import BuiltServing, build_serving
from clustersim.apps.serve.deployment_run import run_serving
from clustersim.apps.study.pools import in_order
from clustersim.apps.validate.closed_form import closed_form_of
from clustersim.config.serving_scenario import load_serving
from clustersim.config.yaml_text import plain
from clustersim.documents.check import validate_document
from clustersim.documents.files import data_path
from clustersim.documents.near_names import choices_hint
from clustersim.documents.text import Data, read_document
from clustersim.errors import InfeasibleError, ScenarioError
from clustersim.hardware.catalog import load_node
from clustersim.hardware.profile_schema import Checked
from clustersim.progress import phase

METRICS: Final = ("ttft_s", "ttft_p99_s", "tpot_s", "output_tokens_per_s")
"""Metrics that are compared: means of two times, the 99th percentile of the first, and the rate of a run."""
_POOL: Final = re.compile(r"(?P<replicas>\d+)x\(tp(?P<tp>\d+) pp(?P<pp>\d+) dp(?P<dp>\d+) ep(?P<ep>\d+)\)")
"""A pool of replicas, as in ``2x(tp1 pp1 dp8 ep8)``."""
_MILLISECONDS: Final = 1e-3


class ServedSourceSpec(Checked):
    """One entry of ``scenarios/published/serving/sources.yaml``."""

    title: str
    url: str
    licence: str
    retrieved: str
    assumed: list[str] = Field(default=[])
    """Settings that the source leaves open, with the values taken instead."""
    fitted: list[str] = Field(default=[])
    """Constants that were fitted to rows of this source."""
    prefix_cache: bool | None = None
    """Whether its servers kept prefixes, and with them the caches of preempted requests; None for the default of the engine."""


class _Sources(Checked):
    sources: dict[str, ServedSourceSpec]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRow:
    """A published run: its scenario, and what was measured by metric."""

    id: str
    source_id: str
    load: str
    """Tokens in and out of a request, and requests at once where they are limited, for display."""
    group: tuple[str, ...]
    """Model, machine, engine and number format."""
    scenario: Mapping[str, JsonValue]
    measured: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedResult:
    """A published run with its prediction; errors are predicted over measured, less one."""

    id: str
    source_id: str
    load: str
    """Tokens in and out of a request, and requests at once where they are limited, for display."""
    model: str
    node: str
    engine: str
    precision: str
    accelerators: int
    measured: Mapping[str, float]
    predicted: Mapping[str, float]
    baseline: Mapping[str, float]
    """Values by the closed form of :mod:`clustersim.apps.validate.closed_form`, of the metrics that it has."""

    @property
    def errors(self) -> Mapping[str, float]:
        """Error of each measured metric."""
        return {name: self.predicted[name] / value - 1.0 for name, value in self.measured.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedSummary:
    """Errors of one metric over some rows, as fractions."""

    metric: str
    n_rows: int
    median: float
    p90: float
    bias: float
    """Median of the errors with their sign."""
    baseline_median: float | None
    """The same by the closed form; None where it has no such metric."""
    baseline_p90: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedSource:
    """One source with its rows."""

    source_id: str
    spec: ServedSourceSpec
    results: tuple[ServedResult, ...]

    @property
    def summaries(self) -> tuple[ServedSummary, ...]:
        """Errors of each metric that the source has."""
        return summaries(self.results)

    def document(self) -> dict[str, Data]:
        """Return the source with its rows as plain data."""
        said = self.spec.model_dump(include={"title", "url", "licence", "assumed", "fitted"})
        return {"source_id": self.source_id, **said, "results": plain(self.results)}


def served_source_names() -> tuple[str, ...]:
    """Return the names of the shipped sources."""
    return tuple(sorted(_specs()))


def validate_served(names: Sequence[str] = (), *, jobs: int | None = None) -> tuple[ServedSource, ...]:
    """Simulate published runs of inference engines and compare.

    Parameters
    ----------
    names
        Sources; all if left out.
    jobs
        Processes; one for each processor when omitted.

    Raises
    ------
    ScenarioError
        When there is no such source, or a scenario of it cannot be used.
    """
    specs = _specs()
    for name in names:
        if name not in specs:
            raise ScenarioError(f"unknown source '{name}'", hint=choices_hint(name, list(specs)))
    chosen = list(dict.fromkeys(names or served_source_names()))
    rows = [row for name in chosen for row in served_rows(name)]
    with phase("simulate served runs"):
        results = list(in_order(served_result, rows, jobs=jobs))
    return tuple(
        ServedSource(source_id=name, spec=specs[name], results=tuple(each for each in results if each.source_id == name)) for name in chosen
    )


def served_rows(name: str) -> Iterator[ServedRow]:
    """Yield the rows of a source."""
    text, spec = (_folder() / f"{name}.csv").read_text("utf-8"), _specs()[name]
    for cells in csv.DictReader(text.splitlines()):
        measured = {
            metric: float(cells[column]) * factor
            for metric, column, factor in (
                ("ttft_s", "ttft_ms", _MILLISECONDS),
                ("ttft_p99_s", "ttft_p99_ms", _MILLISECONDS),
                ("tpot_s", "tpot_ms", _MILLISECONDS),
                ("output_tokens_per_s", "output_tokens_per_s", 1.0),
            )
            if cells[column]
        }
        lengths = cells["trace"] or f"{cells['input_tokens']}/{cells['output_tokens']}"
        load = lengths + (f" x{cells['concurrency']}" if cells["concurrency"] else "")
        group = tuple(cells[column] for column in ("model", "node", "engine", "precision"))
        yield ServedRow(id=cells["id"], source_id=name, load=load, group=group, scenario=_scenario(cells, spec), measured=measured)


def _scenario(cells: Mapping[str, str], spec: ServedSourceSpec) -> dict[str, JsonValue]:
    serving: dict[str, JsonValue] = {
        "engine": f"{cells['engine']}@{cells['version']}",
        "precision": cells["precision"],
        "kv_precision": cells["kv_precision"],
    }
    pools = _pools(cells)
    if "replica" in pools:
        serving |= pools["replica"]
    else:
        serving["disaggregated"] = {role: dict(pool) for role, pool in pools.items()}
    serving |= {
        limit: int(cells[limit]) for limit in ("max_batched_tokens", "max_num_seqs", "max_graph_tokens", "receive_interval") if cells[limit]
    }
    for wait, keys in (("batch_wait", ("steps", "budget_share")), ("rank_wait", ("steps", "further_steps"))):
        if cells[wait]:
            serving[wait] = {
                key: float(value) if "." in value else int(value) for key, value in zip(keys, cells[wait].split("/"), strict=True)
            }
    if cells.get("memory_fraction"):
        serving["memory_fraction"] = float(cells["memory_fraction"])
    if spec.prefix_cache is not None:
        serving["prefix_cache"] = spec.prefix_cache
    if cells["asynchronous"]:
        serving["asynchronous"] = cells["asynchronous"] == "true"
    n_accelerators = sum(pool["replicas"] * pool["tp"] * pool["pp"] * pool["dp"] for pool in pools.values())
    return {
        "version": 1,
        "name": cells["id"],
        "model": cells["model"],
        "cluster": {"node": cells["node"], "nodes": -(-n_accelerators // load_node(cells["node"]).n_accelerators)},
        "serving": serving,
        "requests": _requests(cells),
    }


def _pools(cells: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """Return the layouts of the replicas: of the only pool, or of ``prefill`` and ``decode``."""
    found = {role: _POOL.fullmatch(cells[role]) for role in ("prefill", "decode")}
    apart = {role: {key: int(value) for key, value in pool.groupdict().items()} for role, pool in found.items() if pool}
    return apart or {"replica": {"replicas": 1, **{degree: int(cells[degree]) for degree in ("tp", "pp", "ep", "dp")}}}


def _requests(cells: Mapping[str, str]) -> dict[str, JsonValue]:
    if cells["trace"]:
        return {"arrival": "trace", "trace": str(_folder() / "traces" / cells["trace"])}
    shortest = float(cells["shortest_fraction"] or 1.0)
    requests: dict[str, JsonValue] = {
        "arrival": cells["arrival"],
        "count": int(cells["count"]),
        "input_tokens": _length(int(cells["input_tokens"]), shortest),
        "output_tokens": _length(int(cells["output_tokens"]), shortest),
    }
    if cells["concurrency"]:
        requests["concurrency"] = int(cells["concurrency"])
    return requests


def _length(tokens: int, shortest: float) -> JsonValue:
    return tokens if shortest >= 1.0 else {"uniform": [round(shortest * tokens), tokens]}


def served_result(row: ServedRow, adapt: Callable[[BuiltServing], BuiltServing] | None = None) -> ServedResult:
    """Return a row with its prediction.

    Parameters
    ----------
    adapt
        Change of what is simulated, such as other constants.

    Raises
    ------
    ScenarioError
        When its scenario cannot be used.
    """
    try:
        built = build_serving(load_serving(row.scenario))
        result = run_serving(adapt(built) if adapt else built)
    except InfeasibleError as error:
        raise ScenarioError(f"{row.source_id}, row {row.id}: {error}", field="serving") from error
    metrics, serving = result.metrics, result.built.scenario.spec.serving
    times = {"ttft_s": metrics.ttft_s, "tpot_s": metrics.tpot_s}
    predicted = {name: spread.mean for name, spread in times.items() if spread is not None}
    if metrics.ttft_s is not None:
        predicted["ttft_p99_s"] = metrics.ttft_s.p99
    predicted["output_tokens_per_s"] = metrics.output_tokens_per_s
    return ServedResult(
        id=row.id,
        source_id=row.source_id,
        load=row.load,
        model=result.built.loaded.model.name,
        node=result.built.node.name,
        engine=serving.engine,
        precision=serving.precision,
        accelerators=result.built.n_accelerators,
        measured=row.measured,
        predicted={name: predicted[name] for name in row.measured},
        baseline={name: value for name, value in closed_form_of(result.built).items() if name in row.measured},
    )


def summaries(results: Sequence[ServedResult]) -> tuple[ServedSummary, ...]:
    """Return the errors of each metric that some row has."""
    found: list[ServedSummary] = []
    for metric in METRICS:
        errors = np.array([each.errors[metric] for each in results if metric in each.measured])
        if errors.size:
            sizes = np.abs(errors)
            plain = np.array([abs(each.baseline[metric] / each.measured[metric] - 1.0) for each in results if metric in each.baseline])
            found.append(
                ServedSummary(
                    metric=metric,
                    n_rows=int(errors.size),
                    median=float(np.median(sizes)),
                    p90=float(np.quantile(sizes, 0.9)),
                    bias=float(np.median(errors)),
                    baseline_median=float(np.median(plain)) if plain.size else None,
                    baseline_p90=float(np.quantile(plain, 0.9)) if plain.size else None,
                )
            )
    return tuple(found)


def _specs() -> Mapping[str, ServedSourceSpec]:
    return validate_document(_Sources, read_document(_folder() / "sources.yaml")).sources


def _folder() -> Path:
    return data_path("scenarios") / "published" / "serving"
