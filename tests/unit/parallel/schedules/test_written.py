from __future__ import annotations

import pytest

from clustersim.errors import DomainError
from clustersim.parallel.schedules import SCHEDULES
from clustersim.parallel.schedules.order import backward, forward, input_gradient, side_by_side, weight_gradient
from clustersim.parallel.schedules.places import looped, v_shaped
from clustersim.parallel.schedules.written import read_schedule, written


@pytest.mark.parametrize("name", list(SCHEDULES))
def test_what_is_written_can_be_read_again(name: str) -> None:
    schedule = SCHEDULES[name]
    v = schedule.n_chunks or 2
    orders, places = schedule.orders(4, 8, v), schedule.layout(4, v)

    read = read_schedule(written(orders, places))

    assert (read.orders, read.places, read.n_micro_batches) == (orders, places, 8)
    assert [[step.beside_next for step in order] for order in read.orders] == [[step.beside_next for step in order] for order in orders]
    assert read.splits == any(step.kind == "W" for order in orders for step in order)


def test_cells_name_part_of_the_model_what_is_done_and_micro_batch() -> None:
    split = (forward(0), input_gradient(0), weight_gradient(0))
    pair = (forward(0), forward(1), *side_by_side(forward(2), backward(0)))

    assert written((split, split), looped(2, 1)) == "0F0,0I0,0W0\n1F0,1I0,1W0\n"
    assert written((pair,), looped(1, 1)) == "0F0,0F1,(0F2;0B0)OVERLAP_F_B\n"


def test_waits_communication_and_blanks_are_passed_over() -> None:
    lowered = "\ufeff0UNSHARD,0F0,0SEND_F0,,0RECV_B0, 0I0 ,0W0,0REDUCE_GRAD,0RESHARD\r\n1RECV_F0,1F0,1B0,1SEND_B0\r\n"

    read = read_schedule(lowered)

    assert read.orders == ((forward(0), input_gradient(0), weight_gradient(0)), (forward(0), backward(0)))


def test_stages_of_the_file_may_lie_in_a_v() -> None:
    read = read_schedule("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n")

    assert read.places == v_shaped(2, 2)
    assert read.orders[0] == (forward(0, 0), forward(0, 1), backward(0, 1), backward(0, 0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0F0,0B0\n1F0,1X0\n", "rank 1, cell 2: '1X0' is not a pass"),
        ("0F0,0B0\n1F0,SEND\n", "rank 1, cell 2: 'SEND' is not a pass"),
        ("", "there are no rows"),
        (",,\n1F0,1B0\n", "rank 0 has no passes"),
        ("0F0,0B0\n1F0\n", "rank 1: 1B0 is missing"),
        ("0F0,0I0\n1F0,1B0\n", "rank 0: 0W0 is missing"),
        ("0F0,0F1,0B0,0B1\n1F0,1B0\n", "rank 1: 1F1 is missing"),
        ("0F0,0F0,0B0\n1F0,1B0\n", "rank 0, cell 2: 0F0 stands already in cell 1"),
        ("0F0,0B0,0W0\n1F0,1B0\n", "rank 0, cell 3: 0W0, a part of 0B0, stands already in cell 2"),
        ("0F0,0I0,0B0\n1F0,1B0\n", "rank 0, cell 3: 0B0, of which 0I0 is a part and stands already in cell 2"),
        ("0F0,0B0\n2F0,2B0\n", "stage 1 is on no rank"),
        ("0F0,0B0,2F0,2B0\n1F0,1B0\n", "rank 0 has 2 stages of the file, and rank 1 has 1"),
        ("0F0,0B0\n0F1,0B1\n", "stage 0 is on ranks 0 and 1"),
        (
            "(0F0;0W0)OVERLAP_F_B\n1F0,1B0\n",
            "rank 0, cell 1: '(0F0;0W0)OVERLAP_F_B' is not a forward pass beside one that goes back",
        ),
        (
            "0B0,0F0\n1F0,1B0\n",
            "rank 0, cell 1: 0B0 waits for 0F0 of rank 0, cell 2, which comes later or waits for it",
        ),
        (
            "0F0,,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n",
            "rank 0, cell 3: 0B0 waits for 1B0 of rank 1, cell 4, which comes later or waits for it",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_rank_and_cell(text: str, message: str) -> None:
    with pytest.raises(DomainError) as caught:
        read_schedule(text)

    assert caught.value.message == message
    assert caught.value.hint


def test_a_micro_batch_of_two_copies_stays_in_its_own() -> None:
    orders = SCHEDULES["dualpipe"].orders(2, 4, 1)
    text = written(orders, SCHEDULES["dualpipe"].layout(2, 1))

    with pytest.raises(DomainError, match="goes through the other copy of stage"):
        read_schedule(text.replace("0F0", "0F3", 1))
