"""The computation of one stage in each of its passes, whole or in pieces, and beside communication or another pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Final

from clustersim.hardware.library_costs import CollectiveOp
from clustersim.parallel.gradients import Bucket, cast_blocks, gathered_bytes, operations_among, reduced_bytes
from clustersim.parallel.layers import PHASES, Gradients
from clustersim.parallel.pipeline import Labelled, Piece
from clustersim.parallel.schedules.order import Pass, PassKind
from clustersim.parallel.stage_passes import ChunkPasses
from clustersim.parallel.stages import ModelChunk
from clustersim.parallel.training_plan import Strategy
from clustersim.parallel.units import casts_gathered, reduction_units
from clustersim.parallel.weights import NOTHING, Weights, total_weights
from clustersim.program.tasks import Block, Compute, Item, Overlapped, Phase, Work, collectives_in, works_in
from clustersim.workloads.operators import Interference
from clustersim.workloads.shapes import Numerics


def sent_bytes(op: CollectiveOp, size_bytes: float, n_ranks: int) -> float:
    """Return what each of some ranks sends in a ring: all but its own part, and for an all-reduce twice that.

    Examples
    --------
    >>> sent_bytes("all_gather", 8.0, 4), sent_bytes("all_reduce", 8.0, 4)
    (6.0, 12.0)
    """
    return (2.0 if op == "all_reduce" else 1.0) * size_bytes * (n_ranks - 1) / n_ranks


def beside_blocks(
    strategy: Strategy, number: Numerics, phase: Phase, *, gathered: Weights = NOTHING, reduced: Weights = NOTHING
) -> tuple[Block, ...]:
    """Return the slowdown of passes by the overlapped collectives of a layer or bucket; nothing without overlap.

    Parameters
    ----------
    gathered
        Parameters whose shards are gathered meanwhile.
    reduced
        Parameters whose gradients are reduced meanwhile.
    """
    gradients = strategy.data_parallel
    if not gradients.overlap or not (gathered.total or reduced.total):
        return ()
    sharding, total_bytes = strategy.sharding, 0.0
    ways = (
        (gathered.dense, reduced.dense, sharding.degree, strategy.replicas),
        (gathered.expert, reduced.expert, sharding.expert_degree, strategy.expert_replicas),
    )
    for shared, summed, degree, n_holders in ways:
        total_bytes += sent_bytes("all_gather", shared * gathered_bytes(gradients, number), degree)
        ops = operations_among(n_holders, degree, strategy)
        total_bytes += _reduced_bytes(ops, summed * reduced_bytes(gradients, number), degree, n_holders)
    if total_bytes == 0.0:
        return ()
    return (Block(name="beside", body=(Work(name="communication beside", phase=phase, kernels=(Interference(total_bytes),)),)),)


def _reduced_bytes(ops: Sequence[CollectiveOp], size_bytes: float, degree: int, n_holders: int) -> float:
    """Return the bytes that a rank sends to reduce gradients of a number of bytes."""
    total_bytes, scattered = 0.0, 1
    for op in ops:
        if op == "reduce_scatter":
            total_bytes += sent_bytes(op, size_bytes, degree)
            scattered = degree
        elif op == "all_reduce":
            # Copies of a sharded model add up shards; without shards there is one group of all.
            total_bytes += sent_bytes(op, size_bytes / scattered, n_holders // scattered)
    return total_bytes


OVERLAPPED_DIMENSION = "ep"
"""Dimension whose collectives run beside the other pass."""

BESIDE_LAYERS: Final = ("cast", "beside", "receive", "amax")
"""Blocks between layers, which do not overlap with the other pass."""

GRADIENTS: Final[Mapping[PassKind, Gradients]] = MappingProxyType({"F": "all", "B": "all", "I": "input", "W": "weight"})
"""Gradients that each kind of pass computes as it goes back."""

_Pair = tuple[tuple[Compute, ...], tuple[Compute, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Division of a pass into pieces, and the collectives beside it."""

    borders: frozenset[int] = frozenset()
    """Layers of the chunk, counted from its first, before which it is cut."""
    reduces: bool = False
    """Whether units are reduced when their gradients are complete, which divides the pass there as well."""
    layers: bool = False
    """Whether the parameters of its layers are gathered for it."""
    ends: bool = False
    """Whether those of embedding and head are."""
    ahead: bool = False
    """Whether gathers for its first piece run beside computation; those for later pieces do wherever they can."""
    reducing: Weights = NOTHING
    """Parameters whose gradients are reduced beside its first piece."""


WHOLE: Final = Cut()
"""One piece, beside nothing."""


@dataclass(slots=True, kw_only=True)
class StageWork:
    """The passes of one stage as work, each kind made once."""

    passes: ChunkPasses
    chunks: Sequence[ModelChunk]
    _known: dict[tuple[PassKind, int, Cut], tuple[Piece, ...]] = field(default_factory=dict[tuple[PassKind, int, Cut], tuple[Piece, ...]])
    _same: dict[tuple[PassKind, tuple[Block, ...]], Compute] = field(default_factory=dict[tuple[PassKind, tuple[Block, ...]], Compute])
    """Equal work, which is then priced once."""
    _pairs: dict[tuple[tuple[int, ...], ...], tuple[_Pair, _Pair]] = field(
        default_factory=dict[tuple[tuple[int, ...], ...], tuple[_Pair, _Pair]]
    )
    """For two passes, their pieces and their overlap."""

    def pieces(self, step: Pass, cut: Cut = WHOLE) -> tuple[Piece, ...]:
        """Return a pass in pieces, in the order in which they run: forward the first layers first, backward the last ones."""
        known = (step.kind, step.chunk, cut)
        pieces = self._known.get(known)
        if pieces is None:
            pieces = self._known[known] = self._cut(step, cut)
        return pieces

    def overlapped_passes(self, passes: list[Labelled]) -> list[Labelled]:
        """Return overlapped passes: two of them, each with the collectives of the other."""
        if len(passes) == 1:
            return passes
        one, other = (tuple(piece.action for piece in pieces) for _, pieces in passes)
        known = tuple(map(id, one)), tuple(map(id, other))
        if known not in self._pairs:
            # Pieces are kept by the pair, so that their identities stay theirs.
            self._pairs[known] = (one, other), overlapped_passes(one, other)
        return [
            (step, tuple(replace(piece, action=action) for piece, action in zip(pieces, actions, strict=True)))
            for (step, pieces), actions in zip(passes, self._pairs[known][1], strict=True)
        ]

    def _cut(self, step: Pass, cut: Cut) -> tuple[Piece, ...]:
        chunk = self.chunks[step.chunk]
        local, strategy, number = self.passes.local, self.passes.strategy, self.passes.local.numerics
        buckets = _by_layer(reduction_units(local, strategy, chunk)) if cut.reduces else {}
        inner = sorted({layer for layer in (*cut.borders, *buckets) if 0 < layer < chunk.n_layers})
        spans = list(pairwise((0, *inner, chunk.n_layers)))
        pieces: list[Piece] = []
        beside = cut.reducing
        for start, stop in spans if step.kind == "F" else reversed(spans):
            first = not pieces
            complete = () if step.kind == "F" else buckets.get(start, ())
            layers, gathered = self._gathered(chunk, (start, stop), cut, first=first)
            hidden = gathered if strategy.prefetch > 0 and (cut.ahead or not first) else NOTHING
            # The buckets of the piece before are reduced beside this one.
            lost = beside_blocks(strategy, number, "forward" if step.kind == "F" else "backward", gathered=hidden, reduced=beside)
            beside = completed(complete)
            opening = self._received(step) if first else ()
            filled = cast_blocks(strategy, number, beside.total) if complete else ()
            cast = casts_gathered(strategy, number, gathered, layers)
            last = stop == chunk.n_layers if step.kind == "F" else start == 0
            ending = tuple(block for each in self.passes.techniques for block in each.closing()) if last and step.kind != "W" else ()
            blocks = opening + cast + self._slice(step, chunk, (start, stop)) + filled + lost + ending
            phase = "forward" if step.kind == "F" else PHASES[GRADIENTS[step.kind]]
            action = self._same.setdefault((step.kind, blocks), Compute(name=step.kind, phase=phase, blocks=blocks))
            pieces.append(Piece(action=action, completes=complete, layers=range(start, stop)))
        return tuple(pieces)

    def _gathered(self, chunk: ModelChunk, span: tuple[int, int], cut: Cut, *, first: bool) -> tuple[Weights, Weights]:
        """Return the parameters of layers that are gathered for a piece, and with them those of embedding and head."""
        local = self.passes.local
        layers = total_weights((each.held, 1) for each in local.layer_weights(chunk.layers)[slice(*span)]) if cut.layers else NOTHING
        return layers, layers + local.end_weights(chunk).held if cut.ends and first else layers

    def _slice(self, step: Pass, chunk: ModelChunk, span: tuple[int, int]) -> tuple[Block, ...]:
        passes = self.passes.of(GRADIENTS[step.kind])
        return passes.forward_slice(chunk, *span) if step.kind == "F" else passes.backward_slice(chunk, *span)

    def _received(self, step: Pass) -> tuple[Block, ...]:
        chunk = self.chunks[step.chunk]
        if step.kind == "W" or (chunk.first if step.kind == "F" else chunk.last):
            return ()
        return tuple(block for technique in self.passes.techniques for block in technique.received())


def _by_layer(buckets: Sequence[Bucket]) -> dict[int, tuple[Bucket, ...]]:
    """Return the buckets that are reduced after each layer."""
    found: dict[int, tuple[Bucket, ...]] = {}
    for bucket in buckets:
        found[bucket.layer] = (*found.get(bucket.layer, ()), bucket)
    return found


def completed(buckets: Sequence[Bucket]) -> Weights:
    """Return the parameters whose gradients are in some buckets."""
    return total_weights((bucket.weights, 1) for bucket in buckets) if buckets else NOTHING


def overlapped_passes(one: Sequence[Compute], other: Sequence[Compute]) -> tuple[tuple[Compute, ...], tuple[Compute, ...]]:
    """Return two passes in pieces, each layer overlapped with the expert-parallel collectives of the other pass.

    The first layer of one meets the first that the other goes through, and so on; where one has more of them, the rest stay as they
    were. Pieces keep their layers. Each pass keeps its computation and the collectives of other dimensions, so that together they do the
    same work.

    References
    ----------
    .. [1] DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 3.2.1 and figure 4.
    """
    pairs = list(_paired(*([block for piece in pieces for block in piece.blocks] for pieces in (one, other))))
    first = (_beside(mine, theirs, repeat) for mine, theirs, repeat in pairs if mine is not None)
    second = (_beside(theirs, mine, repeat) for mine, theirs, repeat in pairs if theirs is not None)
    return tuple(_taken(piece, first) for piece in one), tuple(_taken(piece, second) for piece in other)


def _taken(piece: Compute, blocks: Iterator[Block]) -> Compute:
    """Return a piece with as many of the blocks as it has had."""
    taken, left = list[Block](), sum(block.repeat for block in piece.blocks)
    while left:
        taken.append(next(blocks))
        left -= taken[-1].repeat
    return replace(piece, blocks=tuple(taken))


def _paired(one: Sequence[Block], other: Sequence[Block]) -> Iterator[tuple[Block | None, Block | None, int]]:
    """Yield overlapping stretches of blocks, and their number; None where one pass has nothing left."""
    left, right = (((block, block.repeat) for block in blocks) for blocks in (one, other))
    mine, theirs = next(left, None), next(right, None)
    while mine is not None or theirs is not None:
        if mine is not None and mine[0].name in BESIDE_LAYERS:
            yield mine[0], None, mine[1]
            mine = next(left, None)
            continue
        if theirs is not None and theirs[0].name in BESIDE_LAYERS:
            yield None, theirs[0], theirs[1]
            theirs = next(right, None)
            continue
        repeat = min(each[1] for each in (mine, theirs) if each is not None)
        yield mine[0] if mine else None, theirs[0] if theirs else None, repeat
        mine = _after(mine, repeat) or next(left, None)
        theirs = _after(theirs, repeat) or next(right, None)


def _after(part: tuple[Block, int] | None, repeat: int) -> tuple[Block, int] | None:
    return None if part is None or part[1] == repeat else (part[0], part[1] - repeat)


def _beside(mine: Block, theirs: Block | None, repeat: int) -> Block:
    """Return a block with the collectives of another beside its work."""
    if theirs is None:
        return replace(mine, repeat=repeat)
    collectives = tuple(found for item in theirs.body for found in collectives_in(item) if _travels(item))
    kept = tuple(part for item in mine.body for part in (works_in(item) if _travels(item) else (item,)))
    works = tuple(item for item in kept if isinstance(item, Work))
    if not collectives or not works:
        return replace(mine, body=kept if works else (*kept, *collectives), repeat=repeat)
    rest: tuple[Item, ...] = tuple(item for item in kept if not isinstance(item, Work))
    return replace(mine, body=(*rest, Overlapped(collectives=collectives, works=works)), repeat=repeat)


def _travels(item: Item) -> bool:
    """Return whether an item is such a collective, alone or with overlapped work."""
    return any(collective.group.dimension == OVERLAPPED_DIMENSION for collective in collectives_in(item))
