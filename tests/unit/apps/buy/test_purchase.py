"""Clusters to choose from: their order, break-even prices and batches."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.apps.buy.offer_order import Answer, answered, offers_page
from clustersim.apps.buy.purchase import CONDITIONS, NO_FAILURES, Request, read_nics, read_option
from clustersim.apps.plan.space import adapted_batch
from clustersim.errors import ScenarioError
from clustersim.report.plots.offers import OfferBar, draw_offers

SMALL = ("tp=1", "pp=1", "cp=1", "recompute=none", "zero_stage=1", "micro_batch_size=1")
SETTINGS = ("training.global_batch_size=64", "training.seq_length=1024")


def asked(*options: str, **changes: object) -> Answer:
    found = tuple(read_option(text) for text in options)
    return answered(replace(Request(model="llama3.2-1b", tokens=1e11, options=found, overrides=SETTINGS, limits=SMALL), **changes))


@pytest.fixture(scope="module")
def answer() -> Answer:
    return asked("1 dgx-h100", "2 dgx-a100-80g", "3 dgx-h100")


def test_the_cheapest_stands_first(answer: Answer) -> None:
    costs = [each.figures.usd for each in answer.ranked]

    assert answer.by_cost
    assert None not in costs
    assert costs == sorted(costs, key=lambda cost: cost or 0.0)
    assert answer.tables()[0].heading == "The order turns on"
    assert any("overlap_tp gemm_chunks (recipes with Transformer Engine)" in line for line in answer.notes())
    assert all("usual_settings" in [flag.code for flag in each.flags] for each in answer.found)


def test_an_option_at_its_break_even_price_costs_as_much_as_the_cheapest(answer: Answer) -> None:
    even = answer.break_evens()[0]
    assert even.undecided_usd_per_gpu_hour is not None
    assert even.undecided_usd_per_gpu_hour[0] < even.usd_per_gpu_hour < even.undecided_usd_per_gpu_hour[1]

    again = asked(even.against, f"{even.name} at {even.usd_per_gpu_hour!r} USD/h")

    first, second = (each.figures.usd for each in again.ranked)
    assert first == pytest.approx(second, rel=1e-9)
    assert len(again.undecided) == 1


def test_a_batch_that_the_gpus_do_not_divide_is_adapted_and_told(answer: Answer) -> None:
    adapted = {each.option.name: each.asked.space.batch for each in answer.found}

    assert adapted == {"1 dgx-h100": 64, "2 dgx-a100-80g": 64, "3 dgx-h100": 72}
    assert "3 dgx-h100: the batch is 72 and not 64, which 24 GPUs do not divide" in answer.notes()


def test_a_batch_that_nobody_gave_is_assumed_of_all_options_alike() -> None:
    found = asked("1 dgx-h100", "3 dgx-h100", overrides=("training.seq_length=1024",))

    assert [line.partition(" is given")[0] for line in found.notes() if "no batch" in line] == ["assumed: no batch"]


def test_failures_make_a_training_longer(answer: Answer) -> None:
    for offer in answer.found:
        assert offer.goodput_fraction is not None
        assert offer.figures.time_s > offer.others[NO_FAILURES].time_s
        assert offer.figures.time_s == pytest.approx(offer.others[NO_FAILURES].time_s / offer.goodput_fraction, rel=0.01)
        assert set(offer.others) <= set(CONDITIONS)


def test_without_a_price_of_all_the_order_is_that_of_time_and_no_cost_is_zero() -> None:
    found = asked("1 dgx-h100", "1 dgx-b300")

    assert not found.by_cost
    assert found.headline() == "Not decided which is fastest: 1 dgx-b300 or 1 dgx-h100, within the error bars"
    assert found.lines()[0].startswith("1 dgx-b300, first by time: ")
    assert "no price" in found.lines()[0]
    assert {each.figures.usd for each in found.found if each.option.node == "dgx-b300"} == {None}
    assert [each.now_usd_per_gpu_hour for each in found.break_evens()] == [None]


@pytest.mark.parametrize(("times", "decided"), [(1.05, False), (4.0, True)])
def test_the_fastest_is_called_so_as_far_as_the_error_bars_tell(answer: Answer, times: float, decided: bool) -> None:
    cheap, fast, *_ = answer.of_options
    dear = replace(fast, figures=replace(fast.figures, time_s=cheap.figures.time_s / times, usd=10.0 * (cheap.figures.usd or 0.0)))

    line = replace(answer, found=(cheap, dear)).lines()[0]

    assert f"; the fastest is {dear.name}: " in line
    assert (f"not decided against {cheap.name}" not in line) is decided


def test_a_budget_of_less_than_a_step_is_told_what_it_may_mean() -> None:
    with pytest.raises(ScenarioError, match="15 tokens are fewer than one step has") as caught:
        asked("1 dgx-h100", "2 dgx-h100", tokens=15.0)

    assert caught.value.hint == "did you mean 15T?"


def test_each_bandwidth_of_adapters_is_planned_for() -> None:
    found = asked("1 dgx-h100", "2 dgx-h100", nics=("100Gbit/s", "400Gbit/s"))

    times = {each.name: each.figures.time_s for each in found.found}
    assert times["2 dgx-h100, 100Gbit/s"] > times["2 dgx-h100, 400Gbit/s"]
    assert times["1 dgx-h100, 100Gbit/s"] == times["1 dgx-h100, 400Gbit/s"]
    assert set(found.best_of_nics()) == {"100Gbit/s", "400Gbit/s"}
    assert "rents are the same for all adapters: " in " ".join(found.notes())


def test_an_option_says_why_its_layout_is_not_the_fastest(answer: Answer) -> None:
    found = replace(answer, found=(replace(answer.found[0], choice="the fastest offloads"),))

    assert "'choice': 'the fastest offloads'" in str(found.to_dict()["offers"])


def test_what_runs_nowhere_is_an_answer() -> None:
    found = asked("1 pcie-rtx4090", "2 pcie-rtx4090", model="llama3-70b")

    assert (found.best, len(found.missed)) == (None, 2)
    assert found.headline() == "none: the model runs on none of these clusters in any layout"
    assert not [*found.lines(), *found.tables()]
    assert found.to_dict()["best"] is None


def test_the_page_has_answer_picture_and_scenario(answer: Answer) -> None:
    page = offers_page(answer)

    assert answer.headline() in page
    assert "<svg" in page or "image/svg+xml" in page
    assert "best.yaml" in page


def test_an_offer_without_a_price_has_no_bar() -> None:
    bars = tuple(OfferBar(name=name, days=2.0, usd=usd, least_fraction=0.9, most_fraction=1.2) for name, usd in (("a", 1e6), ("b", None)))

    ax = draw_offers("f", "s", bars)

    days, cost = ax.child_axes
    assert (len(days.patches), len(cost.patches)) == (2, 1)


@given(st.integers(1, 4096), st.integers(1, 4096))
def test_an_adapted_batch_has_the_odd_factors_of_the_ranks_and_is_near(batch: int, n_ranks: int) -> None:
    found = adapted_batch(batch, n_ranks)

    odd = n_ranks // (n_ranks & -n_ranks)
    assert found % odd == 0
    assert found == batch or batch % odd
    assert abs(found - batch) <= n_ranks


@pytest.mark.parametrize("text", ["64 dgx-h100", "64xdgx-h100", "64 x dgx-h100", "64x dgx-h100"])
def test_an_option_is_a_number_and_a_node(text: str) -> None:
    assert read_option(text).name == "64 dgx-h100"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dgx-h100", "'dgx-h100' is no option"),
        ("0 dgx-h100", "'0 dgx-h100' is no option"),
        ("4 dgx-h10", "there is no node 'dgx-h10'"),
        ("4 dgx-h100 at 3", "3 has no unit"),
        ("4 dgx-h100 at 0 USD/h", "0 USD/h is not more than nothing"),
    ],
)
def test_an_option_that_is_wrong_is_told(text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        read_option(text)

    assert (caught.value.message, caught.value.field) == (message, "--option")


def test_a_bandwidth_that_stands_twice_is_refused() -> None:
    with pytest.raises(ScenarioError, match="twice"):
        read_nics("400Gbit/s, 50 GB/s")
