"""Documents that are packed into sequences and attend to themselves alone."""

from __future__ import annotations

from dataclasses import replace
from math import exp, sqrt

import numpy as np
import pytest

from clustersim.parallel.training_plan import Plan
from clustersim.workloads.operators import FlashAttention, Operator
from clustersim.workloads.shapes import Documents, lognormal_sigma
from clustersim.workloads.transformer_shape import Window
from tests.unit.parallel.factories import LLAMA, flops_of, local_of, make_plan

S, L = 256, 16
VARIED = Documents(40, 80)


def packed(documents: Documents | None, **changes: object) -> Plan:
    return make_plan(LLAMA, **{"document_tokens": documents, "attention": "flash", **changes})


def attention(plan: Plan) -> Operator:
    return next(each for each in local_of(plan).layer(0) if each.role == "core_attention")


def lengths(count: int, documents: Documents = VARIED) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    assert documents.p90 is not None
    sigma = lognormal_sigma(documents.mean, documents.p90)
    drawn = np.random.default_rng(1).lognormal(np.log(documents.mean) - sigma**2 / 2, sigma, count)
    return np.minimum(drawn, S)


@pytest.mark.parametrize("length", [16, 64, 256, 1000])
def test_attention_of_equal_documents_is_that_of_as_many_short_sequences(length: int) -> None:
    short = min(length, S)
    long_ones = flops_of(packed(Documents(length)))
    many = flops_of(make_plan(LLAMA, attention="flash", seq_length=short, global_batch_size=16 * S // short))

    assert (long_ones.model, long_ones.masked) == (many.model, many.masked)


def test_a_document_for_each_sequence_changes_nothing() -> None:
    assert attention(packed(Documents(S))).forward_flops == attention(packed(None)).forward_flops


def test_what_is_no_attention_does_not_change() -> None:
    one, other = (local_of(packed(documents)).layer(0) for documents in (None, Documents(32)))

    assert [each.name for each, also in zip(one, other, strict=True) if each != also] == ["attention"]


def test_a_token_of_lognormal_documents_is_in_one_longer_than_the_mean() -> None:
    sigma = lognormal_sigma(40, 80)

    assert VARIED.seen(10**9) == pytest.approx(40 * exp(sigma**2))


def test_longer_documents_are_cut_to_a_sequence() -> None:
    drawn = lengths(1_000_000)

    assert VARIED.seen(S) == pytest.approx(np.square(drawn).mean() / drawn.mean(), rel=0.01)


@pytest.mark.parametrize("documents", [Documents(40), Documents(40, 40)])
def test_equal_documents_have_no_spread(documents: Documents) -> None:
    assert documents.spread(S, 1000) == 0.0
    assert documents.seen(S) == 40


def test_the_work_of_many_tokens_spreads_as_drawn_documents_do() -> None:
    tokens = 64 * S
    drawn, works = lengths(4_000_000), list[float]()
    ends = np.cumsum(drawn)
    borders = np.searchsorted(ends, np.arange(tokens, ends[-1], tokens))
    works = [float(np.square(part).sum()) for part in np.split(drawn, borders)[1:-1]]

    assert VARIED.spread(S, tokens) == pytest.approx(float(np.std(works) / np.mean(works)), rel=0.03)


def test_replicas_wait_for_the_one_with_most_work_which_no_count_of_flops_sees() -> None:
    one, many = packed(VARIED, dp=1, global_batch_size=16), packed(VARIED, dp=8, global_batch_size=128)
    kernels = [attention(plan).kernels("forward")[0] for plan in (one, many)]

    assert all(isinstance(kernel, FlashAttention) for kernel in kernels)
    assert kernels[1].flops > kernels[0].flops
    assert flops_of(many).model == pytest.approx(8 * flops_of(one).model)


def test_the_spread_falls_with_the_root_of_the_sequences_between_two_waits() -> None:
    excess = [
        (shape.busiest / shape.mean - 1) * sqrt(sequences)
        for changes, sequences in (({"zero_stage": 3}, 1), ({}, 4), ({"global_batch_size": 128}, 16))
        if (shape := local_of(packed(VARIED, **{"dp": 8, "global_batch_size": 32, **changes})).whole.packed)
    ]

    assert excess == pytest.approx([excess[0]] * 3)


@pytest.mark.parametrize("kind", ["ring", "all_gather", "ulysses"])
def test_the_ranks_of_a_sequence_share_the_work_of_each_document(kind: str) -> None:
    whole, parts = packed(Documents(64)), packed(Documents(64), cp=4, context_parallel=kind)
    done = [
        sum(each.flops * each.done_fraction for each in attention(plan).kernels("forward") if isinstance(each, FlashAttention))
        for plan in (whole, parts)
    ]

    assert 4 * attention(parts).forward_flops == attention(whole).forward_flops
    assert 4 * done[1] == pytest.approx(done[0])


def test_a_window_within_a_document_counts_and_a_longer_one_does_not() -> None:
    narrow, wide = (replace(packed(Documents(64)), model=replace(LLAMA, window=Window(tokens=tokens))) for tokens in (32, 128))

    assert attention(wide).forward_flops == attention(packed(Documents(64))).forward_flops
    assert attention(narrow).forward_flops == attention(packed(Documents(64))).forward_flops / 2
