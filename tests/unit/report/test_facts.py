"""The cells of text that reports share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.apps.run.running import run
from clustersim.measure.metrics import BusyLink, JobReport, Metrics, Parallelism, SharedLink, TierUse
from clustersim.measure.steps_report import Staleness, StepsReport, WaitedFor, WorkerSteps
from clustersim.report.facts import (
    N_CHOICES_SHOWN,
    N_MEETINGS_SHOWN,
    TIER_LABELS,
    choice_rows,
    headline,
    interval_line,
    interval_note,
    interval_text,
    layout_line,
    link_rows,
    meeting_lines,
    memory_parts,
    memory_verdict,
    neighbour_lines,
    shown_stages,
    steps_lines,
    unfit_text,
)
from clustersim.report.subject import machine_of
from clustersim.topology.cluster import TIERS
from clustersim.trace.timeline import CollectiveChoice, Meeting
from tests.golden.reference import reference_metrics, reference_timeline

TIMELINE = reference_timeline()
METRICS = reference_metrics(TIMELINE)


def test_the_layout_names_context_and_expert_parallelism_where_there_is_some() -> None:
    metrics = replace(METRICS, parallelism=Parallelism(dp=4, tp=1, pp=1, cp=2, ep=4))

    assert layout_line(metrics, TIMELINE).startswith("512 GPUs: dp 4, tp 1, pp 1, cp 2, and ep 4 of the same ranks")


def test_nodes_that_share_a_domain_are_told_with_the_number_of_domains() -> None:
    rack = ["cluster.node=gb200-nvl72", "cluster.nodes=36", "training.global_batch_size=144"]
    result = run("llama3-8b-8xh100", set=rack)

    assert layout_line(result.metrics, result.spans).startswith("144 GPUs (gb200, 36 nodes in 2 NVLink domains of 72 GPUs): ")
    assert machine_of(result.built.cluster).levels[0].name == "36 x gb200-nvl72 in 2 NVLink domains of 72 GPUs"


def test_an_unfolded_replay_does_not_speak_of_classes() -> None:
    timeline = replace(TIMELINE, engine=replace(TIMELINE.engine, folded=False))

    assert layout_line(METRICS, timeline) == "512 GPUs: dp 16, tp 8, pp 4"


@pytest.mark.parametrize(
    ("capacity_bytes", "text"),
    [
        (80e9, "fits with 55.4 GiB of 74.5 GiB, 19.1 GiB to spare"),
        (85.52e9, "fits with 55.4 GiB of 79.6 GiB, 24.2 GiB to spare"),
        (85.57e9, "fits with 55.4 GiB of 79.7 GiB, 24.3 GiB to spare"),
        (59.5e9, "fits with 55.4 GiB of 55.4 GiB, 0.0 MiB to spare"),
        (40e9, "does not fit with 55.4 GiB of 37.3 GiB, 18.1 GiB too much"),
    ],
)
def test_the_verdict_says_by_how_much(capacity_bytes: float, text: str) -> None:
    assert memory_verdict(reference_metrics(TIMELINE, capacity_bytes=capacity_bytes)) == text


def test_a_peak_that_measured_ones_would_carry_beyond_the_capacity_fits_tightly() -> None:
    metrics = reference_metrics(TIMELINE, capacity_bytes=70e9)
    memory = replace(metrics.memory, verdict="tight")

    text = memory_verdict(replace(metrics, memory=memory))

    assert text == "fits tightly with 55.4 GiB of 65.2 GiB, 9.8 GiB to spare: less than the error of predicted peaks"


def test_neighbours_of_equal_need_are_one_row() -> None:
    first, *others = METRICS.memory.by_stage
    alike = tuple(replace(first, stage=stage.stage) for stage in (first, *others[:-1]))

    stages, _ = shown_stages(replace(METRICS, memory=replace(METRICS.memory, by_stage=(*alike, others[-1]))))

    assert [label for label, _ in stages] == ["stages 0-2", "stage 3"]


def test_parts_of_memory_sum_to_the_peak() -> None:
    for stage in METRICS.memory.by_stage:
        assert sum(memory_parts(stage).values()) == stage.peak_bytes


def test_a_tier_that_carries_nothing_is_left_out() -> None:
    idle = TierUse(tier="pcie", mean_utilisation=0.0, peak_utilisation=0.0, bytes=0.0)

    assert len(link_rows(replace(METRICS, links=(*METRICS.links, idle)), TIMELINE)) == 3


def test_every_tier_has_a_label() -> None:
    assert set(TIER_LABELS) == set(TIERS)


# Collectives


def choice(size_bytes: float, algorithm: str = "ring", *, op: str = "all_reduce", ranks: int = 8) -> CollectiveChoice:
    return CollectiveChoice(dimension="dp", op=op, ranks=ranks, bytes=size_bytes, algorithm=algorithm, protocol="simple")


def test_each_way_of_doing_a_collective_has_one_row_with_the_largest_size() -> None:
    rows = choice_rows(replace(METRICS, collectives=(choice(1e6), choice(3e6), choice(2e6), choice(5e6, "tree"))))

    assert [(size, algorithm) for _, _, size, algorithm in rows] == [("5 MB", "tree (simple)"), ("3 MB", "ring (simple)")]


def test_of_many_collectives_only_the_largest_are_shown() -> None:
    many = tuple(choice(1e6 * ranks, ranks=ranks) for ranks in range(2, 2 + 2 * N_CHOICES_SHOWN))

    rows = choice_rows(replace(METRICS, collectives=many))

    assert len(rows) == N_CHOICES_SHOWN
    assert rows[0][1] == f"all-reduce of {1 + 2 * N_CHOICES_SHOWN}"


# Meetings


def meeting_on(*links: tuple[str, list[tuple[tuple[str, ...], float]]]) -> Metrics:
    """Return metrics whose busiest links saw these meetings."""
    (some, *_) = METRICS.busiest_links
    busiest: list[BusyLink] = [
        replace(some, name=name, meetings=tuple(Meeting(names=names, seconds=seconds) for names, seconds in met)) for name, met in links
    ]
    return replace(METRICS, busiest_links=tuple(busiest))


def test_the_same_operations_are_told_of_once_where_they_met_longest() -> None:
    metrics = meeting_on(("first", [(("a", "b"), 1.0)]), ("second", [(("a", "b"), 3.0)]), ("third", [(("a", "b", "c"), 2.0)]))

    assert meeting_lines(metrics) == ("contention: a with b on second, 3 s", "contention: a with b with c on third, 2 s")


def test_the_longest_meetings_come_first_and_the_rest_is_left_out() -> None:
    pairs = [(("a", f"b{number}"), 1.0 + number) for number in range(N_MEETINGS_SHOWN + 2)]

    lines = meeting_lines(meeting_on(("link", pairs)))

    assert len(lines) == N_MEETINGS_SHOWN
    assert lines[0] == "contention: a with b4 on link, 5 s"


def test_others_on_the_cluster_are_told_with_what_they_cost() -> None:
    one = JobReport(name="one", nodes=(1,), ranks=8, steps=1, step_time_s=2.0, step_time_alone_s=1.5)
    none = JobReport(name="none", nodes=(2, 3), ranks=1024, steps=0, step_time_s=None, step_time_alone_s=100.0)
    metrics = replace(METRICS, step_time_s=1.25, step_time_alone_s=1.0, jobs=(one, none))

    assert neighbour_lines(metrics) == (
        "without them the step takes 1 s, with them 25.0 % longer",
        "job one on 8 GPUs: 1 step of 2 s meanwhile, 1.5 s alone",
        "job none on 1,024 GPUs: 0 steps meanwhile, 100 s alone",
    )


def test_jobs_that_met_are_told_with_the_link_on_which_they_did_longest() -> None:
    def shared(name: str, seconds: float, *jobs: str, n_links: int = 1) -> SharedLink:
        return SharedLink(name=name, tier="leaf", n_links=n_links, jobs=jobs, contended_s=seconds)

    links = (
        shared("leaf0/up", 0.5, "mine", "one", n_links=4),
        shared("leaf1/up", 0.25, "mine", "one"),
        shared("leaf2/up", 0.1, "one", "two"),
    )
    metrics = replace(METRICS, step_time_s=1.0, step_time_alone_s=1.0, shared_links=links)

    assert neighbour_lines(metrics)[1:] == (
        "contention: mine with one on leaf0/up, 500 ms, 50.0 % of the step, and on 4 more links",
        "contention: one with two on leaf2/up, 100 ms, 10.0 % of the step",
    )


WORKERS = (
    WorkerSteps(name="ranks 0-2", ranks=3, steps=50, samples_per_s=30.0, idle_fraction=0.25, dropped=0),
    WorkerSteps(name="rank 3", ranks=1, steps=50, samples_per_s=10.0, idle_fraction=0.01, dropped=7),
)
STEPS = StepsReport(
    steps=50,
    mean_s=2.0,
    median_s=1.9,
    p95_s=2.5,
    confidence_interval_s=(1.95, 2.05),
    waited_for=(WaitedFor(name="rank 3", ranks=1, slow="", waited_s=0.3, steps_fraction=0.9),),
    workers=WORKERS,
    staleness=Staleness(mean=2.5, p95=4, maximum=7, max_lead=1, histogram=((2, 50), (3, 50))),
)


def with_steps(**changes: object) -> Metrics:
    return replace(METRICS, steps=replace(STEPS, **changes))


def test_several_steps_are_told_in_four_lines() -> None:
    assert steps_lines(with_steps()) == (
        "50 steps: mean 2 s (95 % confidence 1.95 to 2.05 s), median 1.9 s, 95th percentile 2.5 s",
        "the step waited for rank 3: 300 ms on average, in 90.0 % of the steps",
        "idle: 1.0 % (rank 3) to 25.0 % (ranks 0-2) of the time",
        "staleness of gradients: mean 2.50 updates, 95 % at most 4, largest 7; the fastest worker was at most 1 step ahead; "
        "7 gradients came too late to be used",
    )


def test_what_there_is_not_has_no_line() -> None:
    none = replace(meeting_on(("link", [])), collectives=(), step_time_interval_s=None, step_time_interval_level_fraction=None)
    alike = with_steps(confidence_interval_s=None, waited_for=(), workers=WORKERS[:1], staleness=None)

    assert choice_rows(none) == meeting_lines(none) == neighbour_lines(none) == steps_lines(none) == steps_lines(alike) == ()
    assert (interval_text(none), interval_line(none), interval_note(none)) == ("", "", "")


def test_slow_ranks_of_a_class_are_named_and_those_who_come_next() -> None:
    first = replace(STEPS.waited_for[0], name="ranks 2-3", slow="rank 3")
    line = steps_lines(with_steps(waited_for=(first, STEPS.waited_for[0]), staleness=None, steps=1, confidence_interval_s=None))[0]

    assert line == "the step waited for ranks 2-3 (rank 3 slow): 300 ms on average; then for rank 3: 300 ms"


def test_samples_of_one_token_are_called_samples() -> None:
    images = replace(METRICS, tokens_per_s=METRICS.samples_per_s)

    assert [name for name, _ in headline(images)][1:3] == ["samples/s", "samples/s/GPU"]


@pytest.mark.parametrize(
    ("ends_s", "text"), [((7.9, 9.6), "7.9 to 9.6 s"), ((0.0812, 0.0987), "81.2 to 98.7 ms"), ((101.0, 126.0), "101 to 126 s")]
)
def test_an_interval_names_once_the_unit_of_its_step(ends_s: tuple[float, float], text: str) -> None:
    assert interval_text(replace(METRICS, step_time_s=sum(ends_s) / 2, step_time_interval_s=ends_s)) == text


def test_the_interval_says_how_many_runs_it_is_for_and_which() -> None:
    kind = {"step_time_interval_level_fraction": 0.8, "step_time_interval_kind": "experts"}
    metrics = replace(METRICS, step_time_s=8.7, step_time_interval_s=(7.9, 9.6), **kind)

    assert interval_line(metrics) == "80 % interval of the step time: 7.9 to 9.6 s, from published runs beside predictions (experts)"
    assert interval_line(replace(metrics, step_time_interval_kind="all runs")).endswith("published runs beside predictions")
    assert interval_note(metrics) == "80 %: 7.9 to 9.6 s"


@pytest.mark.parametrize(
    ("fits", "text"),
    [
        ({"a": True, "b": True}, ""),
        ({"a": False}, "; does not fit in memory"),
        ({"a": False, "b": True}, "; a does not fit in memory"),
        ({"a": False, "b": True, "c": False}, "; a and c do not fit in memory"),
        ({"a": False, "b": False}, "; none of them fits in memory"),
    ],
)
def test_runs_that_do_not_fit_are_named(fits: dict[str, bool], text: str) -> None:
    assert unfit_text(fits) == text
