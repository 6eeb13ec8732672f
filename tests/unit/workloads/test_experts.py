"""The half of a layer that has experts: its parts, what they multiply, what they keep."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from clustersim.workloads.experts import moe_half
from clustersim.workloads.layer import mlp_operators
from clustersim.workloads.operators import Gemm, GroupedGemm, Operator, Stream
from clustersim.workloads.shapes import ExpertShare, Numerics, balanced_rows
from clustersim.workloads.transformer import Transformer
from clustersim.workloads.transformer_shape import Experts
from tests.unit.parallel.factories import LLAMA, layer_parameters, make_shape, traffic_bytes
from tests.unit.workloads.kinds.factories import NUMERICS

ROWS, H, F = 96, 512, 192
EXPERTS = Experts(n_experts=8, top_k=2, intermediate_size=F)
MOE = replace(LLAMA, experts=EXPERTS)
SHARED = replace(MOE, experts=replace(EXPERTS, shared_size=384, shared_gate=True))
EAGER = replace(NUMERICS, kernels="eager", grouped_experts=False)
APART = replace(NUMERICS, grouped_experts=False)
JOINED = replace(NUMERICS, fused_experts=True)
SHARE = ExpertShare(rows=(24,) * 4, intermediate_size=F, dispatched_rows=96, n_ranks=2)


def half(model: Transformer = MOE, numerics: Numerics = NUMERICS) -> dict[str, Operator]:
    return {operator.name: operator for operator in moe_half(model, make_shape(model), numerics).operators}


def test_experts_stand_between_a_permutation_and_its_inverse() -> None:
    names = ["norm_2", "router", "permute", "experts_up", "expert_activation", "experts_down", "unpermute", "residual_2"]

    assert list(half()) == names


def test_shared_experts_follow_the_routed_ones() -> None:
    assert list(half(SHARED))[7:] == ["shared_up", "shared_activation", "shared_down", "shared_gate", "shared_add", "residual_2"]


def test_several_experts_of_several_ranks_sort_what_they_receive() -> None:
    def parts(n_local: int, n_ranks: int) -> tuple[int, int]:
        share = ExpertShare(rows=(24,) * n_local, intermediate_size=F, dispatched_rows=192, n_ranks=n_ranks)
        divided = moe_half(MOE, replace(make_shape(MOE), experts=share), NUMERICS)
        return len(divided.sort), len(divided.unsort)

    assert parts(8, 1) == (0, 0)
    assert parts(1, 8) == (0, 0)
    assert parts(2, 4) == (1, 1)


def test_only_layers_with_experts_have_them() -> None:
    mixed = replace(MOE, experts=replace(EXPERTS, dense_layers=(0, 2)))
    shape = make_shape(mixed)

    names = [{operator.name for operator in mlp_operators(mixed, shape, NUMERICS, layer)} for layer in range(3)]

    assert [("router" in each, "mlp_up" in each) for each in names] == [(False, True), (True, False), (False, True)]


def test_a_token_is_multiplied_by_its_experts_alone() -> None:
    operators = half()

    assert operators["experts_up"].forward_flops == 2 * ROWS * 2 * H * 2 * F
    assert operators["experts_down"].forward_flops == 2 * ROWS * 2 * F * H
    assert operators["router"].forward_flops == 2 * ROWS * H * 8


def test_experts_one_after_the_other_are_joined_by_a_copy() -> None:
    share = ExpertShare(rows=(24,) * 2, intermediate_size=F, dispatched_rows=192, n_ranks=4)
    single = replace(share, rows=(48,), n_ranks=8)

    def experts(of: ExpertShare, numerics: Numerics) -> list[Operator]:
        return list(moe_half(MOE, replace(make_shape(MOE), experts=of), numerics).experts)

    *_, joined = experts(share, APART)
    assert joined.name == "experts_join"
    assert joined.kernels("forward") == joined.kernels("input_gradient") == (Stream(2.0 * 48 * H * 2),)
    # One expert has nothing to be put together with.
    assert [each.name for each in experts(single, APART)] == [each.name for each in experts(share, NUMERICS)]


def test_experts_one_after_the_other_cast_their_rows_apart() -> None:
    narrow = replace(APART, gemm_element_bytes=1.0)
    together, apart = (half(numerics=each)["experts_up"] for each in (replace(narrow, grouped_experts=True), narrow))

    def casts(operator: Operator) -> list[Stream]:
        return [kernel for kernel in operator.kernels("forward") if isinstance(kernel, Stream)]

    assert len(casts(apart)) == 8
    assert sum(each.traffic_bytes for each in casts(apart)) == casts(together)[0].traffic_bytes


def test_rows_of_grouped_experts_in_8_bits_are_copied_to_whole_multiples_and_back() -> None:
    narrow = replace(NUMERICS, gemm_element_bytes=1.0)
    padded = half(numerics=narrow)
    copied = (Stream(2.0 * 24 * 8 * H * 2),)

    assert [name for name in padded if name not in half()] == ["experts_pad", "experts_unpad"]
    for name in ("experts_pad", "experts_unpad"):
        assert padded[name].kernels("forward") == padded[name].kernels("input_gradient") == copied
        assert padded[name].saved_bytes == 0
    # One kernel for all products takes rows that were padded on their way.
    assert "experts_pad" not in half(numerics=replace(narrow, fused_experts=True))


def test_a_router_that_pads_leaves_no_rows_to_copy() -> None:
    narrow = replace(NUMERICS, gemm_element_bytes=1.0)
    copied, padded = (half(numerics=replace(narrow, router_padding=padding)) for padding in (False, True))

    assert copied.keys() - padded.keys() == {"experts_pad", "experts_unpad"}
    assert all(copied[name] == each for name, each in padded.items())


def test_eager_experts_are_one_product_each_and_do_the_same() -> None:
    fused, eager = half()["experts_up"], half(numerics=EAGER)["experts_up"]

    assert fused.kernels("forward") == (GroupedGemm((24,) * 8, 2 * F, H, launches=8),)
    assert eager.kernels("forward") == (Gemm(24, 2 * F, H),) * 8
    assert list(fused.phases) == ["forward", "input_gradient", "weight_gradient"]
    for phase, kernels in fused.phases.items():
        for count in ("flops", "traffic_bytes"):
            assert sum(getattr(kernel, count) for kernel in kernels) == sum(getattr(kernel, count) for kernel in eager.kernels(phase))


def test_backward_experts_multiply_twice_as_much_as_forward() -> None:
    for name in ("experts_up", "experts_down"):
        operator = half()[name]
        assert (
            sum(kernel.flops for kernel in operator.kernels("input_gradient") + operator.kernels("weight_gradient"))
            == 2 * operator.forward_flops
        )


def test_a_weight_gradient_sums_over_the_rows_of_its_expert() -> None:
    (kernel,) = half()["experts_up"].kernels("weight_gradient")

    assert isinstance(kernel, GroupedGemm)
    assert kernel.products == (Gemm(H, 2 * F, 24, output_bytes=4.0, accumulates=True),) * 8


def divided(model: Transformer = MOE, numerics: Numerics = NUMERICS, share: ExpertShare = SHARE) -> dict[str, Operator]:
    """Return the operators of one of two ranks that divide the experts."""
    return {each.name: each for each in moe_half(model, replace(make_shape(model), experts=share), numerics).operators}


def launches(kernels: Iterable[object]) -> int:
    return sum(kernel.launches if isinstance(kernel, (Stream, GroupedGemm)) else 1 for kernel in kernels)


def test_products_beside_each_other_are_issued_one_by_one_and_those_of_one_kernel_at_once() -> None:
    some_idle = replace(SHARE, rows=(24, 0, 48, 24))

    for name in ("experts_up", "experts_down"):
        beside, joined = (divided(numerics=each, share=some_idle)[name].phases.values() for each in (NUMERICS, JOINED))
        assert ([launches(kernels) for kernels in beside], [launches(kernels) for kernels in joined]) == ([3] * 3, [1] * 3)


@pytest.mark.parametrize(("share", "counts"), [({"n_ranks": 1}, 3), ({}, 4), ({"counts_first": True}, 13)])
def test_hosts_learn_how_many_rows_go_where(share: dict[str, int], counts: int) -> None:
    permute = divided(share=replace(SHARE, **share))["permute"]

    counted, moved = permute.kernels("forward")
    assert (launches((counted,)), launches((moved,))) == (counts, 4)
    assert launches(permute.kernels("input_gradient")) == (2 if counts == 13 else 1)


def awaited(operator: Operator) -> list[bool]:
    """Return for each kernel of an operator forward whether the host waits for it."""
    return [isinstance(kernel, Stream) and kernel.awaited for kernel in operator.kernels("forward")]


@pytest.mark.parametrize("share", [{}, {"n_ranks": 1}, {"fixed_rows": True}])
def test_hosts_wait_for_numbers_of_rows_that_they_do_not_know(share: dict[str, int]) -> None:
    assert awaited(divided(share=replace(SHARE, **share))["permute"]) == ["fixed_rows" not in share, False]


def test_hosts_wait_behind_the_limits_of_an_activation() -> None:
    limited = replace(MOE, experts=replace(EXPERTS, clamped=True))

    assert awaited(divided(limited)["expert_activation"]) == [True, False, False]
    assert not any(awaited(divided(limited, JOINED)["expert_activation"]))


def test_a_second_bias_is_added_in_fp32() -> None:
    biased = replace(MOE, experts=replace(EXPERTS, bias=True))
    operators = divided(biased)
    bias, numbers = operators["experts_bias"], 96 * H

    assert list(operators)[list(operators).index("experts_down") + 1] == "experts_bias"
    # Times scores 4, onto rows 2 + 4 + 4, joined 4 + 4, cast back 4 + 2; the same backward, and two products that are summed up. What
    # mixes 16 and 32 bits counts twice: 4 and 10 bytes forward, and 6 and 8 backward.
    assert traffic_bytes(bias.kernels("forward")) == numbers * (28 + 14)
    assert traffic_bytes(bias.kernels("input_gradient")) == numbers * (40 + 14)
    assert (launches(bias.kernels("forward")), launches(bias.kernels("input_gradient"))) == (10, 22)
    assert "experts_bias" not in divided(MOE)
    assert "experts_bias" not in divided(biased, JOINED)


def test_biases_are_parameters_wherever_they_are_added() -> None:
    biased = replace(MOE, experts=replace(EXPERTS, bias=True))
    beside, joined = (sum(each.parameters for each in divided(biased, numerics).values()) for numerics in (NUMERICS, JOINED))

    assert beside == joined == sum(each.parameters for each in divided(MOE).values()) + 4 * (2 * F + H)


def test_limits_are_kernels_before_the_activation() -> None:
    limited = replace(MOE, experts=replace(EXPERTS, clamped=True))
    plain, more = divided()["expert_activation"], divided(limited)["expert_activation"]
    both_halves = 96 * 2 * F * 2

    # Each half read and written, then both; backward gradients and inputs read, gradients written, then both.
    assert traffic_bytes(more.kernels("forward")) - traffic_bytes(plain.kernels("forward")) == 4 * both_halves
    assert traffic_bytes(more.kernels("input_gradient")) - traffic_bytes(plain.kernels("input_gradient")) == 5 * both_halves
    assert (
        launches(more.kernels("forward")) - launches(plain.kernels("forward"))
        == launches(more.kernels("input_gradient")) - launches(plain.kernels("input_gradient"))
        == 3
    )
    # What the limits leave is kept, unless it is made again.
    assert more.saved_bytes - plain.saved_bytes == more.selective_bytes == both_halves
    assert divided(limited, JOINED)["expert_activation"] == divided(MOE, JOINED)["expert_activation"]


def test_joined_kernels_leave_rows_where_they_are_wanted() -> None:
    beside, joined = divided(), divided(numerics=JOINED)

    assert set(beside) - set(joined) == {"expert_sort", "expert_unsort"}
    assert joined["unpermute"].kernels("forward") == joined["unpermute"].kernels("input_gradient") == ()
    # The map alone is read.
    assert traffic_bytes(joined["permute"].kernels("forward")) == ROWS * 8 + 96 * 16


def test_a_joined_activation_is_written_once_and_its_input_read_again() -> None:
    narrow = replace(JOINED, gemm_element_bytes=1.0)
    activation, down = (divided(numerics=narrow)[name] for name in ("expert_activation", "experts_down"))

    assert traffic_bytes(activation.kernels("forward")) == 96 * F + 96 * 4
    assert traffic_bytes(activation.kernels("input_gradient")) == 96 * 2 * F * 2 + 2 * 96 * 4
    assert launches((*activation.kernels("forward"), *activation.kernels("input_gradient"))) == 0
    # It comes in 8 bits, and so does the gradient of the first product.
    assert not any(
        isinstance(each, Stream) for each in (*down.kernels("forward"), *divided(numerics=narrow)["experts_up"].kernels("input_gradient"))
    )
    assert any(isinstance(each, Stream) for each in down.kernels("input_gradient"))


def test_one_rank_with_all_experts_puts_rows_in_order_itself() -> None:
    alone = replace(SHARE, n_ranks=1)

    assert divided(numerics=JOINED, share=alone)["unpermute"] == divided(share=alone)["unpermute"]


def test_an_expert_without_rows_reads_no_weight() -> None:
    used, idle = GroupedGemm((5, 7), 16, 32), GroupedGemm((5, 0, 7, 0), 16, 32)

    assert idle.products == used.products
    assert (idle.flops, idle.traffic_bytes) == (used.flops, used.traffic_bytes)


def test_kept_are_the_normalised_input_and_what_each_row_needs() -> None:
    operators = half()
    sent = 2 * ROWS

    assert operators["norm_2"].saved_bytes == 2 * ROWS * H
    assert operators["router"].saved_bytes == 2 * ROWS * H + 4 * ROWS * 8
    assert operators["permute"].saved_bytes == ROWS * 8 + 8 * sent
    assert operators["experts_up"].saved_bytes == 2 * sent * H
    assert operators["expert_activation"].saved_bytes == 2 * sent * 2 * F + 4 * sent
    assert operators["experts_down"].saved_bytes == 2 * sent * F
    assert operators["unpermute"].saved_bytes == 0


def test_shared_experts_keep_no_input_of_their_own() -> None:
    operators = half(SHARED)

    assert operators["shared_up"].saved_bytes == 0
    assert operators["shared_down"].saved_bytes == 2 * ROWS * 384
    assert operators["shared_gate"].saved_bytes == 2 * ROWS * H


def test_the_permutation_moves_every_row_once_for_each_of_its_experts() -> None:
    operators = half()
    sent, moved = 2 * ROWS, 2 * H

    assert traffic_bytes(operators["permute"].kernels("forward")) >= 2 * sent * moved
    assert traffic_bytes(operators["permute"].kernels("forward")) <= 2 * sent * moved * 1.05
    assert traffic_bytes(operators["unpermute"].kernels("forward")) == (sent + ROWS) * moved + 8 * sent


def test_scores_are_fused_into_the_activation_or_a_pass_of_their_own() -> None:
    (swiglu, scores), (_, apart) = (half(numerics=numerics)["expert_activation"].kernels("forward") for numerics in (NUMERICS, EAGER))

    assert swiglu == Stream(3 * 2 * 192 * F)
    assert scores == Stream(4.0 * 192, launches=0)
    assert apart == Stream(4.0 * 192 + 2 * 2 * 192 * F, launches=1)


def test_what_only_the_sum_needs_is_not_recomputed() -> None:
    needless = [operator.name for operator in half(SHARED).values() if operator.needless]

    # A gate scales what the shared experts give, so that its gradient needs that.
    assert needless == ["experts_down", "unpermute", "shared_add", "residual_2"]
    assert [operator.name for operator in half(replace(MOE, norms_per_layer=4)).values() if operator.needless] == []


def test_parameters_of_a_mixture_are_those_of_its_experts_and_its_router() -> None:
    experts, shared = (layer_parameters(model) - 2 * H - 3 * H * H for model in (MOE, SHARED))

    assert experts == 8 * 3 * H * F + 8 * H
    assert shared == experts + 3 * H * 384 + H


def test_active_are_all_but_the_experts_that_a_token_does_not_meet() -> None:
    mixed = replace(MOE, experts=replace(EXPERTS, dense_layers=(0,)))

    assert mixed.n_parameters - mixed.n_active == 15 * 6 * 3 * H * F
    assert replace(mixed, n_mtp=1).n_active == mixed.n_active
    assert LLAMA.n_active == LLAMA.n_parameters


@pytest.mark.parametrize(("total", "n_experts"), [(10, 4), (3, 8), (0, 2), (64, 64)])
def test_balanced_rows_lose_none_and_differ_by_one_at_most(total: int, n_experts: int) -> None:
    rows = balanced_rows(total, n_experts)

    assert (len(rows), sum(rows)) == (n_experts, total)
    assert max(rows) - min(rows) <= 1
