"""The requests of a scenario: drawn from distributions, or read from a trace."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from clustersim.collection import collection_paused
from clustersim.config.serving_scenario import LognormalSpec, RequestsSpec, UniformSpec
from clustersim.documents.files import read_text
from clustersim.errors import DomainError, Place, ScenarioError
from clustersim.notices import Flag
from clustersim.serving.requests import (
    EmpiricalTokens,
    LognormalTokens,
    Requests,
    UniformTokens,
    constant_arrivals_s,
    poisson_arrivals_s,
)

if TYPE_CHECKING:
    from clustersim.config.serving_scenario import Length
    from clustersim.serving.batch import FloatArray
    from clustersim.serving.records import IntArray

_MOST_BYTES: Final = 1_000_000_000
_MOST_TOKENS: Final = 100_000_000
_COLUMNS: Final = ("arrival_s", "input_tokens", "output_tokens")
_PREFIX: Final = "prefix_blocks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Requests as they were recorded."""

    arrival_s: FloatArray
    input_tokens: IntArray
    output_tokens: IntArray
    prefixes: tuple[tuple[int, ...], ...]
    """Ids of the blocks of each prompt; empty where the file has none."""


def found_file(name: str, folder: Path, field: str) -> Path:
    """Return a file that stands beside the scenario or in the working directory."""
    for path in (folder / name, Path(name)):
        if path.is_file():
            return path
    raise ScenarioError(f"there is no file '{name}'", field=field, hint="write the path of a CSV file, counted from the scenario")


@collection_paused()
def read_trace(path: Path) -> Trace:
    """Return the requests of a trace, in the order of their arrival.

    Raises
    ------
    ScenarioError
        With the line of the first mistake.
    """
    lines, cells = _columns(path, _COLUMNS)
    arrival_s = np.array([_number(path, line, text, "arrival_s") for line, text in zip(lines, cells["arrival_s"], strict=True)])
    later = np.flatnonzero(np.diff(arrival_s) < 0.0)
    if len(later):
        line = lines[int(later[0]) + 1]
        raise ScenarioError(
            "arrival_s is less than in the line before", place=Place(file=str(path), line=line), hint="sort the trace by it"
        )
    lengths = [
        np.array([_whole(path, line, text, column) for line, text in zip(lines, cells[column], strict=True)], dtype=np.int64)
        for column in ("input_tokens", "output_tokens")
    ]
    prefixes = tuple(_ids(path, line, text) for line, text in zip(lines, cells[_PREFIX], strict=True)) if _PREFIX in cells else ()
    return Trace(arrival_s=arrival_s, input_tokens=lengths[0], output_tokens=lengths[1], prefixes=prefixes)


def read_lengths(path: Path, column: str) -> tuple[int, ...]:
    """Return the lengths of a file: of a column, or of the only one that there is."""
    lines, cells = _columns(path, ())
    names = list(cells)
    chosen = column if column in names else names[0]
    if chosen != column and len(names) > 1:
        raise ScenarioError(f"has no column {column}", place=Place(file=str(path), line=1), hint=f"its columns are {', '.join(names)}")
    return tuple(_whole(path, line, text, chosen) for line, text in zip(lines, cells[chosen], strict=True))


def _columns(path: Path, columns: Sequence[str]) -> tuple[list[int], Mapping[str, list[str]]]:
    """Return the numbers of the lines of a file, and its cells by column."""
    text = read_text(path, _MOST_BYTES, hint="a trace is a CSV file")
    lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip() and not line.startswith("#")]
    if len(lines) < 2:
        raise ScenarioError("holds no requests", place=Place(file=str(path)), hint=f"write a header, {', '.join(columns)}, and a line each")
    cells = csv.reader(line for _, line in lines)
    header = [cell.strip() for cell in next(cells)]
    for column in columns:
        if column not in header:
            place = Place(file=str(path), line=lines[0][0])
            raise ScenarioError(f"column {column} is missing", place=place, hint=f"its columns are {', '.join(header)}")
    rows, numbers = list(cells), [number for number, _ in lines[1:]]
    for number, row in zip(numbers, rows, strict=True):
        if len(row) < len(header):
            raise ScenarioError(f"has {len(row)} of {len(header)} columns", place=Place(file=str(path), line=number), hint="fill the line")
    return numbers, {name: [row[place].strip() for row in rows] for place, name in enumerate(header)}


def _number(path: Path, line: int, text: str, column: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value < 1e9:
        place = Place(file=str(path), line=line)
        raise ScenarioError(f"{column} '{text}' is not a time", place=place, hint="write seconds from the first request, at least 0")
    return value


def _whole(path: Path, line: int, text: str, column: str) -> int:
    value = int(text) if text.isascii() and text.isdigit() else 0
    if not 0 < value <= _MOST_TOKENS:
        place = Place(file=str(path), line=line)
        raise ScenarioError(f"{column} '{text}' is not a number of tokens", place=place, hint="write a whole number, at least 1")
    return value


def _ids(path: Path, line: int, text: str) -> tuple[int, ...]:
    ids: list[int] = []
    for part in text.split():
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            place = Place(file=str(path), line=line)
            raise ScenarioError(f"{_PREFIX} has '{part}'", place=place, hint="write ids and runs of ids, such as '0-13 27'")
        ids.extend(range(int(first), int(last or first) + 1))
    return tuple(ids)


_MOST_REQUESTS: Final = 20_000_000
_NEEDED: Final = {
    "poisson": ("rate",),
    "gamma": ("rate", "burstiness"),
    "constant": ("rate",),
    "at_once": (),
    "closed": ("concurrency",),
    "trace": ("trace",),
}
_EXAMPLES: Final = {"rate": "4 /s", "burstiness": "0.5", "concurrency": "64", "trace": "requests.csv"}


@dataclass(slots=True)
class DrawnRequests:
    """Requests, and the notices on them."""

    requests: Requests
    flags: tuple[Flag, ...]
    files: dict[str, str] = field(default_factory=dict[str, str])
    """Files that they were read from: name and text."""


def asked_requests(spec: RequestsSpec, folder: Path, seed: int) -> DrawnRequests:
    """Return the requests of a scenario."""
    _check_keys(spec)
    if spec.trace is not None:
        return _traced(spec, spec.trace, folder)
    generator = np.random.default_rng([seed, 0])
    drawing = _Drawing(folder=folder, generator=generator)
    count = _count(spec)
    arrival_s = _arrivals_s(spec, count, generator)
    if arrival_s is not None and spec.duration is not None:
        arrival_s = arrival_s[arrival_s < spec.duration]
        count = len(arrival_s)
    requests = Requests(
        input_tokens=drawing.lengths(spec.input_tokens, count, "input_tokens"),
        output_tokens=drawing.lengths(spec.output_tokens, count, "output_tokens"),
        arrival_s=arrival_s,
        concurrency=spec.concurrency,
        n_warmup=spec.warmup,
    )
    return DrawnRequests(_with_warmup(requests, spec), tuple(drawing.flags), drawing.files)


def _check_keys(spec: RequestsSpec) -> None:
    needed = _NEEDED[spec.arrival]
    for key in needed:
        if getattr(spec, key) is None:
            raise ScenarioError(
                f"'{key}' is missing", field=f"requests.{key}", hint=f"arrival: {spec.arrival} needs {key}: {_EXAMPLES[key]}"
            )
    for key in ("rate", "burstiness", "concurrency", "trace"):
        if key not in needed and getattr(spec, key) is not None:
            wanted = next(arrival for arrival, keys in _NEEDED.items() if key in keys)
            raise ScenarioError(
                f"{key} does nothing with arrival: {spec.arrival}", field=f"requests.{key}", hint=f"delete it, or write arrival: {wanted}"
            )
    if spec.rate == 0.0:
        raise ScenarioError("nobody asks at a rate of 0", field="requests.rate", hint="write a rate above 0, such as '4 /s'")
    if spec.speed is not None and spec.trace is None:
        raise ScenarioError("speed does nothing without a trace", field="requests.speed", hint="delete it")
    for key in ("input_tokens", "output_tokens"):
        given = getattr(spec, key) is not None
        if given and spec.trace is not None:
            raise ScenarioError("a trace brings the lengths of its requests", field=f"requests.{key}", hint="delete it")
        if not given and spec.trace is None:
            raise ScenarioError(f"'{key}' is missing", field=f"requests.{key}", hint=f"write such as {key}: 1024")
    if spec.count is not None and spec.duration is not None:
        raise ScenarioError(
            "count and duration both say how many requests there are", field="requests.duration", hint="delete one of the two"
        )


def _count(spec: RequestsSpec) -> int:
    if spec.count is not None:
        return spec.count
    if spec.duration is None:
        raise ScenarioError("'count' is missing", field="requests.count", hint="write how many requests there are, or a duration")
    if spec.rate is None:
        raise ScenarioError(
            f"a duration says nothing with arrival: {spec.arrival}",
            field="requests.duration",
            hint="write how many requests there are: count",
        )
    # Some more than are expected; those that come too late are cut off.
    expected = spec.duration * spec.rate
    count = ceil(expected + 10.0 * expected**0.5 / min(1.0, spec.burstiness or 1.0) ** 0.5 + 10.0)
    if count > _MOST_REQUESTS:
        raise ScenarioError(f"{expected:.3g} requests are more than {_MOST_REQUESTS:.0e}", field="requests.duration", hint="ask for less")
    return count


def _arrivals_s(spec: RequestsSpec, count: int, generator: np.random.Generator) -> FloatArray | None:
    match spec.arrival:
        case "poisson" | "gamma":
            assert spec.rate is not None
            return poisson_arrivals_s(spec.rate, count, generator, burstiness=spec.burstiness or 1.0)
        case "constant":
            assert spec.rate is not None
            return constant_arrivals_s(spec.rate, count)
        case "closed":
            return None
        case _:
            return np.zeros(count)


@dataclass(slots=True)
class _Drawing:
    folder: Path
    generator: np.random.Generator
    flags: list[Flag] = field(default_factory=list[Flag])
    files: dict[str, str] = field(default_factory=dict[str, str])

    def lengths(self, asked: Length | None, count: int, key: str) -> IntArray:
        """Return a number of lengths of prompts or outputs."""
        field = f"requests.{key}"
        match asked:
            case int():
                return np.full(count, asked, dtype=np.int64)
            case UniformSpec():
                return UniformTokens(*asked.uniform).draw(count, self.generator)
            case LognormalSpec():
                return self._lognormal(asked, key).draw(count, self.generator)
            case str():
                path = found_file(asked, self.folder, field)
                self.files[path.name] = read_text(path, 1_000_000_000)
                return EmpiricalTokens(read_lengths(path, key)).draw(count, self.generator)
            case None:
                raise ScenarioError(f"'{key}' is missing", field=field)

    def _lognormal(self, asked: LognormalSpec, key: str) -> LognormalTokens:
        try:
            found = LognormalTokens(asked.lognormal.mean, asked.lognormal.p90)
        except DomainError as error:
            raise ScenarioError(error.message, field=f"requests.{key}.lognormal.p90", hint=error.hint) from error
        if found.p90 > found.largest_p90:
            message = (
                f"{key}: no log-normal distribution has mean {found.mean:g} and p90 {found.p90:g}; this one has p90 {found.largest_p90:.0f}"
            )
            self.flags.append(Flag(code="nearest_distribution", message=message))
        return found


def _traced(spec: RequestsSpec, name: str, folder: Path) -> DrawnRequests:
    path = found_file(name, folder, "requests.trace")
    trace = read_trace(path)
    arrival_s = trace.arrival_s / (spec.speed or 1.0)
    kept = len(arrival_s)
    if spec.duration is not None:
        kept = int(np.searchsorted(arrival_s, spec.duration))
    if spec.count is not None:
        if spec.count > kept:
            raise ScenarioError(f"{path.name} has {kept} requests", field="requests.count", hint=f"ask for at most {kept}")
        kept = spec.count
    requests = Requests(
        input_tokens=trace.input_tokens[:kept],
        output_tokens=trace.output_tokens[:kept],
        arrival_s=arrival_s[:kept],
        prefixes=trace.prefixes[:kept],
        n_warmup=spec.warmup,
    )
    return DrawnRequests(_with_warmup(requests, spec), (), {path.name: read_text(path, 1_000_000_000)})


def _with_warmup(requests: Requests, spec: RequestsSpec) -> Requests:
    if not len(requests):
        raise ScenarioError("no request is sent", field="requests.duration", hint="ask for a longer time")
    if spec.warmup >= len(requests):
        hint = f"{len(requests)} requests are sent; count includes those of the warm-up"
        raise ScenarioError("no request is left to measure", field="requests.warmup", hint=hint)
    return requests
