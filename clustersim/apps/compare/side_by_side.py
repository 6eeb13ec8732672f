"""Runs side by side: what differs between their scenarios, their figures against those of the first, and which is better."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isclose
from types import MappingProxyType
from typing import Final

from clustersim.config.yaml_text import plain
from clustersim.documents.csv_text import csv_text as csv_of
from clustersim.documents.text import Data
from clustersim.measure.deciding import UNDECIDED, Decision, Judged, bar_of, is_better, judged_by
from clustersim.measure.metrics import COMMUNICATION
from clustersim.report.shares import OVERLAPPED_LABELS, PART_LABELS
from clustersim.report.text_tables import CLOSE, NOTHING, TextAnswer, TextTable, markdown_answer, shown, shown_alike, signed
from clustersim.units.divisors import count_text, shortened

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """One run: what it was, and what came out."""

    source: str
    """As it was named."""
    name: str
    scenario_hash: str
    resolved: Mapping[str, Data]
    results: Mapping[str, Data]
    measured: bool = False
    note: str | None = None
    """Assumption about a log."""

    @property
    def serves(self) -> bool:
        """Whether it answers requests, and trains nothing."""
        return "serving" in self.resolved


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A key of the scenario that is not the same in all runs."""

    key: str
    values: tuple[Data, ...]
    """One for each run; None where the key is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFigure:
    """One figure of all runs."""

    key: str
    values: tuple[float | None, ...]
    """None where a run does not have it."""

    @property
    def relative(self) -> tuple[float | None, ...]:
        """Excess over the first, as a fraction of it; None where that is meaningless."""
        first = self.values[0]
        return tuple(None if value is None or not first else value / first - 1.0 for value in self.values)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SideBySide(TextAnswer):
    """Several runs, the first of which the others are held against."""

    runs: tuple[ComparedRun, ...]
    labels: tuple[str, ...]
    """A short and unique name for each run."""
    differences: tuple[Difference, ...]
    figures: tuple[ComparedFigure, ...]
    """All single figures of the results, in their order."""

    def faster(self, place: int) -> Decision | None:
        """Return whether a run trains faster than the first, as far as the error bars tell; None where they are one run or one has none."""
        return is_better(_judged(self.runs[place]), _judged(self.runs[0]))

    def figure(self, key: str) -> ComparedFigure | None:
        """Return a figure by its key, if any run has it."""
        return next((figure for figure in self.figures if figure.key == key), None)

    @property
    def verdicts(self) -> tuple[str, ...]:
        """One sentence for each run but the first: how much more or less it trains than that; then what is assumed of logs."""
        rates, steps = self.figure("tokens_per_s"), self.figure("step_time_s")
        if rates is None or steps is None:
            return ()
        first = self.labels[0]
        others = [(place, label) for place, label in enumerate(self.labels) if place]
        found = [
            _verdict(f"{label} against {first}{_unlike(self, place)}{_unfit(self, place)}", rates, steps, place) + _judgement(self, place)
            for place, label in others
        ]
        return (*found, *(run.note for run in self.runs if run.note))

    def headline(self) -> str:
        """Return the first verdict; the labels where there is none."""
        return next(iter(self.verdicts), " beside ".join(self.labels))

    def lines(self) -> tuple[str, ...]:
        """Return the other verdicts, and whether the scenarios are the same."""
        return (*self.verdicts[1:], *(() if self.differences else ("The scenarios do not differ",)))

    def tables(self, *, short: bool = True) -> tuple[TextTable, ...]:
        """Return what differs in the scenarios, all or the first, and the figures that people compare, as far as any run has them."""
        differences, left = _short(self.differences) if short else (self.differences, "")
        differing = tuple((row.key, *(shortened(_plain(value), _LONGEST) for value in row.values)) for row in differences)
        found = [TextTable(heading=f"What differs{left}", columns=("key", *self.labels), rows=differing)]
        step = self.figure("step_time_s")
        shortest_s = min((value for value in step.values if value), default=0.0) if step else 0.0
        columns = ["", f">{self.labels[0]}"]
        for label in self.labels[1:]:
            columns += [f">{label}", ">"]
        for heading, named in ROWS.items():
            figures = [(name, self.figure(key)) for name, key in named.items()]
            threshold = _SMALL * shortest_s if heading == "Where the step goes" else 0.0
            told = [(name, each) for name, each in figures if each and any(abs(value or 0.0) > threshold for value in each.values)]
            rows = [_row(name, figure) for name, figure in told]
            if heading == "Speed":
                rows += _answers(self.runs)
            if rows:
                found.append(TextTable(heading=heading, columns=tuple(columns), rows=tuple(rows)))
        return tuple(table for table in found if table.rows)

    def markdown(self) -> str:
        """Return all of it as Markdown."""
        said = (f"{line}." for line in (self.headline(), *self.lines()))
        return markdown_answer(" against ".join(self.labels), said, self.tables(short=False))

    def csv_text(self) -> str:
        """Return everything as tidy CSV: what differs, then all single figures in SI units, with what each is relative to the first."""
        unrelated = [None for _ in self.labels[1:]]
        return csv_of(
            [
                ["kind", "key", *self.labels, *(f"relative {label}" for label in self.labels[1:])],
                *(
                    ["scenario", row.key, *(None if value is None else _plain(value) for value in row.values), *unrelated]
                    for row in self.differences
                ),
                *(["result", figure.key, *figure.values, *figure.relative[1:]] for figure in self.figures),
            ]
        )

    def to_dict(self) -> dict[str, object]:
        """Return the document of ``compare --json``."""
        return {
            "schema_version": SCHEMA_VERSION,
            "runs": [
                {"label": label, "source": run.source, "scenario": run.name, "scenario_hash": run.scenario_hash, "note": run.note}
                for label, run in zip(self.labels, self.runs, strict=True)
            ],
            "verdicts": [
                {"label": label, "against": self.labels[0], "faster": self.faster(place), "text": text}
                for (place, label), text in zip(list(enumerate(self.labels))[1:], self.verdicts, strict=False)
            ],
            "differences": plain(self.differences),
            "figures": [{"key": each.key, "values": list(each.values), "relative": list(each.relative)} for each in self.figures],
        }


def _judged(run: ComparedRun) -> Judged | None:
    """Return a run by the tokens that it trains on in a second."""
    rate, bar = run.results.get("tokens_per_s"), bar_of(run.results.get("error_bar"))
    return judged_by("tokens_per_s", rate, bar, run=run.scenario_hash) if isinstance(rate, int | float) and rate > 0.0 else None


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
        said.append(f"{other:,.0f} instead of {count_text(round(first), 'GPU')}")
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
