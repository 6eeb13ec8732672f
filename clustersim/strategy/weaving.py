"""A forward and a backward pass side by side: what one sends to experts travels while the other computes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from clustersim.program.tasks import Block, Compute, Item, Uneven, Work, Woven, collectives_in, works_in

WOVEN = "ep"
"""Dimension whose collectives run beside the other pass."""

BESIDE_LAYERS: Final = ("cast", "beside", "receive")
"""Blocks between layers, which meet nothing of the other pass."""


def woven(one: Sequence[Compute], other: Sequence[Compute]) -> tuple[tuple[Compute, ...], tuple[Compute, ...]]:
    """Return two passes in pieces, layer by layer each beside the expert-parallel collectives of the other instead of its own.

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
    """Give stretches of blocks that meet, and how often; None where one has nothing left."""
    left, right = _counted(one), _counted(other)
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


def _counted(blocks: Sequence[Block]) -> Iterator[tuple[Block, int]]:
    yield from ((block, block.repeat) for block in blocks)


def _after(part: tuple[Block, int] | None, repeat: int) -> tuple[Block, int] | None:
    return None if part is None or part[1] == repeat else (part[0], part[1] - repeat)


def _beside(mine: Block, theirs: Block | None, repeat: int) -> Block:
    """Return a block with the collectives of another beside its work."""
    if theirs is None:
        return replace(mine, repeat=repeat)
    collectives = tuple(found for item in theirs.body for found in collectives_in(item) if _travels(item))
    kept = tuple(part for item in mine.body for part in (works_in(item) if _travels(item) else (item,)))
    works = tuple(item for item in kept if isinstance(item, Work | Uneven))
    if not collectives or not works:
        return replace(mine, body=kept if works else (*kept, *collectives), repeat=repeat)
    rest: tuple[Item, ...] = tuple(item for item in kept if not isinstance(item, Work | Uneven))
    return replace(mine, body=(*rest, Woven(collectives=collectives, works=works)), repeat=repeat)


def _travels(item: Item) -> bool:
    """Return whether an item is such a collective, by itself or beside work of its own."""
    return any(collective.group.dimension == WOVEN for collective in collectives_in(item))
