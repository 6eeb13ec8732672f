"""The highest published MFU of each class is what the shipped sources give, and the page on the search shows them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from clustersim.apps.plan.answer import plan_for
from clustersim.apps.plan.asking import asked_of
from clustersim.apps.run.intervals import MFU, residuals_path, shipped_highest
from clustersim.apps.validate.sources import read_source
from clustersim.config.build import build
from clustersim.config.load import load_scenario
from clustersim.report.facts import percent_text
from tests.published.published_mfu import highest_published, markdown_table, published_mfu_table, published_mfu_text

PAGE = Path(__file__).parents[2] / "docs" / "theory" / "search.md"
_TABLE = re.compile(r"(?<=<!-- published MFU -->\n).*?(?=<!-- /published MFU -->)", re.DOTALL)
_WINNERS = re.compile(r"(?<=<!-- MFU of winners -->\n).*?(?=<!-- /MFU of winners -->)", re.DOTALL)


@pytest.mark.slow
def test_the_shipped_highest_mfu_are_those_of_the_shipped_sources(request: pytest.FixtureRequest) -> None:
    text = published_mfu_text(highest_published())
    if request.config.getoption("--update-golden"):
        residuals_path(MFU).write_text(text, encoding="utf-8")
        return

    assert residuals_path(MFU).read_text(encoding="utf-8") == text, "run pytest --update-golden"


def test_the_page_on_the_search_shows_the_shipped_table(request: pytest.FixtureRequest) -> None:
    page, table = PAGE.read_text(encoding="utf-8"), f"{published_mfu_table(shipped_highest())}\n"
    if request.config.getoption("--update-golden"):
        PAGE.write_text(_TABLE.sub(lambda _: table, page), encoding="utf-8")
        return

    assert _TABLE.findall(page) == [table], "run pytest --update-golden"


def test_the_mfu_of_a_published_run_is_the_one_that_its_source_prints() -> None:
    (found,) = highest_published([read_source("korthikanti-2022")])

    # Table 5 prints 51.4 % for 175 billion parameters with selective recomputation, 56.0 % for 530 and 56.3 % for 1,000.
    printed = {"kor-t5-175b-selective": 0.514, "kor-t5-530b-selective": 0.560, "kor-t5-1t-selective": 0.563}
    assert found.mfu == pytest.approx(printed[found.row], abs=0.002)


_SEARCHED = {
    "fms-7b-a100": ("fms-fsdp", "llama2-7b", "dgx-a100-80g", 16, ("cluster.nics={model: cx6-roce-100g, count: 4}",)),
    "fms-13b-a100": ("fms-fsdp", "llama2-13b", "dgx-a100-80g", 16, ("cluster.nics={model: cx6-roce-100g, count: 4}",)),
    "dgxc-25.02.02-llama8b-h100-bf16-8-gbs128": ("dgxc-nemo", "llama3-8b", "dgx-h100", 1, ()),
    "dgxc-25.02.02-llama70b-h100-bf16-64-gbs128": ("dgxc-nemo", "llama3-70b", "dgx-h100", 8, ()),
    "mb-25.11-llama3-8b-b200-8-fp8-cs-128": ("megatron-bridge", "llama3-8b", "dgx-b200", 1, ("training.precision=fp8",)),
}
"""Published runs that have the highest MFU of their model and machine, and how to ask for a layout of the same."""


@pytest.mark.slow
def test_winners_of_a_search_come_near_the_highest_mfu_published_of_their_model_and_machine(
    request: pytest.FixtureRequest,
) -> None:
    rows: list[tuple[str, ...]] = []
    for row_id, (source_id, model, node, n_nodes, changes) in _SEARCHED.items():
        source = read_source(source_id)
        index = next(place for place, row in enumerate(source.spec.rows) if row.id == row_id)
        (published,) = highest_published([replace(source, spec=source.spec.model_copy(update={"rows": [source.spec.rows[index]]}))])
        training = build(load_scenario(source.alternatives(index)[0])).plan.training
        sizes = (f"training.global_batch_size={training.global_batch_size}", f"training.seq_length={training.seq_length}")
        answer = plan_for(asked_of(model, node, nodes=n_nodes, overrides=(*changes, *sizes)))
        winner = answer.search.winner
        assert winner is not None
        ratio = winner.result.metrics.mfu / published.mfu
        # Nobody has tried all layouts: a winner may be better, as where the published run recomputes half of its layers and need not.
        assert 0.9 <= ratio <= 1.15
        mfu = (percent_text(published.mfu), percent_text(winner.result.metrics.mfu))
        rows.append((f"{model}, {n_nodes} {node}", *mfu, winner.layout.words(), f"`{row_id}`"))
    table = f"{markdown_table(('model and machine', 'published', 'winner', 'layout of the winner', 'published run'), rows)}\n"
    page = PAGE.read_text(encoding="utf-8")
    if request.config.getoption("--update-golden"):
        PAGE.write_text(_WINNERS.sub(lambda _: table, page), encoding="utf-8")
        return

    assert _WINNERS.findall(page) == [table], "run pytest --update-golden"
