"""Which changes are thought of."""

from __future__ import annotations

from clustersim.scenario.build import build
from clustersim.scenario.load import load_scenario
from clustersim.studies.explaining.candidates import Candidate, candidates


def of(name: str, *overrides: str) -> dict[str, list[Candidate]]:
    found: dict[str, list[Candidate]] = {}
    for candidate in candidates(build(load_scenario(name, overrides))):
        found.setdefault(candidate.family, []).append(candidate)
    return found


def texts(found: dict[str, list[Candidate]], family: str) -> list[str]:
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
    assert texts(of("llama3-70b-h100-512"), "layout") == [
        "tp 4 instead of 8, dp 32",
        "pp 2 instead of 4, dp 32",
        "pp 8 instead of 4, dp 8",
        "tp 4 instead of 8, pp 8 instead of 4, dp 16",
    ]


def test_tensor_parallelism_does_not_leave_the_fast_links() -> None:
    assert not any("tp 16" in text for text in texts(of("llama3-70b-h100-512"), "layout"))


def test_layers_that_are_listed_by_stage_are_dealt_out_anew() -> None:
    layouts = of("1f1b", "strategy.stage_layers=[12,12,12,12]")["layout"]

    assert {override for each in layouts for override in each.overrides if "stage_layers" in override} == {
        "strategy.stage_layers=balanced",
    }


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
