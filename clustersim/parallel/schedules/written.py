"""Schedules as files: a row per pipeline rank with its passes in the cells, in the format of PyTorch's pipelining.

References
----------
.. [1] PyTorch, ``torch/distributed/pipelining/schedules.py``: ``_Action``, ``_PipelineScheduleRuntime._load_csv`` and ``_dump_csv``.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from clustersim.errors import DomainError
from clustersim.parallel.schedules.execution import Done, execute, needs
from clustersim.parallel.schedules.order import EQUAL_COSTS, Pass, PassKind, StageOrder
from clustersim.parallel.schedules.places import Places, bidirectional
from clustersim.units.grouping import grouped

_PASS: Final = re.compile(r"([0-9]{1,6})([FBIW])([0-9]{1,6})")
_PAIR: Final = re.compile(r"\(([^;()]*);([^;()]*)\)OVERLAP_F_B")
_COMMUNICATION: Final = re.compile(r"[0-9]{1,6}(?:(?:SEND|RECV)_[FB][0-9]{1,6}|UNSHARD|RESHARD|REDUCE_GRAD)")
_EXAMPLES: Final = "write such as 0F0, 3B2, 3I2, 3W2 or (0F4;3B0)OVERLAP_F_B: stage, what, micro-batch"
_KINDS: Final[dict[str, PassKind]] = {"F": "F", "B": "B", "I": "I", "W": "W"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenSchedule:
    """A schedule that was read from a file."""

    places: Places
    orders: tuple[StageOrder, ...]
    text: str
    """The file."""

    @property
    def n_micro_batches(self) -> int:
        """Micro-batches that it is for."""
        return 1 + max(step.micro_batch for order in self.orders for step in order)

    @property
    def splits(self) -> bool:
        """Whether backward passes fall into two."""
        return any(step.kind == "W" for order in self.orders for step in order)


@dataclass(frozen=True, slots=True)
class _Cell:
    """A pass, and where it was written."""

    rank: int
    column: int
    part: int
    """Part of the model; the format calls it a stage."""
    kind: PassKind
    micro_batch: int
    beside_next: bool = False

    @property
    def text(self) -> str:
        return f"{self.part}{self.kind}{self.micro_batch}"

    @property
    def where(self) -> str:
        return f"rank {self.rank}, cell {self.column + 1}"


def written(orders: Sequence[StageOrder], places: Places) -> str:
    r"""Return orders as a file: no empty cells, and overlapped passes in one cell.

    Examples
    --------
    >>> from clustersim.parallel.schedules.order import backward, forward
    >>> from clustersim.parallel.schedules.places import looped
    >>> written([(forward(0), backward(0))] * 2, looped(2, 1))
    '0F0,0B0\n1F0,1B0\n'
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    for stage, order in enumerate(orders):
        parts = {chunk: part for chunk, part, _ in places.stops(stage)}
        texts = [f"{parts[step.chunk]}{step.kind}{step.micro_batch}" for step in order]
        cells: list[str] = []
        for step, text in zip(order, texts, strict=True):
            paired = bool(cells) and cells[-1].endswith(";")
            if paired:
                cells[-1] += f"{text})OVERLAP_F_B"
            else:
                cells.append(f"({text};" if step.beside_next else text)
        writer.writerow(cells)
    return stream.getvalue()


def read_schedule(text: str) -> WrittenSchedule:
    """Return the schedule of a file.

    Empty cells are waits, and communication that PyTorch writes between passes follows from the passes: both are passed over. A stage of
    the file is a part of the model; several of them may be on one rank.

    Raises
    ------
    DomainError
        When a cell cannot be read, a pass is missing, there twice, or on the wrong rank, or when the schedule waits for itself.
    """
    try:
        rows = [row for row in csv.reader(io.StringIO(text.removeprefix("\ufeff"))) if row]
    except csv.Error as error:
        raise DomainError(f"the rows cannot be read: {error}", hint=f"cells need no quotes; {_EXAMPLES}") from error
    if not rows:
        raise DomainError("there are no rows", hint="write a row for each rank")
    cells = [[cell for column, text in enumerate(row) for cell in _passes(text.strip(), rank, column)] for rank, row in enumerate(rows)]
    places = _places(cells)
    _check_complete(cells, places)
    orders = tuple(
        tuple(Pass(cell.kind, cell.micro_batch, _chunk(places, cell), cell.beside_next) for cell in of_rank) for of_rank in cells
    )
    _check_progress(cells, orders, places)
    return WrittenSchedule(places=places, orders=orders, text=text)


def _passes(text: str, rank: int, column: int) -> Iterator[_Cell]:
    """Yield the passes of a cell: none, one, or two that overlap."""
    pair = _PAIR.fullmatch(text)
    if pair:
        one, other = (next(_passes(each.strip(), rank, column), None) for each in pair.groups())
        if one is None or other is None or (one.kind == "F") == (other.kind == "F") or "W" in (one.kind, other.kind):
            message = f"rank {rank}, cell {column + 1}: '{text}' is not a forward pass beside one that goes back"
            raise DomainError(message, hint=_EXAMPLES)
        # Both are held at once, whichever was written first: what the forward pass keeps is there before the other is through.
        first, second = (one, other) if one.kind == "F" else (other, one)
        yield replace(first, beside_next=True)
        yield second
        return
    single = _PASS.fullmatch(text)
    if single:
        part, kind, micro_batch = single.groups()
        yield _Cell(rank, column, int(part), _KINDS[kind], int(micro_batch))
    elif text and not _COMMUNICATION.fullmatch(text):
        message = f"rank {rank}, cell {column + 1}: '{text[:40]}' is not a pass"
        raise DomainError(message, hint=_EXAMPLES)


def _places(cells: Sequence[Sequence[_Cell]]) -> Places:
    """Return where the parts of the model are: each on one rank, or all on two in opposite order."""
    held = [sorted({cell.part for cell in of_rank}) for of_rank in cells]
    counts = [len(parts) for parts in held]
    if not min(counts):
        message = f"rank {counts.index(0)} has no passes"
        raise DomainError(message, hint=_EXAMPLES)
    if min(counts) != max(counts):
        few, many = counts.index(min(counts)), counts.index(max(counts))
        message = f"rank {many} has {counts[many]} stages of the file, and rank {few} has {counts[few]}"
        raise DomainError(message, hint="give every rank as many")
    ranks = grouped((part, rank) for rank, parts in enumerate(held) for part in parts)
    n_parts = 1 + max(ranks)
    missing = next((part for part in range(n_parts) if part not in ranks), None)
    if missing is not None:
        raise DomainError(f"stage {missing} is on no rank", hint="write its passes")
    if all(len(of_part) == 1 for of_part in ranks.values()):
        return Places((tuple((ranks[part][0], held[ranks[part][0]].index(part)) for part in range(n_parts)),))
    opposite = bidirectional(len(cells), 1)
    if n_parts != len(cells) or any(held[rank] != sorted({rank, n_parts - 1 - rank}) for rank in range(n_parts)) or n_parts % 2:
        twice = next(part for part, of_part in sorted(ranks.items()) if len(of_part) > 1)
        message = f"stage {twice} is on ranks {' and '.join(map(str, ranks[twice]))}"
        hint = "put each stage on one rank; or all on two, rank r and rank pp - 1 - r, as DualPipe does"
        raise DomainError(message, hint=hint)
    return opposite


def _chunk(places: Places, cell: _Cell) -> int:
    return next(chunk for chunk, part, _ in places.stops(cell.rank) if part == cell.part)


def _check_complete(cells: Sequence[Sequence[_Cell]], places: Places) -> None:
    """Refuse passes that are missing or there twice."""
    n_micro_batches = 1 + max(cell.micro_batch for of_rank in cells for cell in of_rank)
    for rank, of_rank in enumerate(cells):
        ways = {part: way for _, part, way in places.stops(rank)}
        found: dict[tuple[int, int], dict[str, _Cell]] = {}
        for cell in of_rank:
            kinds = found.setdefault((cell.part, cell.micro_batch), {})
            same = kinds.get(cell.kind) or next((kinds[kind] for kind in _EXCLUDED.get(cell.kind, "") if kind in kinds), None)
            if same is not None:
                message = f"{cell.where}: {cell.text}{_kinship(cell, same)} stands already in cell {same.column + 1}"
                raise DomainError(message, hint="leave one of the two out")
            kinds[cell.kind] = cell
            if cell.micro_batch not in places.micro_batches(ways[cell.part], n_micro_batches):
                message = f"{cell.where}: micro-batch {cell.micro_batch} goes through the other copy of stage {cell.part}"
                hint = "the first half of the micro-batches goes down the ranks, the second half up"
                raise DomainError(message, hint=hint)
        for part, way in ways.items():
            for micro_batch in places.micro_batches(way, n_micro_batches):
                kinds = found.get((part, micro_batch), {})
                lacking = [kind for kind in ("F", *(() if "B" in kinds else ("I", "W"))) if kind not in kinds]
                if lacking:
                    name = "B" if lacking == ["I", "W"] else lacking[0]
                    message = f"rank {rank}: {part}{name}{micro_batch} is missing"
                    raise DomainError(message, hint="every pass stands there once")


def _kinship(cell: _Cell, same: _Cell) -> str:
    """Return why two passes exclude each other, if they are not the same."""
    if same.kind == cell.kind:
        return ""
    return f", of which {same.text} is a part and" if cell.kind == "B" else f", a part of {same.text},"


_EXCLUDED: Final = {"B": "IW", "I": "B", "W": "B"}
"""Kinds that hold a pass of a kind, or that it holds."""


def _check_progress(cells: Sequence[Sequence[_Cell]], orders: Sequence[StageOrder], places: Places) -> None:
    """Refuse a schedule whose passes wait for each other; name the first rank that stands still and what it waits for."""
    executed = execute(orders, places, EQUAL_COSTS)
    for rank, at in enumerate(executed.at):
        if at == len(orders[rank]):
            continue
        neighbours = places.neighbours()
        together = orders[rank][at : at + (2 if orders[rank][at].beside_next else 1)]
        open_needs = [
            (cell, need)
            for cell, step in zip(cells[rank][at:], together, strict=False)
            for need in needs(rank, step, neighbours)
            if not _is_done(need, executed.at, orders)
        ]
        cell, need = open_needs[0]
        source = next(other for other, step in zip(cells[need[0]], orders[need[0]], strict=True) if _makes(step, need))
        message = f"{cell.where}: {cell.text} waits for {source.text} of {source.where}, which comes later or waits for it"
        raise DomainError(message, hint="put what is waited for before")


def _is_done(need: Done, at: Sequence[int], orders: Sequence[StageOrder]) -> bool:
    stage = need[0]
    return any(_makes(step, need) for step in orders[stage][: at[stage]])


def _makes(step: Pass, need: Done) -> bool:
    """Return whether a pass of the right stage makes a result."""
    _, chunk, direction, micro_batch = need
    return (step.chunk, step.micro_batch) == (chunk, micro_batch) and (step.kind == "F" if direction == "F" else step.goes_back)
