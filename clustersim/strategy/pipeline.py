"""Passes of pipeline stages in schedule order, with the sends and receives between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from clustersim.program.program import Key, ProgramBuilder
from clustersim.program.tasks import Compute, Transfer
from clustersim.strategy.division import Division
from clustersim.strategy.schedules.order import Pass
from clustersim.strategy.shard import ModelChunk

SEND = {False: "send_forward", True: "send_backward"}
RECEIVE = {False: "recv_forward", True: "recv_backward"}
"""Streams by direction: backward or not."""


@dataclass(slots=True, kw_only=True)
class Pipeline:
    """Adds passes of the replicas of one part to a program, and after each the transfer of its result.

    Activations go to the next stage, or from the last stage to the first when the model comes around again; gradients go
    back the same way. A pass waits for what it receives; unless transfers overlap, also for what its stage has sent.
    """

    builder: ProgramBuilder
    division: Division
    chunks: tuple[tuple[ModelChunk, ...], ...]
    """Of every stage."""
    pair_bytes: float
    """What one rank sends to its neighbour."""
    overlap: bool
    part: int = 0
    _transfers: dict[tuple[int, bool], Transfer] = field(default_factory=dict[tuple[int, bool], Transfer])

    def add_pass(self, stage: int, step: Pass, pieces: Sequence[Compute]) -> tuple[Key, ...]:
        """Add a pass, in one or more pieces, and the transfer of its result; return the names of the pieces."""
        lane, label = self.division.lane(stage, self.part), (step.micro_batch, step.chunk)
        keys: list[Key] = []
        for number, piece in enumerate(pieces):
            key: Key = (piece.name, lane.rank_class, step.chunk, step.micro_batch, number)
            self.builder.add(key, piece, [lane], after=() if number else self._inputs(stage, step), label=label)
            keys.append(key)
        self._add_transfer(stage, step)
        return tuple(keys)

    def _inputs(self, stage: int, step: Pass) -> tuple[Key, ...]:
        chunk = self.chunks[stage][step.chunk]
        starts_here = chunk.last if step.backward else chunk.first
        received = () if starts_here else (self._arrival(stage, step.chunk, step),)
        if self.overlap:
            return received
        sent = (self.division.lane(stage, self.part, stream) for stream in SEND.values())
        return received + tuple(key for lane in sent for key in self.builder.last(lane))

    def _add_transfer(self, stage: int, step: Pass) -> None:
        chunk = self.chunks[stage][step.chunk]
        if chunk.first if step.backward else chunk.last:
            return
        around, receiver = divmod(stage + (-1 if step.backward else 1), len(self.chunks))
        lanes = [
            self.division.lane(stage, self.part, SEND[step.backward]),
            self.division.lane(receiver, self.part, RECEIVE[step.backward]),
        ]
        self.builder.add(
            self._arrival(receiver, step.chunk + around, step),
            self._transfer(stage, receiver, backward=step.backward),
            lanes,
            after=self.builder.last(self.division.lane(stage, self.part)),
            label=(step.micro_batch, step.chunk),
        )

    def _transfer(self, sender: int, receiver: int, *, backward: bool) -> Transfer:
        transfer = self._transfers.get((sender, backward))
        if transfer is None:
            ranks = (self.division.ranks(stage, self.part).tolist() for stage in (sender, receiver))
            pairs = zip(*ranks, strict=True)
            name = self.division.name(f"{'B' if backward else 'F'} {sender}->{receiver}", self.part)
            transfer = Transfer(name=name, dimension="pp", pairs=tuple(pairs), bytes=self.pair_bytes)
            self._transfers[(sender, backward)] = transfer
        return transfer

    def _arrival(self, stage: int, chunk: int, step: Pass) -> Key:
        return ("to B" if step.backward else "to F", self.division.rank_class(stage, self.part), chunk, step.micro_batch)
