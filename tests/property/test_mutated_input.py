"""Whatever is changed in a good scenario or a command line: an exit code of the promise, one error, no traceback."""

from __future__ import annotations

import io
from copy import deepcopy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.config.cost_section import CostSpec
from clustersim.config.goodput_section import ReliabilitySpec
from clustersim.config.scenario_schema import ClusterSpec, ScenarioSpec
from clustersim.config.yaml_text import yaml_text
from clustersim.documents.text import Data
from clustersim.hardware.profile_schema import FabricChange, NicsChange, ScaleUpChange
from clustersim.parallel.settings import key_of
from clustersim.parallel.step_settings import DataParallelSettings, Training
from clustersim.parallel.training_plan import StrategySettings
from tests.property.commands import command, ends_well, folder_with, is_one_clean_refusal, run
from tests.unit.config.samples import MODEL, TEXT, small

pytestmark = pytest.mark.slow

FEW = settings(max_examples=60, deadline=None)
MANY = settings(max_examples=250, deadline=None)


@given(st.binary(max_size=400))
@FEW
def test_garbage_is_refused(raw: bytes) -> None:
    is_one_clean_refusal(run(raw), left=["scenario.yaml"])


@given(st.text(alphabet=st.sampled_from("abc01 :-[]{}#&*!|>'\"%@`?,\n\t\r\\.~<=é\u2028"), max_size=60))
@MANY
def test_text_made_of_yaml_signs_is_refused(text: str) -> None:
    is_one_clean_refusal(run(text), left=["scenario.yaml"])


@st.composite
def edited(draw: st.DrawFn) -> str:
    """Return a good scenario after a few slips of the hand."""
    text = TEXT
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        n_removed = draw(st.integers(0, 12))
        added = draw(st.text(alphabet=st.sampled_from("atp012: -\n[]{}#.xe'"), max_size=6))
        text = text[:at] + added + text[at + n_removed :]
    return text


@given(edited())
@MANY
def test_a_scenario_with_slips_runs_or_is_refused(text: str) -> None:
    ends_well(run(text, "--dry-run"))


SECTIONS = {
    "": ScenarioSpec,
    "cluster.": ClusterSpec,
    "cluster.fabric.": FabricChange,
    "cluster.nics.": NicsChange,
    "cluster.scale_up.": ScaleUpChange,
    "reliability.": ReliabilitySpec,
    "cost.": CostSpec,
    "training.": Training,
    "strategy.": StrategySettings,
    "strategy.data_parallel.": DataParallelSettings,
}
KEYS = [
    *(f"{prefix}{key_of(name, field)}" for prefix, model in SECTIONS.items() for name, field in model.model_fields.items()),
    *(f"model.{key}" for key in MODEL),
]
NUMBERS: list[Data] = [
    0,
    -1,
    1,
    2,
    3,
    7,
    8,
    64,
    1000,
    999_983,
    10**9,
    10**30,
    -(10**30),
    0.5,
    1e300,
    1e-300,
    1e308,
    5e-324,
    True,
    False,
    None,
]
WORDS: list[Data] = [
    "",
    "x",
    "auto",
    "none",
    "1f1b",
    "gpipe",
    "naive",
    "interleaved_1f1b",
    "full",
    "fp8",
    "fp32",
    "é",
    "hf:x",
    "../x",
    "a" * 5000,
    "\ud800",
    "/dev/zero",
    "/dev/zero.csv",
]
QUANTITIES: list[Data] = [
    "0 B",
    "5 GB",
    "1e300 EB",
    "1 us",
    "100 years",
    "9e99999 GB",
    "50%",
    "1e300 B/s",
    "1e-300 B/s",
    "1e300 s",
    "1e-300 s",
    "1e300 USD",
    "1e15 s",
]
SHIPPED: list[Data] = ["superpod-h100", "dgx1-v100-16g", "gb200-nvl72", "gpt2", {"name": "superpod-h100"}]
NESTED: list[Data] = [[], {}, [1], [[]], {"a": 1}, {"count": 1}, ["mfu > 0"], ["mfu > 1e999"]]
VALUES = NUMBERS + WORDS + QUANTITIES + SHIPPED + NESTED


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """Return a good scenario in which some values are others."""
    data = small()
    for key in draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=3)):
        *way, last = key.split(".")
        here: Data = data
        for part in way:
            below = here.setdefault(part, {})
            here = below if isinstance(below, dict) else {}
        here[last] = deepcopy(draw(st.sampled_from(VALUES)))
    return yaml_text(data)


@given(mutated())
@settings(max_examples=500, deadline=None)
def test_a_scenario_with_other_values_is_built_or_refused(text: str) -> None:
    ends_well(run(text, "--dry-run"))


@given(mutated())
@FEW
def test_a_scenario_with_other_values_runs_or_is_refused(text: str) -> None:
    ends_well(run(text))


@given(st.sampled_from(KEYS), st.text(max_size=20))
@FEW
def test_anything_given_to_set_is_taken_or_refused(key: str, value: str) -> None:
    with folder_with(TEXT.encode()):
        outcome = command("run", "scenario.yaml", "--dry-run", "-s", f"{key}={value}")

    assert outcome.code in {0, 2}, outcome.err
    assert "Traceback" not in outcome.err
    assert outcome.left == ["scenario.yaml"]


@given(
    st.lists(
        st.one_of(st.sampled_from(["run", "show", "--json", "-s", "-o", "--seed", "--dry-run", "nodes", "--", "-"]), st.text(max_size=8)),
        max_size=5,
    )
)
@FEW
def test_any_command_line_ends_with_a_code_of_the_promise(words: list[str]) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(b""), encoding="utf-8")
    with folder_with(None), pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", stdin)
        outcome = command(*(word for word in words if word not in {"--install-completion", "--show-completion"}))

    assert outcome.code in {0, 1, 2}, outcome.err
    assert "Traceback" not in outcome.err
