"""Runs side by side as a table for people, as Markdown, CSV and plain data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isclose
from types import MappingProxyType
from typing import Final

from clustersim.apps.compare.side_by_side import ComparedFigure, ComparedRun, Difference, SideBySide
from clustersim.config.yaml_text import plain
from clustersim.documents.csv_text import csv_text as csv_of
from clustersim.documents.text import Data
from clustersim.measure.deciding import UNDECIDED, bar_of
from clustersim.measure.metrics import COMMUNICATION
from clustersim.report.shares import OVERLAPPED_LABELS, PART_LABELS
from clustersim.report.text_tables import CLOSE, NOTHING, TextTable, markdown_answer, shown, shown_alike, signed
from clustersim.units.divisors import shortened

SCHEMA_VERSION: Final = 1
_LONGEST: Final = 40
"""Characters of a value of the scenario."""
_MOST: Final = 20
"""Keys that differ in a report for people."""
_WHOLES: Final = ("model.name", "cluster.name", "cluster.node")
_NAMES: Final = (*_WHOLES, "cluster.nodes", "cluster.accelerator")
_SMALL: Final = 1e-7
"""Share of the step time below which a difference is round-off."""
_ALIKE: Final = 0.005
"""Relative difference of the work of two runs that three digits do not show."""


ROWS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "Speed": {
            "GPUs": "gpus",
            "step time": "step_time_s",
            "tokens/s": "tokens_per_s",
            "tokens/s/GPU": "tokens_per_s_per_gpu",
            "TFLOP/s per GPU": "tflops_per_gpu",
            "MFU": "mfu",
            "HFU": "hfu",
            "peak memory": "memory.peak_bytes",
        },
        "Where the step goes": {
            **{label: f"breakdown_s.{'exposed_communication.' if key in COMMUNICATION else ''}{key}" for key, label in PART_LABELS.items()},
            **{OVERLAPPED_LABELS[key]: f"overlapped_communication_s.{key}" for key in COMMUNICATION},
        },
        "Serving": {
            "requests/s": "requests_per_s",
            "output tokens/s": "output_tokens_per_s",
            "output tokens/s/GPU": "output_tokens_per_s_per_gpu",
            "time to first token, p50": "ttft_s.p50",
            "time to first token, p99": "ttft_s.p99",
            "time per output token, p50": "tpot_s.p50",
            "time per output token, p99": "tpot_s.p99",
            "goodput, requests/s": "slo.goodput_requests_per_s",
            "KV cache, peak": "kv.peak_fraction",
            "cost of a million output tokens": "cost.per_million_output_tokens.usd",
        },
        "Whole training": {
            "time without failures": "time_to_train_s",
            "goodput": "goodput.goodput_fraction",
            "time with failures": "goodput.time_to_train.mean_s",
            "best interval between checkpoints": "goodput.best_interval.closed_form_s",
            "power of the building": "cost.power.facility_w",
            "cost of a million tokens": "cost.per_million_tokens.usd",
            "cost": "cost.training.usd",
            "GPU hours": "cost.training.gpu_hours",
            "energy": "cost.training.energy_kwh",
            "CO2e": "cost.training.emissions_kg_co2e",
        },
    }
)
"""Metrics to compare, by heading: a name and the key of the result."""


def verdicts(compared: SideBySide) -> tuple[str, ...]:
    """Return one sentence for each run but the first: how much more or less it trains than that; then what is assumed of logs."""
    rates, steps = compared.figure("tokens_per_s"), compared.figure("step_time_s")
    if rates is None or steps is None:
        return ()
    first = compared.labels[0]
    others = [(place, label) for place, label in enumerate(compared.labels) if place]
    found = [
        _verdict(f"{label} against {first}{_unlike(compared, place)}{_unfit(compared, place)}", rates, steps, place)
        + _judgement(compared, place)
        for place, label in others
    ]
    return (*found, *(run.note for run in compared.runs if run.note))


def _unlike(compared: SideBySide, place: int) -> str:
    """Return in which work for each token and accelerators a run is unlike the first, so that tokens/s alone do not say which is better."""
    found = [compared.figure(key) for key in ("gpus", "model_flops_per_step", "tokens_per_s", "step_time_s")]
    pair = [[None if figure is None else figure.values[each] for figure in found] for each in (0, place)]
    works = [flops / (rate * seconds) for _, flops, rate, seconds in pair if flops and rate and seconds]
    said: list[str] = []
    if len(works) > 1 and not isclose(*works, rel_tol=_ALIKE):
        said.append(f"{works[1] / works[0]:.3g} times the model FLOPs for each token")
    (first, *_), (other, *_) = pair
    if first and other and first != other:
        said.append(f"{other:,.0f} instead of {first:,.0f} GPUs")
    return f" ({', '.join(said)})" if said else ""


def _unfit(compared: SideBySide, place: int) -> str:
    """Return which of a run and the first do not fit in memory; empty where both fit."""
    unfit = [compared.labels[each] for each in (0, place) if _fits(compared.runs[each]) == "no"]
    if len(unfit) > 1:
        return " (neither fits in memory, and neither can be chosen)"
    return "".join(f" ({label} does not fit in memory, and cannot be chosen)" for label in unfit)


def _short(differences: Sequence[Difference]) -> tuple[tuple[Difference, ...], str]:
    """Return the differences that people look for first, and how many are left: a model or a cluster of another name differs in much."""
    unlike = {row.key.partition(".")[0] for row in differences if row.key in _WHOLES}
    first = sorted(differences, key=_place)
    kept = [row for row in first if _place(row) == 0 or row.key.partition(".")[0] not in unlike][:_MOST]
    left = len(differences) - len(kept)
    return tuple(kept), f", {len(kept)} of {len(differences)} keys; clustersim compare RUN... --csv has all" if left else ""


def _place(row: Difference) -> int:
    """Return the place of a difference: names of model and cluster, then the model, the layout, and others; parts of machines last."""
    section, _, name = row.key.partition(".")
    named = row.key in _NAMES or (section == "cluster" and name in ("accelerator.name", "accelerator.base"))
    return 0 if named else {"model": 1, "strategy": 2, "cluster": 4}.get(section, 3)


def tables(compared: SideBySide, *, short: bool = False) -> tuple[TextTable, ...]:
    """Return what differs in the scenarios, all or the first, and the figures that people compare, as far as any run has them."""
    differences, left = _short(compared.differences) if short else (compared.differences, "")
    differing = tuple((row.key, *(shortened(_plain(value), _LONGEST) for value in row.values)) for row in differences)
    found = [TextTable(heading=f"What differs{left}", columns=("key", *compared.labels), rows=differing)]
    step = compared.figure("step_time_s")
    shortest_s = min((value for value in step.values if value), default=0.0) if step else 0.0
    columns = ["", f">{compared.labels[0]}"]
    for label in compared.labels[1:]:
        columns += [f">{label}", ">"]
    for heading, named in ROWS.items():
        figures = [(name, compared.figure(key)) for name, key in named.items()]
        threshold = _SMALL * shortest_s if heading == "Where the step goes" else 0.0
        told = [(name, each) for name, each in figures if each and any(abs(value or 0.0) > threshold for value in each.values)]
        rows = [_row(name, figure) for name, figure in told]
        if heading == "Speed":
            rows += _answers(compared.runs)
        if rows:
            found.append(TextTable(heading=heading, columns=tuple(columns), rows=tuple(rows)))
    return tuple(table for table in found if table.rows)


def markdown(compared: SideBySide) -> str:
    """Return all of it as Markdown."""
    lines = [*(f"{line}." for line in verdicts(compared)), *([] if compared.differences else ["The scenarios do not differ."])]
    return markdown_answer(" against ".join(compared.labels), lines, tables(compared))


def csv_text(compared: SideBySide) -> str:
    """Return everything as tidy CSV: what differs, then all single figures in SI units, with what each is relative to the first."""
    unrelated = [None for _ in compared.labels[1:]]
    return csv_of(
        [
            ["kind", "key", *compared.labels, *(f"relative {label}" for label in compared.labels[1:])],
            *(
                ["scenario", row.key, *(None if value is None else _plain(value) for value in row.values), *unrelated]
                for row in compared.differences
            ),
            *(["result", figure.key, *figure.values, *figure.relative[1:]] for figure in compared.figures),
        ]
    )


def document(compared: SideBySide) -> dict[str, object]:
    """Return everything as plain data, for JSON."""
    return {
        "schema_version": SCHEMA_VERSION,
        "runs": [
            {"label": label, "source": run.source, "scenario": run.name, "scenario_hash": run.scenario_hash, "note": run.note}
            for label, run in zip(compared.labels, compared.runs, strict=True)
        ],
        "verdicts": [
            {"label": label, "against": compared.labels[0], "faster": compared.faster(place), "text": text}
            for (place, label), text in zip(list(enumerate(compared.labels))[1:], verdicts(compared), strict=False)
        ],
        "differences": plain(compared.differences),
        "figures": [{"key": each.key, "values": list(each.values), "relative": list(each.relative)} for each in compared.figures],
    }


def _judgement(compared: SideBySide, place: int) -> str:
    """Return whether error bars leave open which run is faster, or whether a measured step lies in the interval of its prediction."""
    measured, predicted = sorted((compared.runs[0], compared.runs[place]), key=lambda run: not run.measured)
    bar, seconds, found = bar_of(predicted.results.get("error_bar")), *(run.results.get("step_time_s") for run in (predicted, measured))
    if measured.measured and not predicted.measured and bar and isinstance(seconds, int | float) and isinstance(found, int | float):
        ends = bar.least_fraction * seconds, bar.most_fraction * seconds
        least, most, step = shown_alike("step_time_s", (*ends, found))
        side = "inside" if ends[0] <= found <= ends[1] else "outside"
        return f"; {step} measured is {side} the 80 % interval of the prediction, {least} to {most}"
    return f"; {UNDECIDED}" if compared.faster(place) == "not decided" else ""


def _verdict(names: str, rates: ComparedFigure, steps: ComparedFigure, index: int) -> str:
    relative = rates.relative[index]
    if relative is not None and abs(relative) < CLOSE:
        return f"{names}: as fast, {shown('tokens_per_s', rates.values[index])} tokens/s"
    both = f"{shown('tokens_per_s', rates.values[index])} instead of {shown('tokens_per_s', rates.values[0])} tokens/s"
    longer = steps.relative[index]
    step = "" if longer is None else f", a step {signed(longer)}"
    return f"{names}: {NOTHING if relative is None else signed(relative)}, {both}{step}"


def _row(name: str, figure: ComparedFigure) -> tuple[str, ...]:
    first, *others = shown_alike(figure.key, figure.values)
    cells = [name, first]
    for text, relative in zip(others, figure.relative[1:], strict=True):
        cells += [text, NOTHING if relative is None else signed(relative)]
    return tuple(cells)


def _answers(runs: Sequence[ComparedRun]) -> list[tuple[str, ...]]:
    """Return whether plans fit, and how many checks hold."""
    fits = [_fits(run) for run in runs]
    checks = [_checks(run) for run in runs]
    rows = [("fits in memory", fits)] + ([("checks that hold", checks)] if any(each != NOTHING for each in checks) else [])
    return [(name, cells[0], *(part for cell in cells[1:] for part in (cell, ""))) for name, cells in rows]


def _fits(run: ComparedRun) -> str:
    memory = run.results.get("memory")
    fits = memory.get("fits") if isinstance(memory, dict) else None
    return {True: "yes", False: "no"}[fits] if isinstance(fits, bool) else NOTHING


def _checks(run: ComparedRun) -> str:
    checks = run.results.get("checks")
    if not isinstance(checks, list) or not checks:
        return NOTHING
    return f"{sum(bool(each.get('holds')) for each in checks if isinstance(each, dict))} of {len(checks)}"


def _plain(value: Data) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
