"""Memory of expert and context parallelism in the closed forms of the theory pages: buffers, and the place with most rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.parallel.stage import stage_of
from clustersim.parallel.training_plan import Plan
from clustersim.program.holds import BACKWARD_PASS, FORWARD_TO_BACKWARD
from clustersim.workloads.token_routing import ExpertLoad
from clustersim.workloads.transformer_shape import Experts
from tests.unit.parallel.factories import LLAMA, held, local_of, make_plan

HIDDEN, KV_WIDTH, HEADS_WIDTH = 512, 4 * 64, 8 * 64
S, TOP_K, WIDTH = 256, 2, 96
SPARSE = replace(LLAMA, experts=Experts(n_experts=8, top_k=TOP_K, intermediate_size=WIDTH))
ZIPF, DIRICHLET = ExpertLoad(kind="zipf", skew=1.0), ExpertLoad(kind="dirichlet", skew=0.5, seed=3)


def sparse(**changes: object) -> Plan:
    return make_plan(SPARSE, **{"dp": 4, "ep": 4, "attention": "flash", "recompute": "full", **changes})


def test_an_exchange_has_a_buffer_to_send_from_and_one_to_receive_into() -> None:
    # Every rank sends its s k rows and receives as many, of h numbers.
    assert stage_of(sparse(), 0).activations.expert_buffer_bytes(0) == 2 * S * TOP_K * HIDDEN * 2
    assert stage_of(sparse(ep=1), 0).activations.expert_buffer_bytes(0) == 0.0
    assert stage_of(make_plan(dp=4), 0).activations.expert_buffer_bytes(0) == 0.0


def test_a_token_that_goes_once_to_each_node_is_sent_once_to_each() -> None:
    plan = sparse(dispatch="per_node", domain_size=2)

    # Two nodes, of which a token with two of eight experts needs 2 (1 - (4 / 8) (3 / 7)) in the mean.
    assert stage_of(plan, 0).activations.expert_buffer_bytes(0) == pytest.approx(S * (11 / 7 + TOP_K) * HIDDEN * 2, rel=1e-12)


@pytest.mark.parametrize(
    ("kind", "blocks"),
    [
        # Of keys and values, and of their gradients: all of them; or one in use and one that comes in.
        ("all_gather", 2 * 4),
        ("ring", 2 * 2),
    ],
)
def test_context_parallelism_holds_blocks_of_keys_and_values(kind: str, blocks: int) -> None:
    plan = make_plan(LLAMA, cp=4, context_parallel=kind, attention="flash", seq_length=1024)

    assert stage_of(plan, 0).activations.context_buffer_bytes() == blocks * 256 * 2 * KV_WIDTH * 2


def test_ulysses_holds_queries_keys_and_values_before_and_behind_the_exchange() -> None:
    plan = make_plan(LLAMA, cp=4, context_parallel="ulysses", attention="flash", seq_length=1024)

    assert stage_of(plan, 0).activations.context_buffer_bytes() == 2 * 256 * (HEADS_WIDTH + 2 * KV_WIDTH) * 2


def test_buffers_are_there_while_a_layer_goes_back() -> None:
    plan = make_plan(LLAMA, cp=4, pp=2, context_parallel="all_gather", attention="flash", seq_length=1024)

    assert held(plan, interval=BACKWARD_PASS) == held(plan, owner="context") == stage_of(plan, 0).activations.context_buffer_bytes()


def test_even_experts_are_alike_at_all_places() -> None:
    plan = sparse()

    assert stage_of(plan, 0).activations.fullest_place(stage_of(plan, 0).chunks) is None
    assert stage_of(sparse(expert_load=ZIPF, ep=1), 0).activations.fullest_place(stage_of(plan, 0).chunks) is None


@pytest.mark.parametrize("load", [ZIPF, DIRICHLET])
@pytest.mark.parametrize("pp", [1, 2])
def test_the_fullest_place_keeps_its_own_rows(load: ExpertLoad, pp: int) -> None:
    changes: dict[str, object] = {"recompute": "none", "pp": pp}
    even, uneven = sparse(**changes), sparse(expert_load=load, **changes)
    for stage in range(pp):
        (chunk,) = stage_of(uneven, stage).chunks
        received = [sum(local_of(uneven).expert_spread.dispatch(layer).received[place] for layer in chunk.layers) for place in range(4)]
        mean = sum(received) / 4

        # Of each row: itself, the two factors, their product, its score. Where it came from is kept by who sent it.
        row_bytes = 2 * HIDDEN + 2 * 2 * WIDTH + 2 * WIDTH + 4
        more = held(uneven, stage, interval=FORWARD_TO_BACKWARD) - held(even, stage, interval=FORWARD_TO_BACKWARD)
        assert stage_of(uneven, 0).activations.fullest_place([chunk]) == received.index(max(received))
        assert more == pytest.approx((max(received) - mean) * row_bytes, rel=1e-9)
