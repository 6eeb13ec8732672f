"""Settings that nobody gave, and what they decide."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.apps.explain.explanation import Explanation, explain
from clustersim.apps.explain.unsaid import LEAST, alternatives
from clustersim.apps.run.running import run
from tests.unit.config.samples import built

TYPED = """\
version: 1
name: typed
model: llama3-8b
cluster: {node: dgx-h100, nodes: 1}
training: {global_batch_size: 8, micro_batch_size: 1, seq_length: 2048, precision: bf16}
strategy: {zero_stage: 3, recompute: full}
"""

EXPERTS = """\
version: 1
name: experts
model: qwen3-30b-a3b
cluster: {node: dgx-b200, nodes: 1}
training: {global_batch_size: 16, micro_batch_size: 1, seq_length: 4096, precision: fp8}
strategy: {ep: 8}
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("typed") / "typed.yaml"
    path.write_text(TYPED, encoding="utf-8")
    return str(path)


def trained(source: str, *overrides: str, changes: bool = True) -> Explanation:
    found = explain(source, overrides, changes=changes)
    assert isinstance(found, Explanation)
    return found


@pytest.fixture(scope="module")
def typed(file: str) -> Explanation:
    return trained(file)


def test_an_effect_is_what_a_replay_with_the_other_value_takes(typed: Explanation, file: str) -> None:
    assert {each.key for each in typed.unsaid} >= {"training.kernels", "training.attention"}
    for each in typed.unsaid:
        other = run(file, set=each.overrides)
        assert each.step_time_s == other.step_time_s
        assert each.change_fraction == pytest.approx(other.step_time_s / typed.result.step_time_s - 1.0)


def test_the_setting_that_decides_most_comes_first_and_small_ones_are_left_out(typed: Explanation) -> None:
    sizes = [abs(each.change_fraction) for each in typed.unsaid]

    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] >= LEAST


def test_a_setting_that_is_given_or_does_nothing_is_not_among_them(file: str) -> None:
    found = trained(file, "training.kernels=eager").unsaid

    # There is one rank in each tensor-parallel group.
    assert {"training.kernels", "strategy.sequence_parallel", "strategy.overlap_tp"}.isdisjoint(each.key for each in found)


def test_what_a_preset_says_is_given(file: str) -> None:
    keys = {each.key for each in trained(file, "strategy.preset=torchtitan").unsaid}

    assert "strategy.data_parallel.overlap" not in keys


def test_they_are_told_with_the_option_that_says_them(typed: Explanation) -> None:
    first = typed.unsaid[0]

    assert typed.lines()[-2] == f"Left to its default, and changes the step most: {first.sentence}."
    assert first.sentence.endswith(f": -s {first.key}={first.other}")
    (table,) = [each for each in typed.tables() if each.heading.startswith("Settings left to their defaults")]
    assert table.rows[0][:3] == (first.key, first.value, first.other)
    shown = typed.to_dict()["unsaid"]
    assert isinstance(shown, list)
    assert len(shown) == len(typed.unsaid)


def test_without_changes_none_is_replayed(file: str) -> None:
    assert trained(file, changes=False).unsaid == ()


def test_graphs_of_experts_are_tried_with_all_kernels_and_none() -> None:
    asked = ("cluster.node=dgx-b200", "training.precision=fp8")
    found = alternatives(built(*asked, model="mixtral-8x7b", strategy={"ep": 8}, training={"global_batch_size": 64, "seq_length": 256}))

    assert {other for key, value, other in found if (key, value) == ("training.cuda_graphs", "[attention, router]")} == {"true", "false"}


def test_a_setting_that_brings_others_is_told_with_them_and_is_their_reason_where_it_is_said(tmp_path: Path) -> None:
    file = tmp_path / "experts.yaml"
    file.write_text(EXPERTS, encoding="utf-8")
    dispatch, graphs = "strategy.dispatch=all_to_all", "training.cuda_graphs"

    unsaid = {each.overrides: each for each in trained(str(file)).unsaid}
    said = trained(str(file), dispatch)

    assert "; with all_to_all, which brings cuda_graphs false, the step is " in unsaid[dispatch,].sentence
    assert unsaid[dispatch,].step_time_s == said.result.step_time_s
    assert any(each.taken == "false, since dispatch all_to_all is said" for each in said.unsaid if each.key == graphs)
    assert said.gains is not None
    assert (f"{graphs}=[attention, router]",) in [gain.change.overrides for gain in said.gains.best]
