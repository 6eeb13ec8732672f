from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.engine.refinement import Incidence, Partition, numbered, scrambled, summed
from clustersim.topology.cluster import IntArray


def ints(*values: int) -> IntArray:
    return np.array(values, dtype=np.int64)


def pairs(*of: tuple[int, int], ends: bool = False) -> Incidence:
    """Return instances of two ranks each."""
    ranks = np.array(of, dtype=np.int64).reshape(-1)
    instances = np.repeat(np.arange(len(of), dtype=np.int64), 2)
    return Incidence(ranks=ranks, instances=instances, n_instances=len(of), parts=np.tile(ints(0, 1), len(of)) if ends else None)


def refined(colours: IntArray, *incidences: Incidence) -> Partition:
    partition = Partition(colours.copy(), incidences, [np.zeros(each.n_instances, dtype=np.int64) for each in incidences])
    partition.refine()
    return partition


def test_scrambled_numbers_depend_on_value_and_salt_alone() -> None:
    values = ints(3, 4, 3)

    assert scrambled(values)[0] == scrambled(values)[2] != scrambled(values)[1]
    assert scrambled(values, 1)[0] != scrambled(values)[0]
    # The first two outputs of SplitMix64 with seed 0, as published with its reference implementation.
    assert scrambled(ints(0)).tolist() == [0xE220A8397B1DCDAF]
    assert scrambled(ints(0), 1).tolist() == [0x6E789E6AA1B965F4]


def test_sums_are_those_of_each_owner_whatever_the_order() -> None:
    hashes = scrambled(ints(5, 6, 7))

    assert summed(hashes, ints(1, 0, 1), 2).tolist() == summed(hashes[::-1], ints(1, 0, 1), 2).tolist()
    assert summed(hashes, ints(1, 0, 1), 3)[2] == 0


def test_numbers_follow_the_first_occurrence() -> None:
    assert numbered(scrambled(ints(9, 2, 9, 5, 2))).tolist() == [0, 1, 0, 2, 1]
    assert numbered(scrambled(ints())).tolist() == []


def test_ranks_in_a_ring_of_pairs_cannot_be_told_apart() -> None:
    ring = pairs(*((rank, (rank + 1) % 6) for rank in range(6)))

    partition = refined(np.zeros(6, dtype=np.int64), ring)

    assert partition.n_cells == 2
    assert not partition.ranks.any()


def test_a_marked_rank_tells_others_apart_by_their_distance() -> None:
    ring = pairs(*((rank, (rank + 1) % 6) for rank in range(6)))

    partition = refined(ints(0, 0, 1, 0, 0, 0), ring)

    ranks = partition.ranks.tolist()
    assert ranks[1] == ranks[3]
    assert ranks[0] == ranks[4]
    assert len(set(ranks)) == 4


def test_who_sends_is_not_who_receives() -> None:
    chain = pairs((0, 1), (1, 2), (2, 0), ends=True)
    apart = pairs((0, 1), (2, 3), ends=True)

    assert refined(np.zeros(3, dtype=np.int64), chain).n_cells == 2
    assert refined(np.zeros(4, dtype=np.int64), apart).ranks.tolist() == [0, 1, 0, 1]


def test_what_splits_instances_splits_the_ranks_in_them() -> None:
    groups = pairs((0, 1), (2, 3), (4, 5))
    partition = refined(np.zeros(6, dtype=np.int64), groups)

    was_split = partition.split(0, scrambled(ints(7, 8, 7)))
    partition.refine()

    assert was_split
    assert partition.ranks.tolist() == [0, 0, 1, 1, 0, 0]
    assert not partition.split(0, scrambled(ints(1, 2, 1)))


def test_ranks_that_take_no_part_keep_out() -> None:
    assert refined(ints(0, -1, 0), pairs((0, 2))).ranks.tolist() == [0, -1, 0]


@given(
    n_ranks=st.integers(2, 12),
    seed=st.integers(0, 999),
    n_pairs=st.integers(0, 14),
    marked=st.integers(0, 11),
)
def test_every_partition_is_equitable_and_not_finer_than_it_must_be(n_ranks: int, seed: int, n_pairs: int, marked: int) -> None:
    generator = np.random.default_rng(seed)
    ends = [tuple(generator.choice(n_ranks, 2, replace=False).tolist()) for _ in range(n_pairs)]
    colours = np.zeros(n_ranks, dtype=np.int64)
    colours[marked % n_ranks] = 1

    partition = refined(colours, pairs(*ends))

    # Ranks of one cell are in as many pairs of each cell as each other.
    seen = [sorted(int(partition.instances[0][place]) for place, pair in enumerate(ends) if rank in pair) for rank in range(n_ranks)]
    by_cell: dict[int, list[list[int]]] = {}
    for rank, cell in enumerate(partition.ranks.tolist()):
        by_cell.setdefault(cell, []).append(seen[rank])
    assert all(each == of_cell[0] for of_cell in by_cell.values() for each in of_cell)
    # Nor are two cells alike in what they are and in what they touch.
    looks = {cell: (int(colours[partition.ranks.tolist().index(cell)]), tuple(of_cell[0])) for cell, of_cell in by_cell.items()}
    assert len(set(looks.values())) == len(looks)


def test_refinement_of_nothing_is_nothing() -> None:
    with pytest.raises(IndexError):
        refined(ints(0), pairs((0, 3)))


def test_what_is_the_same_for_all_splits_nothing() -> None:
    partition = Partition(
        np.arange(4), [Incidence(ranks=np.arange(4), instances=np.array([0, 0, 1, 1]), n_instances=2)], [np.array([0, 1])]
    )

    assert not partition.split(0, np.array([7, 7], dtype=np.uint64))
    assert partition.instances[0].tolist() == [0, 1]
