"""Candidate changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from clustersim.apps.explain import candidates as module
from clustersim.apps.explain.candidates import LEAST, CandidateChange, Gains, candidates, gains
from clustersim.apps.explain.changing import ChangedRun
from clustersim.apps.run.result import Result
from clustersim.apps.run.running import run_built, step_metrics
from clustersim.config.build import Built, build
from clustersim.config.load import checked_scenario, load_scenario, read_source
from clustersim.config.overriding import parse_override
from clustersim.errors import InfeasibleError, ScenarioError
from clustersim.measure.metrics import Metrics


def of(name: str, *overrides: str) -> dict[str, list[CandidateChange]]:
    found: dict[str, list[CandidateChange]] = {}
    for candidate in candidates(build(load_scenario(name, overrides))):
        found.setdefault(candidate.family, []).append(candidate)
    return found


def texts(found: dict[str, list[CandidateChange]], family: str) -> list[str]:
    return [candidate.what for candidate in found.get(family, [])]


def test_micro_batches_are_halved_doubled_and_doubled_again() -> None:
    assert texts(of("1f1b", "training.micro_batch_size=2"), "micro-batch") == [
        "micro-batches of 1 sequence instead of 2",
        "micro-batches of 4 sequences instead of 2",
        "micro-batches of 8 sequences instead of 2",
    ]


def test_images_come_in_samples() -> None:
    assert texts(of("resnet50-ddp-dgx1", "training.micro_batch_size=1"), "micro-batch")[0] == "micro-batches of 2 samples instead of 1"


def test_a_layout_changes_one_dimension_or_trades_two() -> None:
    assert texts(of("llama3-70b-h100-512"), "layout")[2:] == [
        "tp 4 instead of 8, dp 32",
        "pp 2 instead of 4, dp 32",
        "pp 8 instead of 4, dp 8",
        "tp 4 instead of 8, pp 8 instead of 4, dp 16",
    ]


def test_sharding_over_all_ranks_takes_the_place_of_other_dimensions_also_with_full_recomputation() -> None:
    found = of("llama3-70b-h100-512", "strategy.cp=1")["layout"][:2]

    assert [each.what for each in found] == [
        "tp 1 instead of 8, pp 1 instead of 4, dp 512 with ZeRO stage 3 (FSDP)",
        "tp 1 instead of 8, pp 1 instead of 4, dp 512 with ZeRO stage 3 (FSDP), recomputation full instead of selective",
    ]
    assert {"strategy.tp=1", "strategy.pp=1", "strategy.zero_stage=3", "strategy.recompute=full"} <= set(found[1].overrides)
    assert not any("FSDP" in text for text in texts(of("llama3-8b-8xh100"), "layout"))


def test_tensor_parallelism_does_not_leave_the_fast_links() -> None:
    assert not any("tp 16" in text for text in texts(of("llama3-70b-h100-512"), "layout"))


def test_layers_that_are_listed_by_stage_are_dealt_out_anew() -> None:
    layouts = of("1f1b", "strategy.stage_layers=[12,12,12,12]")["layout"]

    assert {override for each in layouts for override in each.overrides if "stage_layers" in override} == {
        "strategy.stage_layers=balanced",
        "strategy.stage_layers=even",
    }


def test_maxima_of_fp8_need_not_be_agreed_on_by_all_replicas() -> None:
    fp8 = "training.precision=fp8"

    assert texts(of("llama3-70b-h100-512", fp8), "maxima") == ["maxima of fp8 agreed on in tensor-parallel groups alone"]
    assert not texts(of("llama3-70b-h100-512"), "maxima")
    assert not texts(of("llama3-70b-h100-512", fp8, "training.fp8_amax_group=tensor"), "maxima")


def test_a_schedule_is_not_changed_into_itself() -> None:
    schedules = texts(of("1f1b"), "schedule")

    assert "the schedule 1f1b instead of 1f1b" not in schedules
    assert "the schedule zb_h1 instead of 1f1b" in schedules


def test_what_overlaps_already_is_not_proposed() -> None:
    found = of("llama3-70b-h100-512", "strategy.overlap_tp=gemm_chunks", "strategy.overlap_p2p=true")

    assert not {"tensor overlap", "stage overlap", "gradient overlap"} & set(found)


def test_less_recomputation_is_proposed_and_never_more() -> None:
    assert texts(of("1f1b", "strategy.recompute=full"), "recomputation") == [
        "recomputation none instead of full",
        "recomputation selective instead of full",
    ]
    assert texts(of("1f1b", "strategy.recompute=none"), "recomputation") == []


def test_fp8_is_proposed_where_the_accelerator_has_it_and_says_what_it_changes() -> None:
    (candidate,) = of("llama3-8b-8xh100")["precision"]

    assert candidate.remark == "changes the numbers that are trained with"
    assert "precision" not in of("gpt-22b-one-node")


def test_slow_ranks_and_an_oversubscribed_fabric_are_machines_to_be_mended() -> None:
    slow = of("llama3-70b-h100-512", "cluster.stragglers=[{ranks: 3, slowdown: 1.3}]", "cluster.fabric.oversubscription=2")

    assert texts(slow, "stragglers") == ["no slow ranks"]
    assert texts(slow, "oversubscription") == ["as much bandwidth up as down at every leaf instead of 1:2"]


def test_a_vocabulary_whose_rows_are_no_whole_vectors_is_padded() -> None:
    (padded,) = of("gpt2-dp-8xv100")["vocabulary"]

    assert padded.what == "a vocabulary of 50304 words, of which 47 are padding"
    assert padded.overrides == ("training.vocabulary_multiple=64",)


def test_one_that_is_padded_already_is_left_alone() -> None:
    assert "vocabulary" not in of("gpt2-dp-8xv100", "training.vocabulary_multiple=8")


TIGHT = ("training.micro_batch_size=1", "strategy.recompute=full", "strategy.zero_stage=3")
"""Leaves room for little."""


def found(source: str, changes: Sequence[str], tried: Sequence[CandidateChange] | None = None) -> tuple[Result, Gains]:
    run = changeable(source, changes)
    return run.result, gains(run, candidates(run.result.built) if tried is None else tried)


def changeable(source: str | Mapping[str, object], changes: Sequence[str] = ()) -> ChangedRun:
    written, changed = read_source(source), tuple(parse_override(text) for text in changes)
    return ChangedRun(written=written, changes=changed, result=run_built(build(checked_scenario(written, changed))))


def change(*overrides: str, family: str = "one") -> CandidateChange:
    return CandidateChange(family=family, what=", ".join(overrides), overrides=overrides)


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[Built]:
    """Return the plans that gains replays, as it replays them."""
    made: list[Built] = []

    def counting(built: Built, seed: int = 0, **options: object) -> Metrics:
        made.append(built)
        return step_metrics(built, seed, **options)  # pyright: ignore[reportArgumentType] - handed on

    monkeypatch.setattr(module, "step_metrics", counting)
    return made


def by_replaying_all(source: str, changes: Sequence[str], base: Result) -> list[tuple[str, float]]:
    """Return the best change of each family, with every change replayed."""
    best: dict[str, tuple[float, str]] = {}
    written, changed = read_source(source), tuple(parse_override(text) for text in changes)
    run = ChangedRun(written=written, changes=changed, result=base)
    for candidate in candidates(base.built):
        try:
            _, built = run.changed_alone(candidate.overrides)
            metrics = run_built(built, seed=base.seed).metrics
        except (ScenarioError, InfeasibleError):
            continue
        fits = metrics.memory.fits or not base.metrics.memory.fits
        known = best.get(candidate.family)
        if fits and metrics.step_time_s <= (1 - LEAST) * base.step_time_s and (known is None or metrics.step_time_s < known[0]):
            best[candidate.family] = (metrics.step_time_s, candidate.what)
    return sorted(((what, step_time_s) for step_time_s, what in best.values()), key=lambda each: each[1])


@pytest.mark.parametrize(
    ("source", "changes"),
    [
        ("1f1b", ["strategy.recompute=full"]),
        ("llama3-8b-8xh100", TIGHT),
        pytest.param("hot-expert", [], marks=pytest.mark.slow),
    ],
)
def test_the_answers_are_those_of_replaying_everything(source: str, changes: Sequence[str]) -> None:
    base, got = found(source, changes)

    whats = [gain.change.what.removesuffix(", in the same software") for gain in got.best]
    assert [*zip(whats, (gain.step_time_s for gain in got.best), strict=True)] == by_replaying_all(source, changes, base)


def test_what_does_not_fit_is_counted_without_a_replay(replays: list[Built]) -> None:
    base, got = found("llama3-8b-8xh100", TIGHT, [change("training.micro_batch_size=16", "strategy.recompute=none")])

    assert base.metrics.memory.fits
    assert (got.best, got.n_misfits, replays) == ((), 1, [])


def test_what_no_step_of_can_be_shorter_is_not_replayed(replays: list[Built]) -> None:
    _, got = found("llama3-8b-8xh100", [], [change("training.attention=unfused"), change("training.kernels=eager", family="other")])

    assert (got.best, got.n_misfits, replays) == ((), 0, [])


def test_what_cannot_beat_the_best_of_its_family_is_not_replayed(replays: list[Built]) -> None:
    fast, slower = change("training.precision=fp8"), change("strategy.overlap_tp=gemm_chunks")
    alone = change("strategy.overlap_tp=gemm_chunks", family="other")

    _, got = found("llama3-70b-h100-512", ["strategy.overlap_tp=none"], [fast, slower, alone])

    assert [gain.change for gain in got.best] == [fast, alone]
    assert len(replays) == 2


def test_what_contradicts_the_scenario_is_counted() -> None:
    _, got = found("llama3-8b-8xh100", [], [change("strategy.tp=3"), change("strategy.pp=64", "strategy.dp=auto")])

    assert (got.best, got.n_impossible, got.n_tried) == ((), 2, 2)


SHARDED = {
    "model": "llama3-8b",
    "cluster": {"node": "dgx-h100", "nodes": 1},
    "training": {"global_batch_size": 16, "micro_batch_size": 1, "seq_length": 2048, "precision": "bf16"},
    "strategy": {"zero_stage": 3, "recompute": "full"},
}


def test_a_change_of_sharding_leaves_the_software_as_it_is_and_its_options_say_so() -> None:
    run = changeable(SHARDED)

    overrides, built = run.changed_alone(["strategy.zero_stage=1"])

    taken, before = built.plan.training, run.result.built.plan.training
    assert built.plan.strategy.zero_stage == 1
    assert (taken.kernels, taken.attention) == (before.kernels, before.attention) == ("eager", "flash_2")
    assert taken == build(load_scenario(SHARDED, overrides)).plan.training


def test_what_cannot_stand_beside_a_change_goes_with_it() -> None:
    run = changeable(SHARDED)

    assert run.result.built.plan.strategy.recompute_stops_early
    assert run.changed_alone(["strategy.recompute=none"])[0] == ("strategy.recompute=none",)


def test_fp8_keeps_the_overlap_in_force_without_an_option() -> None:
    assert changeable("llama3-70b-h100-512").changed_alone(["training.precision=fp8"])[0] == ("training.precision=fp8",)


def test_few_replays_go_to_the_least_bound_of_each_family_first(replays: list[Built]) -> None:
    one, two = "strategy.virtual_stages=2", "strategy.virtual_stages=5"
    chunked = [change("strategy.schedule=interleaved_1f1b", each, family="schedule") for each in (one, two)]
    fast = change("training.precision=fp8", family="precision")

    got = gains(changeable("llama3-70b-h100-512"), [*chunked, fast], 1)

    assert [gain.change for gain in got.best] == [fast]
    assert (len(replays), got.n_left) == (1, 2)


def test_what_cannot_be_among_those_that_are_told_is_not_replayed(replays: list[Built]) -> None:
    chunked = change("strategy.schedule=interleaved_1f1b", "strategy.virtual_stages=2", family="schedule")
    fast = change("training.precision=fp8", family="precision")
    run = changeable("llama3-70b-h100-512")

    got = gains(run, [chunked, fast], told=1)

    assert [gain.change for gain in got.best] == [fast]
    assert (len(replays), got.n_left) == (1, 0)
