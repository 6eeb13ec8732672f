"""One point of a sweep."""

from __future__ import annotations

import pickle

import pytest

from clustersim.apps.run.running import run
from clustersim.apps.study import point as module
from clustersim.apps.study.point import Base, evaluate, override_of
from clustersim.config.load import load_scenario
from clustersim.errors import InfeasibleError
from tests.unit.apps.study.factories import SMALL, make_base


def test_a_point_is_what_run_gives_with_the_same_values() -> None:
    outcome = evaluate(make_base(seed=3), {"strategy.tp": 2, "training.global_batch_size": 32})

    result = run(SMALL, set=["strategy.tp=2", "training.global_batch_size=32"], seed=3)
    assert (outcome.status, outcome.reason, outcome.scenario_hash) == ("ok", "", result.scenario_hash)
    assert outcome.figures["step_time_s"] == result.step_time_s
    assert outcome.figures["memory.fits"] is True
    assert outcome.figures["parallelism.tp"] == 2
    assert not any("wall" in name or name.startswith("engine") for name in outcome.figures)


def test_values_of_a_point_go_over_those_that_are_set() -> None:
    base = Base(source=make_base().source, changes=(override_of("strategy.tp", 8), override_of("strategy.zero_stage", 1)))

    strategy = base.scenario({"strategy.tp": 2}).spec.strategy

    assert (strategy.tp, strategy.zero_stage) == (2, 1)


def test_what_does_not_fit_is_kept_with_its_figures() -> None:
    outcome = evaluate(make_base(model="llama3-70b"), {"training.seq_length": 2048})

    assert outcome.status == "infeasible"
    assert outcome.reason.startswith("does not fit in memory: ")
    assert outcome.figures["step_time_s"] > 0
    assert outcome.figures["memory_fraction"] > 1


def test_values_that_contradict_each_other_are_kept_with_the_reason_and_the_advice() -> None:
    outcome = evaluate(make_base(), {"strategy.tp": 3})

    assert (outcome.status, dict(outcome.figures)) == ("infeasible", {})
    assert outcome.reason == "strategy.tp: tp*pp*cp = 3 does not divide 8 GPUs; with the other degrees as they are, use tp 1, 2, 4 or 8"


def test_a_false_check_is_no_mistake_but_told() -> None:
    outcome = evaluate(make_base(checks=["mfu > 0.99", "mfu > 0"]), {})

    assert (outcome.status, outcome.reason) == ("unmet", "a check is false: mfu > 0.99")
    assert outcome.figures["mfu"] > 0


@pytest.mark.parametrize(
    ("raised", "status", "reason"),
    [
        (InfeasibleError("cannot\nrun"), "infeasible", "cannot run"),
        (ZeroDivisionError("oh"), "failed", "ZeroDivisionError: oh"),
        (MemoryError(), "failed", "MemoryError:"),
    ],
)
def test_nothing_that_happens_at_a_point_gets_out(monkeypatch: pytest.MonkeyPatch, raised: Exception, status: str, reason: str) -> None:
    def fail(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr(module, "run_built", fail)

    outcome = evaluate(make_base(), {})

    assert (outcome.status, " ".join(outcome.reason.split())) == (status, reason)


def test_a_base_can_be_sent_to_another_process() -> None:
    base = Base(source=make_base().source, changes=load_scenario(SMALL, ["strategy.tp=2"]).overrides)

    assert pickle.loads(pickle.dumps(base)).scenario({}).spec.strategy.tp == 2
