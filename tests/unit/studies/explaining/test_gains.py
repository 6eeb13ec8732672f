"""Changes are replayed only where their closed forms leave something to find out."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from clustersim.errors import InfeasibleError, ScenarioError
from clustersim.scenario.build import Built, build
from clustersim.scenario.load import checked_scenario, read_source
from clustersim.scenario.overriding import Override, parse_override
from clustersim.scenario.result import Result
from clustersim.scenario.run import run_built
from clustersim.studies.explaining import gains as module
from clustersim.studies.explaining.candidates import Candidate, candidates
from clustersim.studies.explaining.gains import LEAST, Gains, gains

TIGHT = ("training.micro_batch_size=1", "strategy.recompute=full", "strategy.zero_stage=3")
"""Leaves room for little."""


def found(source: str, changes: Sequence[str], tried: Sequence[Candidate] | None = None) -> tuple[Result, Gains]:
    written, changed = read_source(source), tuple(parse_override(text) for text in changes)
    base = run_built(build(checked_scenario(written, changed)))
    return base, gains(written, changed, base, candidates(base.built) if tried is None else tried)


def change(*overrides: str, family: str = "one") -> Candidate:
    return Candidate(family=family, what=", ".join(overrides), overrides=overrides)


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[Built]:
    """Return the plans that gains replays, as it replays them."""
    made: list[Built] = []

    def counting(built: Built, *, seed: int = 0) -> Result:
        made.append(built)
        return run_built(built, seed=seed)

    monkeypatch.setattr(module, "run_built", counting)
    return made


def by_replaying_all(source: str, changes: Sequence[str], base: Result) -> list[tuple[str, float]]:
    """Return the best change of each family, with every change replayed."""
    best: dict[str, tuple[float, str]] = {}
    for candidate in candidates(base.built):
        overrides: list[Override] = [parse_override(text) for text in (*changes, *candidate.overrides)]
        try:
            metrics = run_built(build(checked_scenario(read_source(source), overrides)), seed=base.seed).metrics
        except (ScenarioError, InfeasibleError):
            continue
        fits = metrics.memory.fits or not base.metrics.memory.fits
        known = best.get(candidate.family)
        if fits and metrics.step_time_s <= (1 - LEAST) * base.step_time_s and (known is None or metrics.step_time_s < known[0]):
            best[candidate.family] = (metrics.step_time_s, candidate.what)
    return sorted(((what, step_time_s) for step_time_s, what in best.values()), key=lambda each: each[1])


@pytest.mark.parametrize(
    ("source", "changes"),
    [("1f1b", ["strategy.recompute=full"]), ("llama3-8b-8xh100", TIGHT), ("llama3-8b-8xh100", ["strategy.tp=8"]), ("hot-expert", [])],
)
def test_the_answers_are_those_of_replaying_everything(source: str, changes: Sequence[str]) -> None:
    base, got = found(source, changes)

    assert [(gain.change.what, gain.step_time_s) for gain in got.best] == by_replaying_all(source, changes, base)


def test_what_does_not_fit_is_counted_without_a_replay(replays: list[Built]) -> None:
    base, got = found("llama3-8b-8xh100", TIGHT, [change("training.micro_batch_size=16", "strategy.recompute=none")])

    assert base.metrics.memory.fits
    assert (got.best, got.n_misfits, replays) == ((), 1, [])


def test_what_does_not_fit_is_replayed_where_the_run_itself_does_not(replays: list[Built]) -> None:
    base, got = found("llama3-70b-h100-512", ["strategy.tp=1", "strategy.zero_stage=1"], [change("training.precision=fp8")])

    assert not base.metrics.memory.fits
    assert (len(got.best), got.n_misfits, len(replays)) == (1, 0, 1)


def test_what_no_step_of_can_be_shorter_is_not_replayed(replays: list[Built]) -> None:
    _, got = found("llama3-8b-8xh100", [], [change("strategy.recompute=full"), change("accelerator_speed=0.5", family="other")])

    assert (got.best, got.n_misfits, replays) == ((), 0, [])


def test_what_cannot_beat_the_best_of_its_family_is_not_replayed(replays: list[Built]) -> None:
    fast, slower = change("training.precision=fp8"), change("strategy.overlap_tp=gemm_chunks")
    alone = change("strategy.overlap_tp=gemm_chunks", family="other")

    _, got = found("llama3-70b-h100-512", [], [fast, slower, alone])

    assert [gain.change for gain in got.best] == [fast, alone]
    assert len(replays) == 2


def test_what_contradicts_the_scenario_is_counted() -> None:
    _, got = found("llama3-8b-8xh100", [], [change("strategy.tp=3"), change("strategy.pp=64", "strategy.dp=auto")])

    assert (got.best, got.n_impossible, got.n_tried) == ((), 2, 2)
