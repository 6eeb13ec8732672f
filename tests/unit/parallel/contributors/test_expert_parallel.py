"""Exchange of tokens between experts, and its time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.parallel.contributors.expert_parallel import SpreadExperts
from clustersim.parallel.division import divided, place
from clustersim.parallel.expert_shares import expected_nodes
from clustersim.parallel.groups import ExpertGroups, expert_groups
from clustersim.parallel.lower import lower
from clustersim.parallel.training_plan import Offload, Plan
from clustersim.program.program import Program
from clustersim.program.tasks import Collective, Compute, Item, Overlapped, Work
from clustersim.workloads.operators import GroupedGemm
from clustersim.workloads.token_routing import ExpertLoad
from clustersim.workloads.transformer_shape import Experts
from tests.rows import rows
from tests.unit.parallel.factories import LLAMA, chosen, chunk_passes, collectives_of, local_of, make_plan, works_of

S, H = 256, LLAMA.hidden_size
SPARSE = replace(LLAMA, experts=Experts(n_experts=16, top_k=2, intermediate_size=256))
SHARED = replace(SPARSE, experts=Experts(n_experts=16, top_k=2, intermediate_size=256, shared_size=512))
ZIPF = ExpertLoad(kind="zipf")


def plan_of(model: object = SPARSE, **changes: object) -> Plan:
    return make_plan(model, attention="flash", **changes)  # pyright: ignore[reportArgumentType] a model


def groups_of(plan: Plan, stage: int = 0) -> ExpertGroups:
    return expert_groups(plan.strategy, divided(place(plan.strategy)), stage, 0)


def of_experts(items: tuple[Item, ...]) -> list[Collective]:
    return [each for each in collectives_of(items) if each.group.dimension == "ep"]


def test_ranks_that_hold_all_experts_send_to_each_other() -> None:
    groups = groups_of(plan_of(dp=8, ep=4))

    assert rows(groups.whole.members) == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert groups.slices.size == 1


def test_ranks_that_divide_experts_are_neighbours() -> None:
    groups = groups_of(plan_of(dp=4, tp=2, ep=4, sequence_parallel=True))

    assert rows(groups.slices.members) == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert rows(groups.whole.members) == ((0, 2, 4, 6), (1, 3, 5, 7))


def test_tokens_go_to_each_node_once_and_on_inside_it() -> None:
    groups = groups_of(plan_of(dp=8, ep=8, dispatch="per_node", domain_size=4))
    assert groups.between is not None
    assert groups.inside is not None

    assert rows(groups.between.members) == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert rows(groups.inside.members) == ((0, 1, 2, 3), (4, 5, 6, 7))


def test_inside_one_node_tokens_go_straight_to_their_experts() -> None:
    groups = groups_of(plan_of(dp=8, ep=4, dispatch="per_node", domain_size=8))

    assert groups.between is groups.inside is None


MANY = Experts(n_experts=16, top_k=2, intermediate_size=256)
V3 = Experts(n_experts=256, top_k=8, intermediate_size=2048, n_groups=8, topk_groups=4)


@pytest.mark.parametrize(("n_nodes", "expected"), [(1, 1.0), (2, 2 * (1 - 7 / 30)), (16, 2.0)])
def test_experts_drawn_evenly_are_on_so_many_nodes_in_the_mean(n_nodes: int, expected: float) -> None:
    # Of 16 experts two are drawn: of two nodes one has none of them with probability (8 / 16) (7 / 15).
    assert expected_nodes(n_nodes, MANY) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("n_nodes", "drawn"), [(2, 1.97), (4, 3.14), (8, 3.96), (16, 5.74), (32, 6.90)])
def test_nodes_of_a_router_with_groups_are_those_of_random_scores(n_nodes: int, drawn: float) -> None:
    # Means of drawing the scores of DeepSeek-V3's router at random: groups by the sum of their best two, then experts.
    assert expected_nodes(n_nodes, V3) == pytest.approx(drawn, rel=0.08)


def test_a_router_that_takes_few_groups_sends_to_few_nodes() -> None:
    limited = replace(SPARSE, experts=replace(MANY, n_groups=4, topk_groups=1))
    free, bound = (plan_of(model, dp=8, ep=8, dispatch="per_node", domain_size=2) for model in (SPARSE, limited))
    spread = [SpreadExperts(local=local_of(plan), strategy=plan.strategy, groups=groups_of(plan)) for plan in (free, bound)]
    sent = [technique.to_experts()[0].bytes for technique in spread]

    assert sent[0] / sent[1] == pytest.approx(expected_nodes(4, MANY), rel=1e-12)


def test_inside_one_node_a_token_goes_once_to_each_rank_that_holds_some_of_its_experts() -> None:
    copies, once = (plan_of(replace(SPARSE, experts=MANY), dp=4, ep=4, dispatch=how, domain_size=8) for how in ("all_to_all", "per_node"))
    spread = [SpreadExperts(local=local_of(plan), strategy=plan.strategy, groups=groups_of(plan)) for plan in (copies, once)]
    sent = [[each.bytes for each in (*technique.to_experts(), *technique.from_experts())] for technique in spread]

    # Of four ranks with four experts each, a token with two of sixteen needs 4 (1 - (12 / 16) (11 / 15)).
    share = 4 * (1 - 12 / 16 * 11 / 15) / 2
    assert sent[1] == pytest.approx([share * size_bytes for size_bytes in sent[0]], rel=1e-12)


def test_a_layer_sends_tokens_before_and_after_its_experts() -> None:
    items = chunk_passes(plan_of(dp=4, ep=4)).layer_forward(0)
    ops = [item.op if isinstance(item, Collective) else item.name for item in items if isinstance(item, Collective | Work)]

    assert ops == ["attention", "norm_2 to permute", "all_to_all", "expert_sort to expert_unsort", "all_to_all", "unpermute to residual_2"]
    there, back = of_experts(items)
    assert there.bytes == S * 2 * (H * 2 + 4)
    assert back.bytes == S * 2 * H * 2


def test_alone_a_rank_computes_all_experts_without_sending_anything() -> None:
    items = chunk_passes(plan_of()).layer_forward(0)

    assert collectives_of(items) == []
    products = [kernel for work in works_of(items) for kernel in work.kernels if isinstance(kernel, GroupedGemm)]
    assert {len(product.rows) for product in products} == {16}


def test_each_rank_computes_its_experts_for_the_tokens_of_all() -> None:
    items = chunk_passes(plan_of(dp=4, ep=4)).layer_forward(0)
    products = [kernel for work in works_of(items) for kernel in work.kernels if isinstance(kernel, GroupedGemm)]

    assert {product.rows for product in products} == {(S * 2 * 4 // 16,) * 4}


def test_with_an_uneven_load_all_wait_for_the_fullest_rank() -> None:
    items = chunk_passes(plan_of(dp=4, ep=4, expert_load=ZIPF)).layer_forward(0)
    (uneven,) = (item for item in items if isinstance(item, Work) and item.longest)

    rows = [sum(kernel.rows) for kernel in uneven.longest if isinstance(kernel, GroupedGemm)]
    mean = [sum(kernel.rows) for kernel in uneven.kernels if isinstance(kernel, GroupedGemm)]
    assert uneven.dimension == "ep"
    assert min(rows) > 2 * max(mean)


def test_an_uneven_load_fills_the_way_to_the_fullest_rank() -> None:
    even, skewed = (
        of_experts(chunk_passes(plan_of(dp=4, ep=4, expert_load=load)).layer_forward(0))[0].bytes for load in (ExpertLoad(), ZIPF)
    )

    assert skewed > 2 * even


def test_shared_experts_compute_while_tokens_travel() -> None:
    items = chunk_passes(plan_of(SHARED, dp=4, ep=4, overlap_ep=True)).layer_forward(0)
    beside = [item for item in items if isinstance(item, Overlapped)]

    assert [item.works[0].name for item in beside] == ["shared_up to shared_activation", "shared_down"]
    assert len(of_experts(items)) == 2


def test_what_is_overlapped_is_the_same_work() -> None:
    apart, beside = (chunk_passes(plan_of(SHARED, dp=4, ep=4, overlap_ep=overlap)) for overlap in (False, True))
    for one, other in ((apart.layer_forward(0), beside.layer_forward(0)), (apart.layer_backward(0), beside.layer_backward(0))):
        flops = [sum(kernel.flops for work in works_of(items) for kernel in work.kernels) for items in (one, other)]
        assert flops[0] == pytest.approx(flops[1], rel=1e-12)


def test_recomputing_all_experts_sends_their_tokens_again() -> None:
    plain = chunk_passes(plan_of(dp=4, ep=4)).layer_backward(0)
    again = chunk_passes(plan_of(dp=4, ep=4, recompute="selective", recompute_modules=("experts",))).layer_backward(0)

    assert len(of_experts(again)) == len(of_experts(plain)) + 2


def test_the_gradients_of_weights_wait_for_no_token() -> None:
    plan = plan_of(dp=4, ep=4)
    weights = chunk_passes(plan, "weight").layer_backward(0)

    assert of_experts(weights) == []
    assert any(isinstance(kernel, GroupedGemm) for work in works_of(weights) for kernel in work.kernels)


@pytest.mark.parametrize("layout", [{"ep": 2, "etp": 1, "overlap_ep": True}, {"ep": 1, "etp": 1}, {"ep": 2, "etp": 1}])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_shared_experts_are_divided_by_tensor_parallelism_like_any_mlp(layout: dict[str, object], direction: str) -> None:
    halves = chunk_passes(plan_of(SHARED, tp=2, sequence_parallel=True, **layout))
    items = halves.layer_forward(0) if direction == "forward" else halves.layer_backward(0)
    ops = [each.op for each in collectives_of(items) if each.group.dimension == "tp"]

    # Attention and shared experts each gather and scatter once forward; backward their saved inputs are gathered again.
    assert ops.count("reduce_scatter") == 2
    assert ops.count("all_gather") == (2 if direction == "forward" else 4)


def test_one_rank_with_all_experts_waits_for_nobody() -> None:
    items = chunk_passes(plan_of(expert_load=ZIPF)).layer_forward(0)
    rows = [kernel.rows for work in works_of(items) for kernel in work.kernels if isinstance(kernel, GroupedGemm)]

    assert not any(work.longest for work in works_of(items))
    assert max(rows[0]) > 4 * min(rows[0])


def again(plan: Plan) -> tuple[Item, ...]:
    """Return what full recomputation puts before a layer's backward pass."""
    n_own = len(chunk_passes(plan).layer_backward(0, again=False))
    return chunk_passes(plan).layer_backward(0)[:-n_own]


def test_recomputation_that_needs_sums_of_experts_fetches_them() -> None:
    changes: dict[str, object] = {"dp": 4, "ep": 4, "recompute": "full", "recompute_stops_early": True}
    two, four = (again(plan_of(replace(SPARSE, norms_per_layer=norms), **changes)) for norms in (2, 4))

    assert [len(of_experts(items)) for items in (two, four)] == [1, 2]


def awaited_bytes(program: Program) -> float:
    """Return the bytes of exchanges beside which nothing is computed."""
    blocks = (block for task in chosen(program, stream="compute") if isinstance(task.action, Compute) for block in task.action.blocks)
    alone = ((block.repeat, item) for block in blocks for item in block.body if isinstance(item, Collective))
    return sum(repeat * item.bytes for repeat, item in alone if item.group.dimension == "ep")


@pytest.mark.parametrize("changes", [{"offload": Offload(activations="host")}, {"no_sync": False}])
def test_passes_side_by_side_hide_exchanges_also_where_they_are_cut(changes: dict[str, object]) -> None:
    laid = {"pp": 4, "dp": 4, "ep": 4, "schedule": "dualpipe", "global_batch_size": 64}
    whole, cut = (awaited_bytes(lower(plan_of(**laid, **more))) for more in ({}, changes))

    assert 0.0 < cut == pytest.approx(whole, rel=1e-12)
    assert cut < awaited_bytes(lower(plan_of(**{**laid, "schedule": "1f1b"})))
