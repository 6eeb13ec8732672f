"""Spread of tokens over experts, by law or by file."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from clustersim.apps.run.rundir import write_run_directory
from clustersim.apps.run.running import run
from clustersim.config.build import Built, build
from clustersim.config.load import load_scenario
from clustersim.config.scenario_schema import Amount, LoadAmount
from clustersim.documents.text import Data
from clustersim.errors import ScenarioError
from tests.unit.config.samples import built, refusal, small

MIXTURE: dict[str, Data] = {
    "num_hidden_layers": 2,
    "hidden_size": 512,
    "num_attention_heads": 8,
    "vocab_size": 4096,
    "max_position_embeddings": 1024,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 256,
}
EVEN = "expert,tokens\n0,1\n1,1\n2,1\n3,1\n"


def with_file(folder: Path, text: str, **strategy: Data) -> Built:
    """Return a small mixture whose load is in a file beside the scenario."""
    (folder / "load.csv").write_text(text, encoding="utf-8")
    sections = small(model=MIXTURE, strategy={"ep": 4, "expert_load": str(folder / "load.csv"), **strategy})
    return build(load_scenario(sections))


def refused(folder: Path, text: str) -> ScenarioError:
    with pytest.raises(ScenarioError) as caught:
        with_file(folder, text)
    return caught.value


def test_a_file_without_layers_holds_for_all(tmp_path: Path) -> None:
    load = with_file(tmp_path, "expert,tokens\n0,30\n1,10\n2,10\n3,10\n").plan.strategy.expert_load

    assert load.kind == "file"
    assert load.file == "load.csv"
    assert load.shares == ((0.5, *(pytest.approx(1 / 6),) * 3),) * 2


def test_a_file_with_layers_has_a_row_for_every_expert_of_each(tmp_path: Path) -> None:
    rows = [f"{layer},{expert},{expert + 1 if layer else 1}" for layer in (0, 1) for expert in range(4)]
    load = with_file(tmp_path, "\n".join(["layer,expert,tokens", *rows])).plan.strategy.expert_load

    assert load.shares == ((0.25,) * 4, (0.1, 0.2, 0.3, 0.4))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("expert,tokens\n0,1\n1,1\n3,1\n", "no row for expert 2"),
        ("expert,tokens\n0,1\n", "no row for experts 1, 2, 3"),
        ("layer,expert,tokens\n0,0,1\n0,1,1\n0,2,1\n0,3,1\n", "no row for experts 0, 1, 2, 3 of layer 1"),
        (EVEN + "1,5\n", "line 6: expert 1 stands there twice"),
        ("expert,tokens\n9,1\n", "line 2: expert '9' is not a number from 0 to 3"),
        ("expert,tokens\n-1,1\n", "line 2: expert '-1'"),
        ("expert,tokens\n0,many\n", "line 2: 'many' is not a number of tokens"),
        ("expert,tokens\n0,-3\n", "line 2: '-3' is not a number of tokens"),
        ("expert,tokens\n0,nan\n", "line 2: 'nan'"),
        ("expert,tokens\n0,0\n1,0\n2,0\n3,0\n", "sends no tokens to any expert"),
        ("", "no columns expert and tokens"),
        ("layer,tokens\n0,1\n", "no columns expert and tokens"),
        ("layer,expert,tokens\n7,0,1\n", "line 2: layer '7' is not a number from 0 to 1"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    error = refused(tmp_path, text)

    assert error.field == "strategy.expert_load"
    assert words in error.message


def test_a_file_that_is_not_there_is_refused() -> None:
    error = refusal(model=MIXTURE, strategy={"expert_load": "nowhere.csv"})

    assert error.field == "strategy.expert_load"
    assert "there is no file 'nowhere.csv'" in error.message


def test_a_law_without_a_skew_says_which_is_assumed() -> None:
    flags = {flag.code for flag in built(model=MIXTURE, strategy={"ep": 2, "expert_load": "zipf"}).flags}

    assert "assumed_expert_skew" in flags


@pytest.mark.parametrize("load", ["balanced", "load.csv"])
def test_a_skew_that_nothing_takes_is_refused(tmp_path: Path, load: str) -> None:
    (tmp_path / "load.csv").write_text(EVEN, encoding="utf-8")
    name = load if load == "balanced" else str(tmp_path / load)
    error = refusal(model=MIXTURE, strategy={"expert_load": name, "expert_skew": 2.0})

    assert error.field == "strategy.expert_skew"


def test_the_hot_rank_is_named_and_waited_for() -> None:
    report = run(small(model=MIXTURE, strategy={"ep": 4, "expert_load": "zipf"})).metrics.experts
    assert report is not None

    assert report.hot_ranks.startswith("ranks 0")
    assert (report.hottest_expert, report.hot_layers_fraction) == (0, 1.0)
    assert report.rank_skew > 1.5
    assert report.waited_s > 0.0


def test_dropped_tokens_are_counted() -> None:
    report = run(small(model=MIXTURE, strategy={"ep": 4, "expert_load": "zipf", "expert_capacity": 1.0})).metrics.experts
    assert report is not None

    # Shares 12/25, 6/25, 4/25 and 3/25; the first and second experts keep a quarter each: (0.48 - 0.25) = 0.23 is dropped.
    assert report.dropped_fraction == pytest.approx(0.23, abs=1e-3)


def test_another_seed_draws_another_load() -> None:
    scenario = small(model=MIXTURE, strategy={"ep": 4, "expert_load": "dirichlet"})
    first, again, other = (run(scenario, seed=seed) for seed in (0, 0, 1))

    assert first.metrics.experts == again.metrics.experts
    assert first.metrics.experts != other.metrics.experts


def test_an_even_load_has_no_straggler() -> None:
    report = run(small(model=MIXTURE, strategy={"ep": 4})).metrics.experts
    assert report is not None

    assert (report.rank_skew, report.waited_s, report.hot_ranks) == (1.0, 0.0, "")


def test_a_run_keeps_the_file_and_runs_again_to_the_same_hash(tmp_path: Path) -> None:
    (tmp_path / "load.csv").write_text("expert,tokens\n0,30\n1,10\n2,10\n3,10\n", encoding="utf-8")
    scenario = small(model=MIXTURE, strategy={"ep": 4, "expert_load": str(tmp_path / "load.csv")})
    result = run(scenario)
    folder = write_run_directory(result, tmp_path / "runs", plots=False)

    assert (folder / "load.csv").read_text(encoding="utf-8").startswith("expert,tokens")
    assert run(folder / "resolved.yaml").scenario_hash == result.scenario_hash


def test_what_stands_in_the_file_is_part_of_the_hash(tmp_path: Path) -> None:
    scenario = small(model=MIXTURE, strategy={"ep": 4, "expert_load": str(tmp_path / "load.csv")})
    hashes: set[str] = set()
    for hot in (10, 20):
        (tmp_path / "load.csv").write_text(f"expert,tokens\n0,{hot}\n1,10\n2,10\n3,10\n", encoding="utf-8")
        hashes.add(run(scenario).scenario_hash)

    assert len(hashes) == 2


FIELD: TypeAdapter[Amount] = TypeAdapter(LoadAmount)


@pytest.mark.parametrize(("text", "rate"), [("40 Gbit/s", 5e9), ("12.5 GB/s", 12.5e9)])
def test_a_rate_is_the_same_on_every_link(text: str, rate: float) -> None:
    load = FIELD.validate_python(text)

    assert load.on(1e9) == load.on(4e10) == rate


@pytest.mark.parametrize("text", ["50 %", "50%", " 50.0 % "])
def test_a_share_is_of_each_link(text: str) -> None:
    load = FIELD.validate_python(text)

    assert (load.on(1e9), load.on(4e10)) == (5e8, 2e10)


@pytest.mark.parametrize("text", ["40 Gbit/s", "50 %", "100 %", "12.5 %", "33.333333333333336 %", "0.07 %", "29 %", "58.1 %"])
def test_what_is_written_back_means_the_same(text: str) -> None:
    load = FIELD.validate_python(text)

    assert FIELD.validate_python(FIELD.dump_python(load, mode="json")) == load


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("0 %", "'0 %' is not a share above 0 % and at most 100 %"),
        ("101 %", "'101 %' is not a share above 0 % and at most 100 %"),
        ("-5 %", "'-5 %' is not a share above 0 % and at most 100 %"),
        ("nan %", "'nan %' is not a share above 0 % and at most 100 %"),
        ("half %", "'half %' is not a share above 0 % and at most 100 %"),
        ("0 Gbit/s", "a load of nothing is none"),
        ("5 GB", "'5 GB' is not a bandwidth"),
        ("0.5", "0.5 has no unit"),
        (0.5, "0.5 has no unit"),
        (None, "an empty value is not a bandwidth"),
    ],
)
def test_what_is_no_load_is_refused(value: object, message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        FIELD.validate_python(value)

    (error,) = caught.value.errors()
    assert error["msg"] == message
    assert error.get("ctx", {})["hint"] == "write it such as '40 Gbit/s' or '50 %'"
