"""Two passes side by side: each computes while the other's tokens travel."""

from __future__ import annotations

import numpy as np

from clustersim.parallel.stage_work import overlapped_passes
from clustersim.program.tasks import Block, Collective, Compute, Item, Overlapped, RankGroups, Work, works_in

EP = RankGroups(name="ep", dimension="ep", members=np.array(((0, 1),)))
TP = RankGroups(name="tp", dimension="tp", members=np.array(((0, 1),)))


def work(name: str) -> Work:
    return Work(name=name, phase="forward", kernels=())


def move(size_bytes: float, group: RankGroups = EP) -> Collective:
    return Collective(op="all_to_all", group=group, bytes=size_bytes)


def layers(name: str, size_bytes: float, repeat: int) -> Block:
    return Block(name="layer", body=(work(name), move(size_bytes), work(name)), repeat=repeat)


def passed(*blocks: Block) -> Compute:
    return Compute(name="F", phase="forward", blocks=blocks)


def moved(action: Compute) -> dict[str, float]:
    """Return the bytes beside the work of each name, and those beside nothing."""
    found: dict[str, float] = {}
    for block in action.blocks:
        for item in block.body:
            name, collectives = _beside(item)
            found[name] = found.get(name, 0.0) + block.repeat * sum(each.bytes for each in collectives)
    return {name: size for name, size in found.items() if size}


def _beside(item: Item) -> tuple[str, tuple[Collective, ...]]:
    match item:
        case Overlapped():
            return item.works[0].name, item.collectives
        case Collective():
            return "nothing", (item,)
        case _:
            return "", ()


def n_works(action: Compute) -> int:
    return sum(block.repeat * sum(len(works_in(item)) for item in block.body) for block in action.blocks)


def test_each_layer_computes_while_the_tokens_of_the_other_travel() -> None:
    (one,), (other,) = overlapped_passes([passed(layers("a", 1.0, 4))], [passed(layers("b", 10.0, 4))])

    assert moved(one) == {"a": 40.0}
    assert moved(other) == {"b": 4.0}


def test_layers_without_a_partner_stay_as_they_were() -> None:
    (one,), (other,) = overlapped_passes([passed(layers("a", 1.0, 6))], [passed(layers("b", 10.0, 4))])

    assert moved(one) == {"a": 40.0, "nothing": 2.0}
    assert moved(other) == {"b": 4.0}
    assert (n_works(one), n_works(other)) == (12, 8)


def test_runs_of_different_lengths_meet_layer_by_layer() -> None:
    (one,), (other,) = overlapped_passes(
        [passed(layers("a", 1.0, 1), layers("c", 2.0, 3))], [passed(layers("b", 10.0, 2), layers("d", 20.0, 2))]
    )

    assert moved(one) == {"a": 10.0, "c": 10.0 + 2 * 20.0}
    assert moved(other) == {"b": 1.0 + 2.0, "d": 2 * 2.0}


def test_collectives_of_other_dimensions_stay_where_they_are() -> None:
    tensor = Block(name="layer", body=(work("a"), move(3.0, TP), Overlapped(collectives=(move(5.0, TP),), works=(work("c"),))))
    (one,), (other,) = overlapped_passes([passed(tensor)], [passed(layers("b", 10.0, 1))])

    assert moved(one) == {"a": 10.0, "nothing": 3.0, "c": 5.0}
    assert moved(other) == {}


def test_a_pass_that_sends_no_tokens_lets_the_other_s_travel_beside_it() -> None:
    (one,), (other,) = overlapped_passes([passed(Block(name="layer", body=(work("a"),), repeat=2))], [passed(layers("b", 10.0, 2))])

    assert moved(one) == {"a": 20.0}
    assert moved(other) == {}
    assert n_works(other) == 4


def test_passes_in_pieces_meet_layer_by_layer_too() -> None:
    one = [passed(layers("first", 1.0, 1)), passed(layers("a", 2.0, 3))]
    (first, rest), (whole,) = overlapped_passes(one, [passed(layers("b", 10.0, 2), layers("d", 20.0, 2))])

    assert (moved(first), moved(rest)) == ({"first": 10.0}, {"a": 10.0 + 2 * 20.0})
    assert moved(whole) == {"b": 1.0 + 2.0, "d": 2 * 2.0}


def test_what_stands_between_layers_meets_nothing() -> None:
    cast = Block(name="cast", body=(work("cast"),))
    (one,), (other,) = overlapped_passes([passed(cast, layers("a", 1.0, 2))], [passed(layers("b", 10.0, 1), cast, layers("b", 10.0, 1))])

    assert (moved(one), moved(other)) == ({"a": 20.0}, {"b": 2.0})
