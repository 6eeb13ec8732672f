"""Files for frameworks, engines and schedulers, read back as the same job."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from clustersim.apps.importing.entries import ImportOptions
from clustersim.apps.importing.importing import Imported, import_files
from clustersim.apps.plan.exports import written
from clustersim.config.serving_scenario import ServingScenario, load_serving
from clustersim.errors import DomainError, InfeasibleError

QUICK = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])


def read_back(text: str, options: ImportOptions) -> Imported:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "job"
        path.write_text(text, encoding="utf-8")
        return import_files([str(path)], options)


NAMES: Final = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt_llm"}
"""Engines by the name that a deployment is written under."""
lengths = st.integers(1, 4096)
serving = st.fixed_dictionaries(
    {"tp": st.sampled_from([1, 2, 4, 8]), "precision": st.sampled_from(["bf16", "fp8"]), "kv_precision": st.sampled_from(["bf16", "fp8"])},
    optional={
        "max_num_seqs": st.integers(1, 512),
        "max_batched_tokens": st.integers(2048, 16384),
        "memory_fraction": st.sampled_from([0.8, 0.85, 0.92]),
        "prefix_cache": st.just(False),
        "asynchronous": st.just(False),
        "pp": st.sampled_from([1, 2]),
    },
)
requests = st.one_of(
    st.fixed_dictionaries({"arrival": st.just("poisson"), "rate": st.integers(1, 50).map(lambda rate: f"{rate} /s")}),
    st.fixed_dictionaries({"arrival": st.just("closed"), "concurrency": st.integers(1, 256)}),
    st.just({"arrival": "at_once"}),
)


@pytest.mark.parametrize("engine", NAMES)
@QUICK
@given(
    deployment=serving,
    sent=requests,
    sizes=st.tuples(lengths, lengths, st.integers(1, 5000)),
    replicas=st.sampled_from([1, 1, 2, 4]),
    own=st.none() | st.just(0) | st.integers(0, 4096),
)
def test_a_written_deployment_is_read_back(
    engine: str, deployment: dict[str, object], sent: dict[str, object], sizes: tuple[int, int, int], replicas: int, own: int | None
) -> None:
    asked, answered, count = sizes
    if own is not None:
        deployment |= {"max_graph_tokens": own} | ({"receive_interval": own + 1} if engine == "sglang" else {})
    document: dict[str, object] = {
        "name": "drawn",
        "model": "llama3.1-8b",
        "cluster": {"node": "hgx-h200", "nodes": 1},
        # One server of TensorRT-LLM is one replica.
        "serving": {"engine": NAMES[engine], "replicas": 1 if engine == "trtllm" else replicas, **deployment},
        "requests": {**sent, "count": count, "input_tokens": asked, "output_tokens": answered},
    }
    try:
        scenario = load_serving(document)
        text = written(scenario, engine).text
    except DomainError:
        assume(False)

    found = read_back(text, ImportOptions(cluster="hgx-h200"))

    assert isinstance(found.scenario, ServingScenario)
    assert found.scenario.spec.serving == scenario.spec.serving
    assert found.scenario.spec.requests == scenario.spec.requests
    assert found.scenario.spec.model == scenario.spec.model


@pytest.mark.parametrize("engine", NAMES)
@QUICK
@given(
    tp=st.sampled_from([1, 2, 4, 8]),
    dp=st.sampled_from([1, 2, 8, 16]),
    copies=st.sampled_from([0, 0, 32]),
    divides_experts=st.booleans(),
    limit=st.sampled_from([None, 64, 256]),
)
def test_a_written_layout_of_experts_is_read_back(
    engine: str, tp: int, dp: int, copies: int, *, divides_experts: bool, limit: int | None
) -> None:
    serving: dict[str, object] = {"engine": NAMES[engine], "replicas": 1, "tp": tp, "dp": dp, "ep": tp * dp if divides_experts else 1}
    copied = copies and divides_experts and tp * dp > 1 and engine != "trtllm"
    serving |= {"redundant_experts": copies} if copied else {}
    serving |= {} if limit is None else {"max_num_seqs": limit}
    document: dict[str, object] = {
        "name": "drawn",
        "model": "deepseek-v3",
        "cluster": {"node": "hgx-h200", "nodes": -(-tp * dp // 8)},
        "serving": {"precision": "fp8_block", **serving},
        "requests": {"arrival": "closed", "concurrency": 64, "count": 100, "input_tokens": 1024, "output_tokens": 128},
    }
    try:
        scenario = load_serving(document)
        text = written(scenario, engine).text
    except (DomainError, InfeasibleError):
        assume(False)

    found = read_back(text, ImportOptions(cluster="hgx-h200"))

    assert isinstance(found.scenario, ServingScenario)
    assert found.scenario.spec.serving == scenario.spec.serving
    assert [key.key for key in found.keys if key.how == "unknown"] == []


@QUICK
@given(least=lengths, spread=st.integers(1, 2000), engine=st.sampled_from([*NAMES]))
def test_lengths_of_one_spread_are_read_back(least: int, spread: int, engine: str) -> None:
    ends = [least, least + 2 * spread]
    document: dict[str, object] = {
        "name": "drawn",
        "model": "llama3.1-8b",
        "cluster": {"node": "hgx-h200", "nodes": 1},
        "serving": {"engine": NAMES[engine]},
        "requests": {"arrival": "at_once", "count": 10, "input_tokens": {"uniform": ends}, "output_tokens": {"uniform": ends}},
    }
    scenario = load_serving(document)

    found = read_back(written(scenario, engine).text, ImportOptions(cluster="hgx-h200"))

    assert isinstance(found.scenario, ServingScenario)
    assert found.scenario.spec.requests == scenario.spec.requests


@pytest.mark.parametrize(("precision", "untold"), [("fp8_block", []), ("bf16", ["no option says serving.precision: bf16"])])
def test_the_precision_of_a_checkpoint_and_defaults_of_the_engine_need_no_option(precision: str, untold: list[str]) -> None:
    document: dict[str, object] = {
        "name": "checkpoint",
        "model": "deepseek-v3",
        "cluster": {"node": "hgx-h200", "nodes": 2},
        "serving": {"engine": "sglang", "tp": 16, "precision": precision, "prefix_cache": True, "asynchronous": True},
        "requests": {"arrival": "at_once", "count": 10, "input_tokens": 100, "output_tokens": 100},
    }

    notes = written(load_serving(document), "sglang").notes

    assert [note for note in notes if note.startswith("no option says")] == untold
