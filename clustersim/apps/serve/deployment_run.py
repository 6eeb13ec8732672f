"""One serving run from end to end: load, build, simulate, measure."""

from __future__ import annotations

from time import perf_counter

from clustersim.apps.serve.deployment import BuiltPool, BuiltServing
from clustersim.apps.serve.request_metrics import serving_metrics
from clustersim.apps.serve.serving_result import ServingResult
from clustersim.collection import collection_paused
from clustersim.config.cost_section import resolved_cost
from clustersim.config.resolve import digits_of, resolved_hardware, scenario_hash, unlike
from clustersim.documents.text import Data
from clustersim.engine.serving_run import ServingRun
from clustersim.progress import phase
from clustersim.serving.engines import version_key


def run_serving(built: BuiltServing, *, every_step: bool = False) -> ServingResult:
    """Simulate a serving scenario that has been built.

    Parameters
    ----------
    every_step
        True to replay each engine step as an event of its own, also where several do nothing but decode: the same result, slowly.
    """
    began = perf_counter()
    run = ServingRun(built.deployment(every_step=every_step), built.asked.requests)
    with phase("serve"), collection_paused():
        run.run()
    metrics = serving_metrics(built, run, perf_counter() - began)
    resolved = resolved_serving(built)
    return ServingResult(
        metrics=metrics,
        run=run,
        scenario_hash=scenario_hash(resolved, built.seed, files_of_serving(built)),
        resolved=resolved,
        built=built,
        seed=built.seed,
    )


def machine_of_serving(built: BuiltServing) -> str:
    """Return eight hexadecimal digits that runs on the same hardware by the same engine share."""
    spec = built.scenario.spec
    hardware = resolved_hardware(((built.node, 1),), built.fabric, spec.cluster.name) | unlike(spec.cluster)
    return digits_of([hardware, _engine_text(built)])


def files_of_serving(built: BuiltServing) -> dict[str, str]:
    """Return the files that a resolved scenario refers to, by name: traces, lengths, and price lists."""
    return built.asked.files | (dict(built.priced.files) if built.priced else {})


def resolved_serving(built: BuiltServing) -> dict[str, Data]:
    """Return the complete scenario with all defaults; it runs to the same numbers. Sizes that pools differ in stay as they are given."""
    spec = built.scenario.spec
    model = built.loaded.spec.model_dump(mode="json", exclude_none=True, exclude={"name", "description", "sources"})
    rules, dp = built.pools[0].rules, built.pools[0].layout.dp
    serving: dict[str, Data] = spec.serving.model_dump(mode="json", exclude_none=True)
    serving |= {
        "engine": _engine_text(built),
        "prefix_cache": rules.prefix_cache,
        "chunked_prefill": rules.chunked_prefill,
        "asynchronous": rules.asynchronous,
    }
    sizes = [_sizes(pool) for pool in built.pools]
    if all(each == sizes[0] for each in sizes):
        serving |= sizes[0]
    if len(built.pools) == 1:
        serving |= {
            "max_num_seqs": rules.max_num_seqs // dp,  # asked for by rank
            "kv_tokens": built.pools[0].kv_tokens,
            "replicas": built.pools[0].n_replicas,
        }
    else:
        for key in ("tp", "pp", "ep", "dp", "redundant_experts", "replicas"):
            serving.pop(key, None)
    hardware = resolved_hardware(((built.node, built.n_nodes),), built.fabric, spec.cluster.name)
    resolved: dict[str, Data] = {
        "version": spec.version,
        "name": built.scenario.name,
        "model": {"name": built.loaded.model.name, **model},
        "cluster": hardware | unlike(spec.cluster),
        "serving": serving,
        "requests": _requests(built),
    }
    if spec.slo is not None:
        resolved["slo"] = spec.slo.model_dump(mode="json", exclude_none=True)
    if spec.background:
        resolved["background"] = [each.model_dump(mode="json", exclude_none=True) for each in spec.background]
    if spec.cost is not None:
        resolved["cost"] = resolved_cost(spec.cost)
    return resolved


def _sizes(pool: BuiltPool) -> dict[str, Data]:
    """Return sizes that the engine has by device and ranks; the share of the memory may follow from the other two."""
    return {
        "max_batched_tokens": pool.rules.max_batched_tokens // pool.layout.dp,
        "max_graph_tokens": pool.rules.largest_graph,
        "memory_fraction": pool.rules.memory_fraction,
    }


def _engine_text(built: BuiltServing) -> str:
    """Return engine and version: the requested one, or the newest with known rules and constants."""
    asked = built.scenario.spec.serving.engine
    if "@" in asked:
        return asked
    rules, constants = built.pools[0].rules, built.pools[0].model.engine
    versions = [rules.version, constants.since] if constants.engine == rules.engine else [rules.version]
    return f"{asked}@{max(versions, key=version_key)}"


def _requests(built: BuiltServing) -> dict[str, Data]:
    """Return the section with files by their names in the run directory."""
    found: dict[str, Data] = built.scenario.spec.requests.model_dump(mode="json", exclude_none=True)
    for key in ("trace", "input_tokens", "output_tokens"):
        value = found.get(key)
        if isinstance(value, str):
            found[key] = value.replace("\\", "/").rpartition("/")[2]
    return found
