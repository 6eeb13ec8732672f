"""A serving scenario, from its text to its result and its errors."""

from __future__ import annotations

import json
import re
from math import log
from pathlib import Path
from typing import Any

import pytest

import clustersim
from clustersim.apps.collective.collective_times import CollectiveRequest, collective_cluster, collective_rows
from clustersim.apps.serve.deployment import build_serving
from clustersim.apps.serve.serving_result import ServingResult
from clustersim.apps.study.calling import sweep
from clustersim.config.load import example_names
from clustersim.config.serving_scenario import RequestsSpec, ServingSpec, SloSpec, load_serving, serving_json_schema
from clustersim.errors import EXIT_NO, EXIT_OK, InfeasibleError, ScenarioError
from clustersim.measure.serving_metrics import ServingMetrics

CHAT: dict[str, Any] = {
    "version": 1,
    "name": "chat",
    "model": "llama3.1-8b",
    "cluster": {"node": "dgx-h100", "nodes": 1},
    "serving": {"engine": "vllm", "replicas": 1},
    "requests": {"arrival": "poisson", "rate": "5 /s", "count": 60, "input_tokens": 500, "output_tokens": {"uniform": [20, 60]}},
}
KEYS = {
    *("schema_version", "scenario", "gpus", "replicas", "requests", "duration_s", "requests_per_s", "output_tokens_per_s"),
    *("total_tokens_per_s", "output_tokens_per_s_per_gpu", "ttft_s", "tpot_s", "itl_s", "e2e_s", "slo", "kv", "batch", "step_s"),
    *("memory", "links", "cost", "energy", "engine", "flags"),
}


def chat(**sections: dict[str, Any]) -> dict[str, Any]:
    return CHAT | {name: CHAT.get(name, {}) | section for name, section in sections.items()}


def run(**sections: dict[str, Any]) -> ServingResult:
    result = clustersim.run(chat(**sections))
    assert isinstance(result, ServingResult)
    return result


def test_a_result_has_every_key_that_was_promised() -> None:
    document = run(slo={"ttft_p99": "2 s"}, cost={"gpu_hour": "2 USD"}).to_dict()
    assert document.keys() >= KEYS
    assert set(document["ttft_s"]) == {"mean", "p50", "p90", "p99"}  # pyright: ignore[reportArgumentType]
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_equal_runs_are_equal_and_another_seed_is_another_run() -> None:
    first, second = run().to_dict(), run().to_dict()
    del first["engine"], second["engine"]
    assert first == second
    other = clustersim.run(CHAT, seed=1).to_dict()
    assert other["ttft_s"] != first["ttft_s"]


def test_tokens_out_are_the_tokens_asked_for() -> None:
    result = run()
    asked = int(result.run.requests.output_tokens.sum())
    assert result.metrics.output_tokens_per_s * result.metrics.duration_s == pytest.approx(asked, rel=1e-12)


def test_the_terms_of_a_step_sum_to_its_duration() -> None:
    step = run().metrics.step_s
    assert sum(step.by_term.values()) == pytest.approx(step.mean, rel=1e-9)


def test_every_step_by_itself_gives_the_same_document() -> None:
    documents = [clustersim.run(CHAT, repeat=repeat).to_dict() for repeat in (True, False)]
    for document in documents:
        del document["engine"]
    assert documents[0] == documents[1]


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt_llm", "static", "vllm@0.6", "tensorrt_llm@1.0.0rc2"])
def test_the_resolved_scenario_is_the_same_run(engine: str) -> None:
    result = run(serving={"engine": engine})
    first, again = result.to_dict(), clustersim.run(result.resolved).to_dict()
    assert [again[key] for key in ("scenario_hash", "e2e_s")] == [first[key] for key in ("scenario_hash", "e2e_s")]


def test_the_resolved_scenario_has_the_limits_of_each_rank() -> None:
    result = run(serving={"dp": 2, "max_num_seqs": 8})
    first, again = result.to_dict(), clustersim.run(result.resolved).to_dict()
    assert [again[key] for key in ("scenario_hash", "e2e_s")] == [first[key] for key in ("scenario_hash", "e2e_s")]


def test_an_engine_that_nobody_can_run_like_this_is_flagged() -> None:
    assert "extrapolated_engine" in [flag.code for flag in run(serving={"engine": "sglang@0.2"}).flags]
    assert "engine_not_released" in [flag.code for flag in run(serving={"engine": "tensorrt_llm"}, cluster={"node": "mi300x-oam"}).flags]


@pytest.mark.parametrize("name", example_names(serving=True))
def test_a_shipped_example_runs(name: str) -> None:
    result = clustersim.run(name, set=["requests.count=80", "requests.warmup=10"])
    assert result.ok


def test_a_closed_loop_keeps_as_many_requests_under_way_as_it_has_clients() -> None:
    result = run(requests={"arrival": "closed", "rate": None, "concurrency": 4, "warmup": 8, "input_tokens": 100, "output_tokens": 50})
    assert result.metrics.requests.measured == 52
    assert result.metrics.batch.mean_sequences <= 4.0


def test_static_batches_give_the_same_keys() -> None:
    static = clustersim.run(chat(serving={"engine": "static"}, requests={"arrival": "at_once", "rate": None, "count": 16}))
    assert static.to_dict().keys() == run().to_dict().keys()


def test_overload_is_an_answer_and_not_an_error() -> None:
    busy = run(requests={"rate": "400 /s", "count": 1500})
    assert busy.metrics.overloaded
    assert "tokens/s at full load" in str(busy)
    assert "overload" in {flag.code for flag in busy.flags}
    assert not run().metrics.overloaded


def apart(**more: Any) -> ServingResult:
    """Run prompts on two accelerators of one node, and answers on two of another; ``more`` are sections."""
    pools = {"prefill": {"tp": 8}, "decode": {"tp": 8}, "transfer": "prompt"}
    serving = {"disaggregated": pools, "engine": "vllm"}
    cluster = {"node": "dgx-h100", "nodes": 2, **more.pop("cluster", {})}
    return clustersim.run({**chat(), "serving": serving, "cluster": cluster, **more})  # pyright: ignore[reportReturnType]


def test_memory_of_each_pool_is_accounted_for_to_the_last_byte() -> None:
    memory = apart().metrics.memory
    for pool in (memory.by_pool[0], memory.by_pool[1]):
        assert sum(pool.by_category.values()) == pytest.approx(memory.capacity_bytes, rel=1e-9)


@pytest.mark.parametrize(
    "more",
    [
        {"cluster": {"links": [{"between": ["node0/nic0", "leaf0"], "fraction": 0.1}]}},
        {"background": [{"links": ["node0/nic*/tx"], "load": "90 %", "flows": 9}]},
    ],
)
def test_kv_caches_wait_on_a_degraded_link_and_for_loads_of_others(more: dict[str, Any]) -> None:
    plain, slow = apart().metrics.transfers, apart(**more).metrics.transfers

    assert plain is not None
    assert slow is not None
    assert slow.bytes == plain.bytes
    assert slow.mean_s > 1.5 * plain.mean_s


def test_a_straggler_slows_its_replica_and_no_other() -> None:
    plain = apart()
    slow = apart(cluster={"stragglers": [{"ranks": 12, "slowdown": 1.5}]})

    assert slow.metrics.tpot_s is not None
    assert plain.metrics.tpot_s is not None
    assert slow.metrics.tpot_s.p50 == pytest.approx(1.5 * plain.metrics.tpot_s.p50, rel=0.1)
    assert slow.run.log.first_token[0] == plain.run.log.first_token[0]


def test_clocks_that_differ_slow_prompts_and_steps_that_vary_slow_answers() -> None:
    changed: list[dict[str, Any]] = [{}, {"clock_spread": 0.05}, {"jitter": "10 %"}]
    plain, spread, varied = (run(cluster=more, serving={"tp": 8}, requests={"input_tokens": 8000}) for more in changed)

    assert plain.metrics.step_s.prefill_mean is not None
    assert spread.metrics.step_s.prefill_mean is not None
    assert plain.metrics.step_s.prefill_mean < spread.metrics.step_s.prefill_mean < 1.1 * plain.metrics.step_s.prefill_mean
    assert plain.metrics.tpot_s is not None
    assert varied.metrics.tpot_s is not None
    assert plain.metrics.tpot_s.p50 < varied.metrics.tpot_s.p50 < 1.2 * plain.metrics.tpot_s.p50


def test_the_resolved_scenario_of_two_pools_is_the_same_run() -> None:
    first = apart(background=[{"links": ["node0/nic*/tx"], "load": "50 %"}], cluster={"stragglers": [{"ranks": 12, "slowdown": 1.5}]})

    assert clustersim.run(first.resolved).to_dict()["ttft_s"] == first.to_dict()["ttft_s"]


def test_collectives_beyond_a_domain_are_those_of_the_cluster() -> None:
    wide = {"model": "llama3.1-70b", "cluster": {"node": "dgx-h100", "nodes": 2}, "serving": {"engine": "tensorrt_llm", "tp": 16}}
    built = build_serving(load_serving(CHAT | wide))
    (row,), _ = collective_rows(collective_cluster("dgx-h100", 2, ()), CollectiveRequest(op="all_reduce", sizes_bytes=(28672.0,)))
    assert built.pools[0].model.collectives.all_reduce_s(28672.0, 16) == row.time_s
    assert "tp_across_fabric" in {flag.code for flag in built.flags}


def test_a_promise_that_nobody_can_keep_is_answered_with_no(tmp_path: Path) -> None:
    result = run(slo={"ttft_p99": "1 us"})
    assert not result.ok
    assert result.metrics.slo is not None
    assert result.metrics.slo.attained_fraction == 0.0


def test_weights_that_do_not_fit_are_answered_with_the_nearest_that_does() -> None:
    with pytest.raises(InfeasibleError, match="it fits with tp: 2"):
        clustersim.run(CHAT | {"model": "llama3.1-70b"})


def test_a_cache_smaller_than_every_request_is_answered_with_no() -> None:
    with pytest.raises(InfeasibleError, match="smaller than every request: the shortest has 5"):
        run(serving={"kv_tokens": 320})


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"requests": {"rate": "0 /s"}}, "requests.rate: nobody asks at a rate of 0"),
        ({"requests": {"input_tokens": 140_000}}, "requests.input_tokens: every request has 1400"),
        ({"requests": {"rate": "4"}}, "requests.rate: 4 has no unit"),
        ({"requests": {"concurrency": 4}}, "requests.concurrency: concurrency does nothing with arrival: poisson"),
        ({"requests": {"count": None}}, "requests.count: 'count' is missing"),
        ({"requests": {"warmup": 60}}, "requests.warmup: no request is left to measure"),
        ({"requests": {"arrival": "trace", "rate": None, "trace": "x.csv"}}, "requests.input_tokens: a trace brings the lengths"),
        ({"requests": {"output_tokens": {"lognormal": {"mean": 5, "p90": 3}}}}, "requests.output_tokens.lognormal.p90: p90 3 is below"),
        ({"serving": {"replicas": 9}}, "serving.replicas: 9 replicas of 1: that is 9 accelerators, and the cluster has 8"),
        ({"serving": {"tp": 3}}, "serving.tp: tp: 3 does not divide 32 attention heads"),
        ({"serving": {"ep": 3}}, "serving.ep: ep = 3 does not divide"),
        ({"serving": {"engine": "vlm"}}, "serving.engine: unknown engine 'vlm'"),
        ({"serving": {"engine": "vllm@nightly"}}, "serving.engine: 'nightly' is no version of vllm"),
        ({"serving": {"router": "best"}}, "serving.router: 'best' is no router"),
        ({"serving": {"max_num_seqs": 64, "max_batched_tokens": 32}}, "serving.max_batched_tokens: a budget of 32 tokens is less than 64"),
        ({"serving": {"chunked_prefill": False, "max_batched_tokens": 400, "max_num_seqs": 8}}, "a prompt of 500 tokens is longer"),
        ({"serving": {"speculative": {"draft_tokens": 2, "mean_tokens": 4.0}}}, "2 draft tokens yield at most 3 tokens"),
        (
            {"serving": {"replicas": None, "disaggregated": {"prefill": {"tp": 8}, "decode": {"tp": 2}}}},
            "serving.disaggregated: 1 prefill of 8 and 1 decode of 2: that is 10 accelerators",
        ),
        ({"training": {"seq_length": 1}}, "training: training stands beside serving"),
        ({"cluster": {"stragglers": [{"ranks": 8, "slowdown": 2}]}}, "cluster.stragglers.0.ranks: there is no rank 8"),
        ({"cluster": {"links": [{"between": ["node0/nic0", "leaf0"], "state": "down"}]}}, "cluster.links does nothing: collectives inside"),
        ({"serving": {"routr": "x"}}, "did you mean 'router'"),
    ],
)
def test_a_mistake_is_named_with_its_key(sections: dict[str, dict[str, Any]], message: str) -> None:
    changed = chat(**sections)
    with pytest.raises(ScenarioError, match=re.escape(message)):
        clustersim.run(
            {
                name: {key: value for key, value in part.items() if value is not None} if isinstance(part, dict) else part
                for name, part in changed.items()
            }
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("arrival_s,input_tokens\n0,5\n", "trace.csv:1: column output_tokens is missing"),
        ("arrival_s,input_tokens,output_tokens\n0,5,5\n-1,5,5\n", "trace.csv:3: arrival_s '-1' is not a time"),
        ("# a comment\narrival_s,input_tokens,output_tokens\n2,5,5\n1,5,5\n", "trace.csv:4: arrival_s is less than in the line before"),
        ("arrival_s,input_tokens,output_tokens\n0,5,0\n", "trace.csv:2: output_tokens '0' is not a number of tokens"),
        ("arrival_s,input_tokens,output_tokens,prefix_blocks\n0,5,5,a-b\n", "trace.csv:2: prefix_blocks has 'a-b'"),
        ("arrival_s,input_tokens,output_tokens\n", "holds no requests"),
    ],
)
def test_a_mistake_in_a_trace_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "trace.csv").write_text(text)
    scenario = {**CHAT, "requests": {"arrival": "trace", "trace": str(tmp_path / "trace.csv")}}
    with pytest.raises(ScenarioError, match=re.escape(message)):
        clustersim.run(scenario)


def test_a_request_for_training_names_serving(tmp_path: Path) -> None:
    from clustersim.config.load import load_scenario

    with pytest.raises(ScenarioError, match="serves requests and trains nothing"):
        load_scenario(CHAT)
    assert load_serving(CHAT).name == "chat"


def test_a_sweep_finds_the_rate_that_a_promise_allows() -> None:
    found = sweep(
        chat(requests={"count": 40}),
        over={"requests.rate": ["1 /s", "2 /s"]},
        where="ttft_s.p99 < 1 s",
    )
    assert [row.outcome.status for row in found.rows] == ["ok", "ok"]
    assert "output_tokens_per_s" in found.rows[0].outcome.figures


@pytest.mark.parametrize(
    ("serving", "reason"),
    [
        ({"engine": "tensorrt_llm", "dp": 2, "batch_wait": {"steps": 30, "budget_share": 0.9}}, "batch_wait .* under attention data"),
        ({"engine": "tensorrt_llm", "rank_wait": {}}, "rank_wait .* no attention data parallelism"),
        ({"engine": "static", "receive_interval": 30}, "receive_interval .* static has no such wait"),
        (
            {
                "engine": "tensorrt_llm",
                "batch_wait": {"steps": 30, "budget_share": 0.9},
                "disaggregated": {"prefill": {"replicas": 1}, "decode": {"replicas": 1}},
            },
            "batch_wait .* neither pool",
        ),
        ({"engine": "vllm", "tp": 2, "ep": 2}, "ep .* no experts"),
    ],
)
def test_a_setting_that_does_nothing_is_told_of_and_delays_nobody(serving: dict[str, Any], reason: str) -> None:
    without = {key: value for key, value in serving.items() if not key.endswith(("wait", "interval", "ep"))}

    asked, plain = (clustersim.run(CHAT | {"serving": each}) for each in (serving, without))

    assert [bool(re.match(reason, flag.message)) for flag in asked.flags if flag.code == "no_effect"] == [True]
    assert [asked.to_dict()[key] for key in ("ttft_s", "tpot_s")] == [plain.to_dict()[key] for key in ("ttft_s", "tpot_s")]


def page(name: str) -> str:
    return (Path(__file__).parents[3] / "docs" / name).read_text(encoding="utf-8")


def test_every_key_of_a_serving_scenario_and_of_its_result_is_described() -> None:
    text = page("reference/serving.md")
    described = set(re.findall(r"`([\w.]+)`", text))
    keys = {f"serving.{key}" for key in ServingSpec.model_fields if key not in {"disaggregated", "speculative", "batch_wait", "rank_wait"}}
    keys |= {f"requests.{key}" for key in RequestsSpec.model_fields}
    assert keys - described == set()
    results = {name for name in ServingMetrics.__dataclass_fields__ if not name.endswith("_per_gpu")}
    assert results - described == set()
    assert {name.partition("_")[0] for name in SloSpec.model_fields} <= described


def test_the_json_schema_knows_the_sections() -> None:
    schema = serving_json_schema()
    assert {"serving", "requests", "slo", "cluster"} <= set(schema["properties"])  # pyright: ignore[reportArgumentType]


def test_exit_codes_say_whether_promises_hold(tmp_path: Path) -> None:
    from clustersim.cli.app import main

    file = tmp_path / "chat.yaml"
    file.write_text(json.dumps(CHAT))
    options = ["run", str(file), "-q", "--no-plots", "-o", str(tmp_path / "runs")]
    assert main(options) == EXIT_OK
    assert main([*options, "-s", "slo.ttft_p99=1 us"]) == EXIT_NO
    assert main([*options, "-s", "model=llama3.1-70b"]) == EXIT_NO
    folder = next((tmp_path / "runs" / "chat").iterdir())
    assert {"results.json", "summary.md", "requests.csv", "steps.csv", "trace.json.gz", "manifest.json"} <= {
        each.name for each in folder.iterdir()
    }


def test_a_short_run_says_what_the_long_run_gives_and_how_many_requests_show_it() -> None:
    asked = {"rate": "20 /s", "count": 100, "input_tokens": 500, "output_tokens": 200}
    priced = {"cost": {"gpu_hour": "2 USD"}}
    short = run(requests=asked, **priced)
    (said,) = [flag.message for flag in short.flags if flag.code == "short_run"]
    found = re.search(r"gives 4,000 output tokens/s; requests.count=(\d+) brings", said)
    assert found is not None
    longer = run(requests=asked | {"count": int(found[1])}, **priced)
    assert "short_run" not in {flag.code for flag in longer.flags}
    assert longer.metrics.output_tokens_per_s == pytest.approx(4000.0, rel=0.05)
    for each in (short, longer):
        assert each.metrics.cost is not None
        assert each.metrics.cost.per_million_output_tokens.usd == pytest.approx(8 * 2.0 / (4000.0 * 3600e-6))


def test_a_run_of_which_every_measured_request_is_refused_is_an_answer() -> None:
    asked = {"rate": "1 /s", "count": 4, "warmup": 3, "input_tokens": {"uniform": [1000, 200_000]}, "output_tokens": 10}
    result = run(requests=asked)

    assert (result.metrics.requests.refused, result.metrics.requests.measured) == (1, 0)
    assert "short_run" not in {flag.code for flag in result.flags}


def test_requests_that_come_at_no_rate_make_no_short_run() -> None:
    closed = run(requests={"arrival": "closed", "rate": None, "concurrency": 8})
    assert "short_run" not in {flag.code for flag in closed.flags}


def test_a_short_run_beyond_the_full_load_promises_the_full_load() -> None:
    result = run(requests={"rate": "2000 /s", "count": 60, "output_tokens": 200})
    (said,) = [flag.message for flag in result.flags if flag.code == "short_run"]
    assert f"full batches give {result.metrics.full_load_output_tokens_per_s:,.0f} output tokens/s" in said


@pytest.mark.parametrize(
    ("node", "said", "wider"),
    [
        ("dgx-h100", "", False),
        ("pcie-l40s", "intervals are not wider", False),
        ("dgx2-v100-32g", " times as wide: constants of kernels are those of a100-sxm4-80g", True),
    ],
)
def test_the_interval_of_a_service_grows_with_kernels_that_another_generation_lends(node: str, said: str, wider: bool) -> None:
    result = run(cluster={"node": node})
    messages = {flag.code: flag.message for flag in result.flags}
    assert ("interval_not_measured" in messages) == bool(said)
    assert said in messages.get("interval_not_measured", "")

    interval, measured = result.metrics.tpot_interval_s, run().metrics.tpot_interval_s
    assert interval is not None
    assert measured is not None
    assert result.metrics.kernels_borrowed == wider
    shares = [log(high / low) for low, high in (interval, measured)]
    residuals = Path(clustersim.__file__).parents[1] / "hardware_profiles/residuals/serving.yaml"
    (widening,) = re.findall(r"metric: tpot_s\n(?:    .*\n)*?    borrowed: ([\d.]+)", residuals.read_text(encoding="utf-8"))
    assert shares[0] / shares[1] == pytest.approx(float(widening) if wider else 1.0, rel=1e-9)
