"""The fastest layout is found, and the certificate tells of every other."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, repeat
from math import inf

import pytest

from clustersim.apps.plan import findings, replays
from clustersim.apps.plan.answer import certificate_lines, near_lines, plan, plan_for
from clustersim.apps.plan.asking import PlanRequest, asked_of
from clustersim.apps.plan.drafts import Drafts
from clustersim.apps.plan.findings import MARGIN, REASONS, SLOWER, UNSEEN, Search, Tried, ranked
from clustersim.apps.plan.layout_table import layout_table, within_error_bars
from clustersim.apps.plan.margins import margins, turns
from clustersim.apps.plan.replays import Replays
from clustersim.apps.plan.search import MEMORY_MARGIN, Terms, fastest
from clustersim.apps.plan.space import families, layouts, limits_of
from clustersim.apps.run.running import run_built
from clustersim.apps.run.simulation import memory_report
from clustersim.config.checks import parse_check
from clustersim.errors import ScenarioError
from clustersim.measure.bounds.bound_evaluator import BoundEvaluator
from clustersim.parallel.stage import stages_of

SMALL = ("tp=1,2,4", "pp=1,2", "cp=1", "micro_batch_size=1,2", "schedule=1f1b,interleaved_1f1b", "virtual_stages=2", "offload=none")


def asked(*limits: str) -> PlanRequest:
    overrides = ["training.global_batch_size=32", "training.seq_length=1024"]
    return asked_of("llama3.2-1b", "dgx-a100-40g", nodes=1, overrides=overrides, limits=limits or SMALL)


def searched(question: PlanRequest, terms: Terms | None = None) -> Search:
    return fastest(Drafts(question.base), question.space, terms)


@pytest.mark.slow
def test_the_winner_is_the_fastest_of_all_that_could_be_replayed() -> None:
    question = asked(*SMALL, "recompute=none", "zero_stage=0,1,3")
    drafts = Drafts(question.base)
    times: list[float] = []
    for family in families(question.space):
        for layout in layouts(question.space, family):
            try:
                result = run_built(drafts.built(layout))
            except ScenarioError:
                continue
            if result.metrics.memory.peak_bytes <= (1.0 - MEMORY_MARGIN) * result.metrics.memory.capacity_bytes:
                times.append(result.step_time_s)

    winner = searched(question).winner

    assert len(times) > 20
    assert winner is not None
    # Of layouts that are equally fast but for round-off it is the one that takes least memory.
    assert winner.step_time_s == pytest.approx(min(times), rel=1e-6)


def test_layouts_that_the_winner_cannot_be_told_apart_from_are_said() -> None:
    answer = plan_for(asked(*SMALL, "recompute=none", "zero_stage=0,1"))
    near = within_error_bars(answer.search.tried)
    bar = answer.search.tried[0].result.metrics.error_bar

    assert bar is not None
    assert answer.search.winner is not None
    assert near
    assert all(each.step_time_s <= bar.ratio_most_fraction * answer.search.winner.step_time_s for each in near)
    shown = [row[-1] for row in layout_table(answer.families).rows if "*" in row[1]]
    assert all(each.layout.words() in shown or any(each.layout.words() in line for line in near_lines(answer)) for each in near)
    assert answer.to_dict()["undecided"] == [each.layout.words() for each in near]


def test_a_search_that_ended_early_takes_the_fastest_that_it_has_seen() -> None:
    found = searched(asked(*SMALL, "recompute=none", "zero_stage=0,1")).tried
    early = Search(tried=[found[-1]], counts={UNSEEN: 2})

    early.take([found[0]])

    assert early.winner is found[0]
    assert early.others == []
    assert early.counts == {UNSEEN: 1, SLOWER: 1}


def test_nothing_is_replayed_when_the_time_is_over_but_a_first_layout_without_a_longest_step() -> None:
    question = asked(*SMALL, "recompute=none")
    answer = plan_for(question, Terms(time_limit_s=0.0))

    assert len(answer.search.tried) <= 2 < len(searched(question).tried)
    assert answer.search.others == []
    assert answer.search.n_bounds > 0
    assert answer.search.gap_fraction
    assert searched(question, Terms(time_limit_s=0.0, within_s=1.0)).tried == []


def test_a_search_in_limited_time_begins_with_the_most_promising() -> None:
    question = asked()
    whole = searched(question).winner
    unlimited, limited = (
        fastest(Drafts(question.base), question.space, Terms(most_replays=1, time_limit_s=limit_s)) for limit_s in (float("inf"), 600.0)
    )

    assert whole is not None
    assert unlimited.winner is not None
    assert limited.winner is not None
    assert len(limited.tried) == 1
    assert limited.winner.step_time_s == whole.step_time_s < unlimited.winner.step_time_s


def test_the_small_part_of_a_space_leaves_replays_to_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clustersim.apps.plan.space.MOST_SMALL", 10)

    tried = searched(asked(), Terms(most_replays=2, time_limit_s=600.0)).tried

    assert {each.layout.family.micro_batch_size for each in tried} == {1, 2}


@pytest.mark.parametrize("n_done", [0, 2])
def test_no_replay_of_the_margins_begins_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch, n_done: int) -> None:
    question = asked("tp=1,2", "pp=1", "cp=1", "micro_batch_size=1", "recompute=none", "offload=none")
    readings_s = chain([0.0] * n_done, repeat(2.0))
    drafts, found = Drafts(question.base), searched(question)
    found.ends_s = 1.0
    monkeypatch.setattr(findings, "perf_counter", lambda: next(readings_s))

    with Replays() as own:
        bought = margins(drafts, found, own)
        turned = turns(drafts, found, own, MEMORY_MARGIN)

    assert len(bought) == n_done
    assert turned == ()
    assert any("The time was over" in line for line in certificate_lines(found, MEMORY_MARGIN))


def test_the_layout_of_a_scenario_stands_in_the_table() -> None:
    large = ["training.micro_batch_size=16", "strategy.zero_stage=0"]
    answer = plan("llama3-8b-8xh100", set=large, only=("tp=2", "pp=1", "cp=1", "recompute=none", "micro_batch_size=1"))
    (row,) = (row for row in answer.tables()[0].rows if row[-1].startswith("yours: "))

    assert answer.own is not None
    assert row[-1] == f"yours: {answer.own.layout.words()}"
    assert row[1] == ""
    assert row[3].endswith(", does not fit")
    assert answer.own.layout.family.tp == 1
    assert answer.to_dict()["own"] is not None


def test_why_the_layout_of_a_scenario_cannot_run_is_said() -> None:
    odd = asked_of("llama3-8b-8xh100", overrides=["strategy.tp=3"], limits=["tp=8", "pp=1", "cp=1", "recompute=full", "zero_stage=1"])
    answer = plan_for(odd)

    assert answer.own is None
    assert answer.own_refusal == answer.to_dict()["own_refusal"] == "strategy.tp: 3 does not divide 32 attention heads"
    assert f"The layout of the scenario cannot run: {answer.own_refusal}" in answer.lines()


@pytest.mark.parametrize("time_limit_s", [inf, 600.0])
def test_the_certificate_counts_every_layout_once(time_limit_s: float) -> None:
    search = searched(asked(), Terms(time_limit_s=time_limit_s))

    assert search.winner is not None
    assert search.complete
    assert 1 + sum(search.counts.values()) == search.n_layouts
    assert set(search.counts) <= set(REASONS)
    assert search.next_bound_s is not None
    assert search.next_bound_s >= search.winner.step_time_s


def test_no_replay_is_shorter_than_its_bound() -> None:
    search = searched(asked())

    assert all(tried.bound_s <= tried.step_time_s * (1 + 1e-9) for tried in search.tried)


def test_memory_is_what_a_run_says() -> None:
    question = asked()
    drafts = Drafts(question.base)
    for family in list(families(question.space))[::7]:
        for layout in list(layouts(question.space, family))[::3]:
            plan = drafts.whole_plan(layout)
            if isinstance(plan, str):
                continue
            built = drafts.built(layout)

            assert plan == replace(built.plan, strategy=built.plan.strategy.changed(placement=layout.placement))
            assert memory_report(stages_of(plan), built.cluster).peak_bytes == run_built(built).metrics.memory.peak_bytes


def test_a_constraint_rules_layouts_out() -> None:
    question = asked()
    free = searched(question)
    assert free.winner is not None
    share = free.winner.result.metrics.memory.peak_bytes / free.winner.result.metrics.memory.capacity_bytes

    held = fastest(Drafts(question.base), question.space, Terms(constraints=(parse_check(f"memory_fraction < {share:.6f}"),)))

    assert held.winner is not None
    assert held.winner.layout != free.winner.layout
    assert held.winner.step_time_s >= free.winner.step_time_s


def test_a_search_that_ends_early_says_so() -> None:
    question = asked()

    search = fastest(Drafts(question.base), question.space, Terms(most_replays=1))

    assert not search.complete or search.counts.get("it was replayed and is slower", 0) == 0
    assert search.complete == ("ended early" not in "\n".join(certificate_lines(search, MEMORY_MARGIN)))


@pytest.mark.slow
def test_what_does_not_fit_has_no_winner() -> None:
    question = asked_of("llama3-70b", "dgx-a100-40g", nodes=1, overrides=["training.global_batch_size=8"], limits=["offload=none"])

    search = searched(question)

    assert search.winner is None
    assert sum(search.counts.values()) == search.n_layouts


def test_equal_questions_have_equal_answers() -> None:
    one, other = (plan_for(asked(*SMALL, "recompute=none", "zero_stage=1")).to_dict() for _ in range(2))

    assert one == other


def test_the_space_is_narrowed_by_key() -> None:
    assert limits_of(["tp=2,4", "recompute=full", "offload=none,optimizer"]) == {
        "tp": (2, 4),
        "recompute": ("full",),
        "offload": ((), ("optimizer",)),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tp", "does not say key=values"),
        ("tpp=2", "is not searched"),
        ("tp=two", "is no value of tp"),
        ("schedule=1f1bb", "is no schedule"),
    ],
)
def test_a_mistake_in_a_limit_is_told(text: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        limits_of([text])


def test_a_node_without_a_number_is_refused() -> None:
    with pytest.raises(ScenarioError, match="the number of nodes of dgx-h100"):
        asked_of("llama3-8b", "dgx-h100", nodes=None, overrides=[], limits=[])


def test_an_unknown_cluster_is_refused_with_the_nearest() -> None:
    with pytest.raises(ScenarioError) as caught:
        asked_of("llama3-8b", "dgx-h1000", nodes=2, overrides=[], limits=[])

    assert "dgx-h100" in str(caught.value)


def test_a_space_without_stages_has_no_schedules() -> None:
    space = replace(asked().space, pp=(1,), schedule=("1f1b", "interleaved_1f1b"))

    assert {family.schedule for family in families(space)} == {"1f1b"}


def test_a_search_that_ends_early_says_how_far_the_best_may_be() -> None:
    question = asked()
    whole, early = searched(question), fastest(Drafts(question.base), question.space, Terms(most_replays=1))

    assert whole.complete
    assert whole.gap_fraction == 0.0
    assert whole.winner is not None
    assert early.winner is not None
    assert early.gap_fraction is not None
    assert early.winner.step_time_s * (1.0 - early.gap_fraction) <= whole.winner.step_time_s * (1 + 1e-9)


@pytest.mark.slow
def test_processes_of_their_own_do_not_change_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    question = asked(*SMALL, "tp=1,2", "zero_stage=0,1")
    here = searched(question)

    monkeypatch.setattr(replays, "PATIENCE_S", -1.0)
    monkeypatch.setattr(replays, "usable_cores", lambda: 2)
    apart = searched(question)

    assert [tried.layout for tried in apart.tried] == [tried.layout for tried in here.tried]
    assert apart.counts == here.counts
    assert [tried.step_time_s for tried in apart.tried] == [tried.step_time_s for tried in here.tried]


def test_the_network_and_its_uplinks_are_among_what_would_buy_something() -> None:
    limits = ["tp=8", "pp=1", "cp=1", "micro_batch_size=1", "offload=none", "zero_stage=3", "recompute=none"]
    overrides = ["training.global_batch_size=64", "training.seq_length=1024"]
    narrow = [*overrides, "cluster.fabric.oversubscription=4", "cluster.fabric.topology=leaf_spine", "cluster.fabric.nodes_per_leaf=2"]
    one, even, uneven = (
        {
            margin.resource: margin
            for margin in plan_for(asked_of("llama3.2-1b", "dgx-a100-80g", nodes=n, overrides=texts, limits=limits)).margins
        }
        for n, texts in ((1, overrides), (4, overrides), (4, narrow))
    )

    assert "network bandwidth" not in one
    assert even["network bandwidth"].gain_fraction >= 0.0
    assert "uplinks of leaf switches" not in even
    assert 0.0 < uneven["uplinks of leaf switches"].gain_fraction < 0.1


def test_sequences_are_as_long_as_models_are_trained_on_where_nobody_says() -> None:
    said, unsaid = (
        asked_of("llama3.1-8b", "dgx-h100", nodes=1, overrides=texts, limits=[]) for texts in (["training.seq_length=2048"], [])
    )

    lengths = [each.base["training"]["seq_length"] for each in (said, unsaid)]  # pyright: ignore[reportIndexIssue, reportCallIssue, reportArgumentType, reportOptionalSubscript]
    assert lengths == [2048, 8192]
    assert any("8,192 tokens" in line for line in unsaid.assumed)


def test_a_placement_is_written_in_full() -> None:
    assert limits_of(["placement=tp-cp-ep-pp-dp"]) == {"placement": (("tp", "cp", "ep", "pp", "dp"),)}
    with pytest.raises(ScenarioError, match="is no placement"):
        limits_of(["placement=tp-dp"])


def peak_fraction(tried: Tried) -> float:
    memory = tried.result.metrics.memory
    return memory.peak_bytes / memory.capacity_bytes


def test_a_margin_of_memory_stays_free_unless_nobody_wants_it() -> None:
    question = asked(*SMALL, "tp=1,2", "recompute=none", "zero_stage=0,1")
    whole = fastest(Drafts(question.base), question.space, Terms(memory_margin_fraction=0.0))
    assert whole.winner is not None
    share = peak_fraction(whole.winner)

    less = fastest(Drafts(question.base), question.space, Terms(memory_margin_fraction=1.0 - 0.999 * share))

    assert less.winner is not None
    assert peak_fraction(less.winner) <= 0.999 * share
    assert less.counts[MARGIN] >= 1
    assert whole.counts.get(MARGIN, 0) == 0


def test_what_is_equally_fast_is_ranked_by_memory_and_then_by_simplicity() -> None:
    winner = searched(asked()).winner
    assert winner is not None

    def of(zero_stage: int, *, slower: float = 1.0, larger: float = 1.0) -> Tried:
        metrics = winner.result.metrics
        memory = replace(metrics.memory, peak_bytes=larger * metrics.memory.peak_bytes)
        metrics = replace(metrics, step_time_s=slower * metrics.step_time_s, memory=memory)
        return replace(winner, layout=replace(winner.layout, zero_stage=zero_stage), result=replace(winner.result, metrics=metrics))

    # Round-off is no difference; half a percent is.
    found = [of(0, slower=1.005), of(3, larger=0.9, slower=1 + 1e-9), of(2, larger=1 - 1e-12), of(1)]

    assert [tried.layout.zero_stage for tried in ranked(found)] == [3, 1, 2, 0]


def test_a_replay_below_its_bound_withdraws_the_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = plan_for(asked())
    assert honest.flags == ()
    monkeypatch.setattr(BoundEvaluator, "passes_s", lambda _bench, _plan: 1e3)

    answer = plan_for(asked())

    told = answer.to_dict()["certificate"]
    assert isinstance(told, dict)
    assert [flag.code for flag in answer.flags] == ["replay_below_bound"]
    assert (told["holds"], told["complete"], told["gap_fraction"]) == (False, False, None)
    assert any("Withdrawn" in line for line in certificate_lines(answer.search, MEMORY_MARGIN))


def test_a_search_with_a_limit_replays_nothing_that_is_too_slow_by_its_bound() -> None:
    question = asked()
    winner = searched(question).winner
    assert winner is not None

    search = fastest(Drafts(question.base), question.space, Terms(within_s=0.5 * winner.step_time_s))

    assert search.tried == []
    assert search.next_bound_s is not None
    assert 0.5 * winner.step_time_s <= search.next_bound_s <= winner.step_time_s * (1 + 1e-9)


def test_each_layout_says_whether_it_fits_or_is_tight() -> None:
    search = searched(asked())

    for tried in search.tried:
        assert tried.result.metrics.memory.verdict in ("fits", "tight")
        most = tried.result.metrics.memory.peak_interval_bytes
        assert most is not None
        assert (tried.result.metrics.memory.verdict == "tight") == (most[1] > tried.result.metrics.memory.capacity_bytes)
