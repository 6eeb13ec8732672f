"""From failures in a scenario to the share of time in which its job trains."""

from __future__ import annotations

import math
from dataclasses import asdict

import pytest

from clustersim.apps.run.running import run
from clustersim.config.goodput_section import ASSUMED_GPU_HOURS, MOST_INTERRUPTIONS, Maintained, checkpoint_bytes, goodput_report
from clustersim.documents.text import Data
from clustersim.errors import InfeasibleError, ScenarioError
from clustersim.measure.goodput_report import GoodputReport, goodput_lines
from clustersim.reliability import best_interval_s
from tests.unit.config.samples import built, refusal, small
from tests.unit.parallel.factories import local_of

DAY_S = 86400.0
STORAGE: dict[str, Data] = {"bandwidth": "1 GB/s"}


def maintained(**section: Data) -> Maintained:
    found = built(reliability={"checkpoint": STORAGE, **section}).maintained
    assert found is not None
    return found


def report(*, work_s: float | None = 30 * DAY_S, seed: int = 0, replays: int = 16, **section: Data) -> GoodputReport:
    return goodput_report(maintained(**section), work_s=work_s, replays=replays, seed=seed)


def test_a_checkpoint_holds_weights_master_copy_and_moments() -> None:
    def size(*overrides: str) -> float:
        plan = built(*overrides).plan
        return checkpoint_bytes(plan.training, local_of(plan))

    # bf16 and Adam: 2 + 4 + 4 + 4 bytes for each parameter; all of it once, whatever the layout.
    assert size() % 14 == 0
    assert size("strategy.zero_stage=1") == size("strategy={}") == size()
    assert size("training.precision=fp32") == size() / 14 * 12


def test_a_checkpoint_takes_its_size_over_the_bandwidth() -> None:
    point = maintained(checkpoint={"size": "90 GB", "bandwidth": "3 GB/s"}, checkpoint_every="10 min").checkpoint

    assert (point.write_s, point.stall_s, point.interval_s) == (30.0, 30.0, 600.0)


def test_an_asynchronous_checkpoint_stalls_for_the_copy_to_the_host_and_is_written_behind() -> None:
    found = maintained(checkpoint={"size": "90 GB", "bandwidth": "3 GB/s", "mode": "async"}, checkpoint_every="10 min")

    # 16 accelerators on PCIe 4.0.
    assert found.checkpoint.stall_s == pytest.approx(90e9 / (16 * 31.5e9))
    assert found.upkeep.checkpoints.behind_s == pytest.approx(30.0 - found.checkpoint.stall_s)


def test_a_stall_that_is_given_counts() -> None:
    found = maintained(checkpoint={"size": "90 GB", "bandwidth": "3 GB/s", "mode": "async", "stall": "2 s"})

    assert (found.checkpoint.stall_s, found.upkeep.checkpoints.behind_s) == (2.0, 28.0)


def test_without_a_bandwidth_checkpoints_go_to_the_drives_of_the_nodes() -> None:
    found = built(cluster={"node": "dgx-h100", "nodes": 2}, reliability={"node_mtbf": "1 year", "restart": "5 min"}).maintained

    assert found is not None
    # Each node writes its own part and that of the other.
    assert (found.checkpoint.n_copies, found.checkpoint.bandwidth_bytes_per_s) == (2, pytest.approx(2 * 33.9e9 / 2))
    assert [flag.code for flag in found.flags] == ["assumed_checkpoint_storage"]


def test_where_no_node_breaks_one_copy_is_enough() -> None:
    section: dict[str, Data] = {"component_mtbf": {"software": "1 day"}, "restart": "5 min"}

    found = built(cluster={"node": "dgx-h100", "nodes": 2}, reliability=section).maintained

    assert found is not None
    assert (found.checkpoint.n_copies, found.checkpoint.bandwidth_bytes_per_s) == (1, pytest.approx(2 * 33.9e9))


def test_a_second_copy_is_no_faster_than_the_adapters() -> None:
    cluster: dict[str, Data] = {"node": "dgx-h100", "nodes": 2, "nics": {"bandwidth": "8 Gbit/s"}}

    found = built(cluster=cluster, reliability={"node_mtbf": "1 year", "restart": "5 min"}).maintained

    assert found is not None
    assert found.checkpoint.bandwidth_bytes_per_s == pytest.approx(2 * 8 * 1e9)


def test_the_only_copy_on_a_node_that_fails_is_told_beside_the_goodput() -> None:
    found = built(cluster={"node": "dgx-h100", "nodes": 1}, reliability={"node_mtbf": "1 year", "restart": "5 min"}).maintained

    assert found is not None
    line = goodput_lines(goodput_report(found, work_s=DAY_S, replays=4, seed=0))[0]
    assert line.endswith(", if checkpoints survive on the node that fails")


def test_checkpoints_are_made_at_the_best_interval_unless_one_is_given() -> None:
    found = maintained(node_mtbf="30 days", checkpoint={"size": "90 GB", "bandwidth": "3 GB/s"})

    assert found.checkpoint.interval_s == pytest.approx(best_interval_s(30.0, 15 * DAY_S))


def test_the_best_interval_is_no_shorter_than_the_writing_of_a_checkpoint() -> None:
    found = maintained(node_mtbf="2 days", checkpoint={"size": "90 TB", "bandwidth": "3 GB/s", "mode": "async", "stall": "1 s"})

    assert found.upkeep.checkpoints.cycle_s == pytest.approx(30e3 - 1.0)


def test_checkpoints_that_would_overtake_each_other_are_made_less_often_and_flagged() -> None:
    slow: dict[str, Data] = {"size": "90 GB", "bandwidth": "1 GB/s", "mode": "async", "stall": "1 s"}

    found = maintained(node_mtbf="30 days", restart="5 min", checkpoint=slow, checkpoint_every="30 s")

    assert found.checkpoint.interval_s == found.upkeep.checkpoints.trained_s == pytest.approx(88.0)
    assert [(flag.code, flag.message) for flag in found.flags] == [
        ("checkpoints_overtake", "checkpoints every 30 s would overtake each other: every 88 s instead")
    ]


def test_rates_of_parts_and_nodes_add_up() -> None:
    failures = maintained(
        node_mtbf="100 days", component_mtbf={"accelerator": "800 days", "nic": "800 days", "host": "100 days", "software": "1 day"}
    ).upkeep.failures

    # Nodes of eight accelerators and eight adapters: four times 1/100 a day, two nodes; and once a day the whole job.
    assert failures.node_mtbf_s == pytest.approx(25 * DAY_S)
    assert failures.mtti_s == pytest.approx(DAY_S / (2 / 25 + 1))


def test_a_cable_that_fails_takes_no_node_out() -> None:
    failures = maintained(component_mtbf={"cable": "160 days"}).upkeep.failures

    assert (failures.node_mtbf_s, failures.job_mtbf_s) == (math.inf, pytest.approx(10 * DAY_S))


def test_without_any_rate_that_of_llama_3_is_assumed() -> None:
    found = maintained()

    assert found.upkeep.failures.mtti_s == pytest.approx(ASSUMED_GPU_HOURS * 3600 / 16)
    assert [flag.code for flag in found.flags] == ["assumed_failure_rate", "assumed_restart"]
    assert "264 days of a node" in found.flags[0].message


def test_spares_are_none_where_nodes_have_to_be_repaired() -> None:
    assert maintained().upkeep.recovery.spares is None
    assert maintained(repair="1 day").upkeep.recovery.spares == 0
    assert maintained(repair="1 day", spares=3).upkeep.recovery.spares == 3


def test_a_job_shrinks_by_whole_replicas() -> None:
    recovery = maintained(repair="1 day", shrink=True).upkeep.recovery

    # Sixteen accelerators with tp 2 and pp 2: four replicas on two nodes.
    assert (recovery.replica_nodes, recovery.n_replicas) == (0.5, 4)


@pytest.mark.parametrize(
    ("section", "field", "message", "hint"),
    [
        ({"spares": 2}, "reliability", "spares are used up as nodes are repaired, and 'repair' is missing", "add 'repair: 1 day'"),
        (
            {"shrink": True},
            "reliability",
            "a job that shrinks grows again as nodes are repaired, and 'repair' is missing",
            "add 'repair: 1 day'",
        ),
        ({"node_mtbf": 5}, "reliability.node_mtbf", "5 has no unit", "write it with a unit, such as '5 us', '5 s', '5 h' or '5 years'"),
        ({"node_mtbf": "0 s"}, "reliability.node_mtbf", "'0 s' is out of range", "write a number that is more than 0"),
        ({"mtbf": "1 day"}, "reliability.mtbf", "unknown field 'mtbf'", "did you mean 'node_mtbf'?"),
        (
            {"checkpoint_every": "often"},
            "reliability.checkpoint_every",
            "'often' is not a time",
            "write it such as '1.5 us', '30 s' or '8 h'",
        ),
        (
            {"checkpoint": {"mode": "asinc"}},
            "reliability.checkpoint.mode",
            "'asinc' is not one of sync, async",
            "did you mean",
        ),
        ({"replays": 1}, "reliability.replays", "1 is out of range", "write a number that is at least 4"),
    ],
)
def test_a_mistake_has_its_field_and_what_would_be_right(section: dict[str, Data], field: str, message: str, hint: str) -> None:
    error = refusal(reliability=section)

    assert (error.field, error.message) == (field, message)
    assert (error.hint or "").startswith(hint)


def test_storage_that_nobody_describes_is_asked_for() -> None:
    with pytest.raises(ScenarioError, match="meta-grand-teton has no NVMe drives") as caught:
        built(cluster={"node": "meta-grand-teton", "nodes": 2}, reliability={"node_mtbf": "1 year"})

    assert caught.value.field == "reliability.checkpoint"
    assert caught.value.hint == "add 'checkpoint: {bandwidth: 100 GB/s}' to reliability, of the storage for all nodes together"


def test_a_job_that_waits_for_nodes_all_the_time_says_why() -> None:
    with pytest.raises(InfeasibleError, match=r"wait for nodes all the time; repairs take 1000000 years, so that .* nodes are in repair"):
        report(node_mtbf="5 years", restart="10 min", repair="1000000 years")


def test_a_job_that_makes_no_progress_says_why() -> None:
    with pytest.raises(InfeasibleError, match=r"trains? 0.0\d* % of the time|would train .* interrupted every 1 min"):
        report(node_mtbf="2 min", restart="10 min")


def test_the_replay_agrees_with_the_closed_form() -> None:
    found = report(node_mtbf="2 days", restart="10 min", checkpoint={"size": "90 GB", "bandwidth": "1 GB/s"}, replays=32)

    low, high = found.confidence_interval_fraction
    # Half an interval more on either side: the interval misses one time in twenty.
    assert low - (high - low) / 4 <= found.closed_form.goodput_fraction <= high + (high - low) / 4
    assert low <= found.goodput_fraction <= high
    assert math.fsum(asdict(found.parts_fraction).values()) == pytest.approx(1.0)


def test_the_best_interval_is_given_by_formulas_and_by_replays() -> None:
    best = report(
        node_mtbf="2 days", restart="10 min", checkpoint={"size": "90 GB", "bandwidth": "1 GB/s"}, checkpoint_every="3 hours"
    ).best_interval

    assert best is not None
    assert best.young_s == pytest.approx(math.sqrt(2 * 90 * DAY_S))
    assert best.daly_s == pytest.approx(best.closed_form_s, rel=1e-3)
    assert 0.5 <= best.replayed_s / best.closed_form_s <= 2.0
    assert len(best.replayed) == 9
    assert max(point.goodput_fraction for point in best.replayed) == pytest.approx(best.goodput_fraction, abs=0.01)


def test_intervals_that_would_overtake_the_writing_are_not_tried() -> None:
    best = report(node_mtbf="20 days", checkpoint={"size": "90 TB", "bandwidth": "50 GB/s", "mode": "async", "stall": "1 s"}).best_interval

    assert best is not None
    assert min(point.interval_s for point in best.replayed) == best.closed_form_s


def test_checkpoints_that_cost_nothing_have_no_best_interval() -> None:
    assert report(node_mtbf="20 days", checkpoint={**STORAGE, "stall": "0 s"}, checkpoint_every="1 h").best_interval is None


def test_the_time_to_train_has_a_confidence_interval_inside_the_spread_of_single_runs() -> None:
    time = report(node_mtbf="4 days", restart="1 h").time_to_train

    assert time is not None
    assert 30 * DAY_S < time.p5_s < time.confidence_interval_s[0] < time.mean_s < time.confidence_interval_s[1] < time.p95_s
    assert time.interruptions == pytest.approx(time.mean_s / (2 * DAY_S), rel=0.3)


def test_a_long_training_is_replayed_in_part() -> None:
    found = report(node_mtbf="20 min", restart="10 s", checkpoint={"size": "1 GB", "bandwidth": "1 GB/s"}, work_s=3000 * DAY_S, replays=4)

    assert found.replayed_work_s == pytest.approx(MOST_INTERRUPTIONS * 600 * found.closed_form.goodput_fraction)
    assert found.time_to_train is not None
    assert found.time_to_train.mean_s == pytest.approx(3000 * DAY_S / found.goodput_fraction, rel=1e-6)


def test_without_a_budget_there_is_no_time_to_train() -> None:
    often, rarely = (report(node_mtbf=mtbf, work_s=None, restart="10 min") for mtbf in ("10 h", "20 days"))

    # A month, or a hundred interruptions of two nodes.
    assert (often.time_to_train, often.replayed_work_s) == (None, 30 * DAY_S)
    assert (rarely.time_to_train, rarely.replayed_work_s) == (None, pytest.approx(1000 * DAY_S))


def test_equal_seeds_give_equal_reports() -> None:
    first, second, other = (report(node_mtbf="2 days", seed=seed, replays=4) for seed in (3, 3, 4))

    assert first == second
    assert first.goodput_fraction != other.goodput_fraction


def test_the_report_says_what_failures_cost_and_what_to_do() -> None:
    lines = goodput_lines(report(node_mtbf="2 days", restart="10 min", repair="1 day", spares=1))

    assert lines[0].startswith("goodput ")
    assert lines[1].startswith("lost to ")
    assert lines[2] == "an interruption every 24 h: 1 a day, all from nodes"
    assert lines[3].startswith("a checkpoint of ")
    assert lines[4].startswith("best interval ")
    assert lines[5].startswith("1 spare node suffices ")
    assert lines[6].startswith("the whole training takes ")
    assert goodput_lines(None) == ()


def test_a_run_with_failures_has_them_in_its_document() -> None:
    result = run(
        small(reliability={"node_mtbf": "30 days", "restart": "5 min", "checkpoint": STORAGE}),
        set=["checks=[goodput.goodput_fraction > 90 %]"],
    )

    document = result.to_dict()["goodput"]
    assert isinstance(document, dict)
    assert document["goodput_fraction"] == result.goodput.goodput_fraction if result.goodput else None
    assert result.checks[0].holds
