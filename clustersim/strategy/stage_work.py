"""What one stage computes in each of its passes, whole or in pieces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import fsum
from types import MappingProxyType
from typing import Final

from clustersim.program.tasks import Block, Compute
from clustersim.strategy.gradients import Bucket, cast_blocks
from clustersim.strategy.interference import beside_blocks
from clustersim.strategy.memory import end_weights
from clustersim.strategy.passes import ChunkPasses
from clustersim.strategy.pipeline import Labelled, Piece
from clustersim.strategy.plan import Plan
from clustersim.strategy.schedules.order import Pass, PassKind
from clustersim.strategy.shard import ModelChunk
from clustersim.strategy.units import casts_gathered, reduction_units
from clustersim.strategy.weaving import woven
from clustersim.strategy.weights import NOTHING, Weights
from clustersim.strategy.works import PHASES, Gradients

GRADIENTS: Final[Mapping[PassKind, Gradients]] = MappingProxyType({"F": "all", "B": "all", "I": "input", "W": "weight"})
"""What each kind of pass computes as it goes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """How a pass falls into pieces, and what runs beside it."""

    borders: frozenset[int] = frozenset()
    """Layers of the chunk, counted from its first, before which it is cut."""
    reduces: bool = False
    """Whether the gradients of units are reduced as soon as they are complete, so that it is cut there too."""
    gathered: Weights = NOTHING
    """Parameters that are gathered for it."""
    ends: bool = False
    """Whether embedding and head are among them."""
    ahead: bool = False
    """Whether they are gathered while something computes."""


WHOLE: Final = Cut()
"""One piece, beside nothing."""


@dataclass(slots=True, kw_only=True)
class StageWork:
    """The passes of one stage as work, each kind made once."""

    plan: Plan
    passes: ChunkPasses
    chunks: Sequence[ModelChunk]
    receive: tuple[Block, ...]
    """Puts together what was sent in parts."""
    _known: dict[tuple[PassKind, int, Cut], tuple[Piece, ...]] = field(default_factory=dict[tuple[PassKind, int, Cut], tuple[Piece, ...]])
    _filled: dict[tuple[int, Bucket], Compute] = field(default_factory=dict[tuple[int, Bucket], Compute])
    _pairs: dict[tuple[int, int], tuple[Compute, ...]] = field(default_factory=dict[tuple[int, int], tuple[Compute, ...]])

    def pieces(self, step: Pass, cut: Cut = WHOLE) -> tuple[Piece, ...]:
        """Return a pass in pieces, in the order in which they run: forward the first layers first, backward the last ones."""
        known = (step.kind, step.chunk, cut)
        pieces = self._known.get(known)
        if pieces is None:
            pieces = self._known[known] = self._cut(step, cut)
        return pieces

    def with_bucket(self, pieces: Sequence[Piece], bucket: Bucket) -> tuple[Piece, ...]:
        """Return pieces of which the last one puts gradients into their bucket."""
        known = (id(pieces[-1].action), bucket)
        action = self._filled.get(known)
        if action is None:
            last = pieces[-1].action
            action = self._filled[known] = replace(last, blocks=last.blocks + cast_blocks(self.plan, bucket.weights.total))
        return (*pieces[:-1], replace(pieces[-1], action=action, completes=bucket))

    def woven(self, passes: list[Labelled]) -> list[Labelled]:
        """Return passes as they run at once: two of them, each in one piece, with their collectives beside the other."""
        if len(passes) == 1 or any(len(pieces) > 1 for _, pieces in passes):
            return passes
        (one, (mine,)), (other, (theirs,)) = passes
        known = (id(mine.action), id(theirs.action))
        found = self._pairs.get(known)
        if found is None:
            # Both are kept by the pair, so that their identities stay theirs.
            found = self._pairs[known] = (mine.action, theirs.action, *woven(mine.action, theirs.action))
        return [(one, (replace(mine, action=found[2]),)), (other, (replace(theirs, action=found[3]),))]

    def _cut(self, step: Pass, cut: Cut) -> tuple[Piece, ...]:
        chunk = self.chunks[step.chunk]
        buckets = _by_layer(reduction_units(self.plan, chunk)) if cut.reduces else {}
        inner = sorted({layer for layer in (*cut.borders, *buckets) if 0 < layer < chunk.n_layers})
        spans = list(pairwise((0, *inner, chunk.n_layers)))
        pieces: list[Piece] = []
        beside = NOTHING
        for start, stop in spans if step.kind == "F" else reversed(spans):
            opening = self._opening(step, cut) if not pieces else ()
            bucket = None if step.kind == "F" else buckets.get(start)
            gathered = cut.gathered if cut.ahead and not pieces else NOTHING
            # The bucket before is reduced beside this piece.
            lost = beside_blocks(self.plan, "forward" if step.kind == "F" else "backward", gathered=gathered, reduced=beside)
            beside = bucket.weights if bucket else NOTHING
            filled = cast_blocks(self.plan, bucket.weights.total) if bucket else ()
            blocks = opening + self._slice(step, chunk, (start, stop)) + filled + lost
            pieces.append(Piece(action=_compute(step.kind, blocks), completes=bucket, layers=range(start, stop)))
        return tuple(pieces)

    def _slice(self, step: Pass, chunk: ModelChunk, span: tuple[int, int]) -> tuple[Block, ...]:
        passes = self.passes.of(GRADIENTS[step.kind])
        return passes.forward_slice(chunk, *span) if step.kind == "F" else passes.backward_slice(chunk, *span)

    def _opening(self, step: Pass, cut: Cut) -> tuple[Block, ...]:
        chunk = self.chunks[step.chunk]
        layers = cut.gathered.without(end_weights(self.plan, chunk).dense) if cut.ends else cut.gathered
        return self._received(step) + casts_gathered(self.plan, cut.gathered, layers)

    def _received(self, step: Pass) -> tuple[Block, ...]:
        chunk = self.chunks[step.chunk]
        return () if step.kind == "W" or (chunk.first if step.kind == "F" else chunk.last) else self.receive


def _by_layer(buckets: Sequence[Bucket]) -> dict[int, Bucket]:
    """Return what is reduced behind each layer, together where there are several."""
    found: dict[int, Bucket] = {}
    for bucket in buckets:
        found[bucket.layer] = one_bucket([found[bucket.layer], bucket], bucket.layer) if bucket.layer in found else bucket
    return found


def one_bucket(buckets: Sequence[Bucket], layer: int = 0) -> Bucket:
    """Return some buckets as one of as many calls, which is ready when a layer is through."""
    return Bucket(
        parameters=fsum(each.parameters for each in buckets),
        layer=layer,
        n_calls=sum(each.n_calls for each in buckets),
        expert_parameters=fsum(each.expert_parameters for each in buckets),
        expert_calls=sum(each.expert_calls for each in buckets),
    )


def _compute(kind: PassKind, blocks: tuple[Block, ...]) -> Compute:
    return Compute(name=kind, phase="forward" if kind == "F" else PHASES[GRADIENTS[kind]], blocks=blocks)
