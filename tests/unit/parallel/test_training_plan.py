from __future__ import annotations

from tests.unit.parallel.factories import make_plan


def test_micro_batches_are_what_one_replica_works_through() -> None:
    assert make_plan(global_batch_size=48, micro_batch_size=2, dp=4).n_micro_batches == 6


def test_model_parallelism_does_not_change_the_number_of_micro_batches() -> None:
    assert make_plan(global_batch_size=48, tp=4, pp=2).n_micro_batches == 48


def test_ranks_are_the_product_of_the_degrees() -> None:
    assert make_plan(dp=2, tp=4, pp=8, cp=3).n_ranks == 192


def test_expert_parallelism_adds_no_ranks() -> None:
    assert make_plan(dp=4, ep=2).n_ranks == 4
