from __future__ import annotations

import numpy as np
import pytest

from clustersim.collectives.library import MOST_FLOWS, MOST_RANKS, laid, sent
from clustersim.collectives.pattern import Grouping, Pattern, grouping
from clustersim.collectives.ring import RINGS
from clustersim.collectives.sharp import SHARP
from clustersim.errors import DomainError
from clustersim.topology.wired import Cluster
from tests.unit.collectives.execution import nodes_of


def groups_of(cluster: Cluster, n_groups: int, size: int) -> Grouping:
    return grouping(cluster, np.arange(n_groups * size, dtype=np.int64).reshape(n_groups, size))


def ring(cluster: Cluster, groups: Grouping, *, spreads: bool = False) -> Pattern:
    return laid(RINGS["all_reduce"].lay, cluster, groups, spreads=spreads)


def test_the_same_groups_on_the_same_cluster_are_laid_once() -> None:
    cluster = nodes_of(8, 2)

    assert ring(cluster, groups_of(cluster, 2, 8)) is ring(cluster, groups_of(cluster, 2, 8))


def test_other_groups_and_other_clusters_are_laid_anew() -> None:
    cluster, other = nodes_of(8, 2), nodes_of(8, 2)
    of_eight = ring(cluster, groups_of(cluster, 2, 8))

    assert ring(cluster, groups_of(cluster, 4, 4)) is not of_eight
    assert ring(other, groups_of(other, 2, 8)) is not of_eight


def test_what_is_kept_is_what_the_algorithm_lays() -> None:
    cluster = nodes_of(8, 2)
    groups = groups_of(cluster, 4, 4)

    ((kept,),), ((made,),) = ring(cluster, groups).phases, RINGS["all_reduce"].lay(cluster, groups).phases

    assert kept.route_set.link_ids.tolist() == made.route_set.link_ids.tolist()
    assert kept.route_set.flows.tolist() == made.route_set.flows.tolist()


def test_sends_over_the_same_pairs_are_laid_once() -> None:
    cluster, pairs = nodes_of(8, 2), np.array([[0, 8], [1, 9]], dtype=np.int64)

    assert sent(cluster, pairs) is sent(cluster, pairs.copy())
    assert sent(cluster, pairs) is not sent(cluster, pairs[:, ::-1])


def test_large_clusters_and_groups_are_not_kept() -> None:
    wide, large = nodes_of(8, MOST_RANKS // 8), nodes_of(8, MOST_RANKS // 8 + 1)
    most = int(MOST_FLOWS**0.5) + 1

    assert ring(wide, groups_of(wide, 1, most)) is ring(wide, groups_of(wide, 1, most))
    assert ring(wide, groups_of(wide, 1, most), spreads=True) is not ring(wide, groups_of(wide, 1, most), spreads=True)
    assert ring(wide, groups_of(wide, 2, MOST_FLOWS)) is not ring(wide, groups_of(wide, 2, MOST_FLOWS))
    assert ring(large, groups_of(large, 2, 8)) is not ring(large, groups_of(large, 2, 8))


def test_what_cannot_run_is_refused_each_time() -> None:
    cluster = nodes_of(8, 1)

    for _ in range(2):
        with pytest.raises(DomainError):
            laid(SHARP.lay, cluster, groups_of(cluster, 1, 8))
