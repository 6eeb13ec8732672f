"""Passes of pipeline stages in schedule order, with the sends and receives between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from clustersim.parallel.division import Division
from clustersim.parallel.gradients import Bucket
from clustersim.parallel.schedules.order import Pass
from clustersim.parallel.schedules.places import Places, Stop
from clustersim.program.program import Key, ProgramBuilder
from clustersim.program.tasks import Compute, Lane, Transfer

SEND = {False: "send_forward", True: "send_backward"}
RECEIVE = {False: "recv_forward", True: "recv_backward"}
"""Streams by direction: backward or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Some layers of a pass."""

    action: Compute
    after: tuple[Key, ...] = ()
    """Tasks that it waits for besides the piece before it, such as its parameters."""
    completes: tuple[Bucket, ...] = ()
    """Gradients that are ready after it."""
    layers: range = range(0)
    """Its layers in the chunk."""


@dataclass(slots=True, kw_only=True)
class StagePieces:
    """Pieces of the passes of one part of a stage, in order."""

    part: int = 0
    """Part of the replicas."""
    pieces: list[tuple[Piece, ...]] = field(default_factory=list[tuple[Piece, ...]])
    """Pieces of each pass."""
    keys: list[Key] = field(default_factory=list[Key])
    """Names of all pieces."""
    starts: list[int] = field(default_factory=list[int])
    """Number of the first piece of each pass."""
    reductions: list[tuple[Key, ...]] = field(default_factory=list[tuple[Key, ...]])
    """Reductions of the gradients that each piece completes, where the next piece waits for them."""

    def before(self, position: int, number: int = 0, away: int = 1) -> tuple[Key, ...]:
        """Return the piece a number of places before a piece of a pass; nothing where there is none."""
        place = self.starts[position] + number - away
        return (self.keys[place],) if place >= 0 else ()

    def awaited(self, position: int, number: int) -> tuple[Key, ...]:
        """Return all that has ended when a piece begins beside which nothing runs: the piece before, and its reductions."""
        place = self.starts[position] + number - 1
        return (self.keys[place], *(self.reductions[place] if self.reductions else ())) if place >= 0 else ()

    def one_by_one(self, pieces: Sequence[Piece]) -> tuple[Piece, ...]:
        """Return the last pieces with reductions, each of which waits for the reductions after the piece before."""
        first = len(self.reductions) - len(pieces)
        waits = [self.reductions[first + number - 1] if first + number else () for number in range(len(pieces))]
        return tuple(replace(piece, after=(*piece.after, *wait)) for piece, wait in zip(pieces, waits, strict=True))

    def own(self, position: int) -> list[Key]:
        """Return the pieces of a pass."""
        start = self.starts[position]
        return self.keys[start : start + len(self.pieces[position])]


Labelled = tuple[Pass, Sequence[Piece]]
"""A pass and the pieces it is done in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Route:
    """Route of results from one stage to another."""

    transfer: Transfer
    lanes: tuple[Lane, Lane]
    """On which it is sent, and received."""


@dataclass(slots=True, kw_only=True)
class Pipeline:
    """Adds passes of the replicas of one part to a program, and after each the transfer of its result.

    Activations go to the stage with the next part of the model, and gradients go back the same way; on one stage nothing is sent. A pass
    waits for what it receives; unless transfers overlap, also for what its stage has sent. Each stage has streams of their own for each
    of its neighbours, so that no transfer waits for one of another pair.
    """

    builder: ProgramBuilder
    division: Division
    places: Places
    pair_bytes: float
    """Bytes that one rank sends to its neighbour."""
    overlap: bool
    waits_per_transfer: float = 0.0
    """Number of waits of the hosts for one transfer."""
    part: int = 0
    _routes: dict[tuple[int, int, bool], _Route] = field(default_factory=dict[tuple[int, int, bool], "_Route"])
    _sends: dict[int, dict[Lane, None]] = field(default_factory=dict[int, dict[Lane, None]])
    """Streams on which each stage has sent so far."""
    _neighbours: dict[Stop, tuple[Stop | None, Stop | None]] = field(init=False)

    def __post_init__(self) -> None:
        """Compute the routes through the model once."""
        self._neighbours = self.places.neighbours()

    def add_together(self, stage: int, passes: Sequence[Labelled]) -> list[tuple[Key, ...]]:
        """Add one pass, or several overlapped passes, and the transfers of their results; return the names of the pieces of each.

        Passes that run at once all wait for what any of them needs, and their results leave when all have ended. They are laid one behind
        the other, which takes as long as computation that shares an accelerator.
        """
        lane, added = self.division.lane(stage, self.part), list[tuple[Key, ...]]()
        inputs = dict.fromkeys(key for step, _ in passes for key in self._inputs(stage, step))
        for step, pieces in passes:
            keys: list[Key] = []
            for number, piece in enumerate(pieces):
                key: Key = (step.kind, lane.rank_class, step.chunk, step.micro_batch, number)
                begins = not added and not number
                after = (*inputs, *piece.after) if begins else piece.after
                self.builder.add(key, piece.action, [lane], after=after, label=(step.micro_batch, step.chunk))
                keys.append(key)
            added.append(tuple(keys))
        for step, _ in passes:
            self._add_transfer(stage, step)
        return added

    def _inputs(self, stage: int, step: Pass) -> tuple[Key, ...]:
        source = self._neighbours[stage, step.chunk][step.goes_back]
        # What the stage has made itself stands before the pass in its order; nobody sends what a weight gradient needs.
        away = source is not None and source[0] != stage and step.kind != "W"
        received = (self._arrival((stage, step.chunk), step),) if away else ()
        if self.overlap:
            return received
        return received + tuple(key for lane in self._sends.get(stage, {}) for key in self.builder.last(lane))

    def _add_transfer(self, stage: int, step: Pass) -> None:
        target = self._neighbours[stage, step.chunk][not step.goes_back]
        if target is None or target[0] == stage or step.kind == "W":
            return
        route = self._route(stage, target[0], backward=step.goes_back)
        self._sends.setdefault(stage, {})[route.lanes[0]] = None
        self.builder.add(
            self._arrival(target, step),
            route.transfer,
            route.lanes,
            after=self.builder.last(self.division.lane(stage, self.part)),
            label=(step.micro_batch, step.chunk),
        )

    def _way(self, sender: int, receiver: int, *, backward: bool) -> str:
        """Return the suffix of the names of streams: nothing along the stages, otherwise the destination."""
        if receiver == (sender + (-1 if backward else 1)) % self.division.n_stages:
            return ""
        distance = abs(receiver - sender)
        return ("_up" if receiver < sender else "_down") + (str(distance) if distance > 1 else "")

    def _route(self, sender: int, receiver: int, *, backward: bool) -> _Route:
        """Return how results get from one stage to another."""
        route = self._routes.get((sender, receiver, backward))
        if route is None:
            pairs = np.stack([self.division.ranks(stage, self.part) for stage in (sender, receiver)], axis=1)
            name = self.division.name(f"{'B' if backward else 'F'} {sender}->{receiver}", self.part)
            way = self._way(sender, receiver, backward=backward)
            route = self._routes[sender, receiver, backward] = _Route(
                transfer=Transfer(
                    name=name, dimension="pp", pairs=pairs, bytes=self.pair_bytes, waits_per_transfer=self.waits_per_transfer
                ),
                lanes=(
                    self.division.lane(sender, self.part, SEND[backward] + way),
                    self.division.lane(receiver, self.part, RECEIVE[backward] + way),
                ),
            )
        return route

    def _arrival(self, stop: Stop, step: Pass) -> Key:
        stage, chunk = stop
        return ("to B" if step.goes_back else "to F", self.division.rank_class(stage, self.part), chunk, step.micro_batch)
