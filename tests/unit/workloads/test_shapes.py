from __future__ import annotations

from clustersim.parallel.shard import numerics
from tests.unit.parallel.factories import NUMERICS, make_plan, make_shape


def test_products_work_on_all_tokens_of_the_micro_batch() -> None:
    assert make_shape(batch=3, seq_length=32).rows == 96


def test_rows_of_products_do_not_shrink_with_the_sequence_rows() -> None:
    assert make_shape(batch=3, seq_length=32, sequence_rows=12).rows == 96


def test_the_shape_of_the_factory_is_that_of_an_undivided_plan() -> None:
    assert numerics(make_plan().training) == NUMERICS
