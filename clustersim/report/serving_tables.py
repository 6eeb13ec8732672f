"""A serving run as tidy CSV files: SI units in the headers, the same bytes every time."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from clustersim.documents.csv_text import CsvCell, csv_text
from clustersim.documents.files import replacing
from clustersim.serving.records import TICK_S

if TYPE_CHECKING:
    import pandas

    from clustersim.serving.batch import FloatArray
    from clustersim.serving.records import EngineStepLog, IntArray, RequestLog
    from clustersim.serving.requests import Requests

_REQUESTS: Final = ("request", "sent_s", "first_token_s", "last_token_s", "input_tokens", "output_tokens")
_STEPS: Final = ("replica", "start_s", "end_s", "steps", "prefill_tokens", "decoding_sequences", "waiting_requests", "used_blocks")
_MOST_REQUESTS: Final = 100_000


def requests_frame(requests: Requests, log: RequestLog) -> pandas.DataFrame:
    """Return one row for each request, times in seconds."""
    import pandas as pd

    columns = (np.arange(len(requests)), *_times(log), requests.input_tokens, requests.output_tokens)
    return pd.DataFrame(dict(zip(_REQUESTS, columns, strict=True)))


def write_serving_tables(requests: Requests, log: RequestLog, steps: Iterable[EngineStepLog], folder: Path) -> None:
    """Write requests.csv (the first 100,000) and steps.csv (steps at about equal distances in time) into a folder that exists."""
    kept = min(len(requests), _MOST_REQUESTS)
    sent, first, done = (column[:kept].tolist() for column in _times(log))
    lengths = requests.input_tokens[:kept].tolist(), requests.output_tokens[:kept].tolist()
    rows = zip(range(kept), sent, map(_or_none, first), map(_or_none, done), *lengths, strict=True)
    _write(folder / "requests.csv", _REQUESTS, rows)
    write_steps(steps, folder / "steps.csv")


def write_steps(steps: Iterable[EngineStepLog], path: Path) -> None:
    """Write steps at about equal distances in time, pool after pool."""
    samples = (each for log in steps for each in log.samples)
    _write(path, _STEPS, ((each[0], each[1] * TICK_S, each[2] * TICK_S, *each[3:]) for each in samples))


def _times(log: RequestLog) -> tuple[FloatArray, ...]:
    return tuple(_seconds(column) for column in (log.sent, log.first_token, log.done))


def _seconds(ticks: IntArray) -> FloatArray:
    return np.where(ticks >= 0, ticks * TICK_S, np.nan)


def _or_none(value: float) -> float | None:
    return None if value != value else value  # noqa: PLR0124 - not a number


def _write(path: Path, header: tuple[str, ...], rows: Iterable[Iterable[CsvCell]]) -> None:
    with replacing(path) as fresh:
        fresh.write_text(csv_text([header, *rows]), encoding="utf-8", newline="\n")
