"""A deployment in the words of a serving engine: the command of a server, and that of the client that measures it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Final

from clustersim.apps.importing.table import Vocabulary, canonical, load_table
from clustersim.apps.plan.flags import FrameworkFiles
from clustersim.apps.serve.deployment import BuiltServing
from clustersim.config.serving_scenario import RequestsSpec, ServingSpec, UniformSpec
from clustersim.documents.text import Data
from clustersim.errors import ScenarioError
from clustersim.serving.policies import rules_of
from clustersim.serving.rules import EngineDevice
from clustersim.workloads.model import Model
from clustersim.workloads.reading.hub_names import shipped_name
from clustersim.workloads.reading.model_spec import LoadedModel

_OPTIONS: Final = (
    *("memory_fraction", "max_num_seqs", "max_batched_tokens", "kv_tokens", "prefix_cache", "chunked_prefill", "asynchronous"),
    *("precision", "kv_precision", "redundant_experts", "max_graph_tokens", "receive_interval", "batch_wait", "rank_wait"),
)
"""Settings of a server beside its layout."""
_LIMITS: Final = ("max_num_seqs", "max_batched_tokens")
"""Settings of one rank of attention data parallelism."""
_LEFT_TO_THE_ENGINE: Final = (None, "auto")
_HUB: Final = "https://huggingface.co/"
_PORTS: Final = MappingProxyType({"vllm": 8000, "sglang": 30000, "tensorrt_llm": 8000})
_ON_THE_COMMAND_LINE: Final = ("tp_size", "pp_size", "ep_size", "max_batch_size", "max_num_tokens", "kv_cache_free_gpu_memory_fraction")
"""Options of ``trtllm-serve``; all others stand in a file."""
_WAIT: Final = "until curl -sf http://localhost:{port}/health; do sleep 5; done"


def vllm(built: BuiltServing) -> FrameworkFiles:
    """Return the commands of vLLM's server and of its client.

    Raises
    ------
    ScenarioError
        When vLLM has no such deployment.
    """
    table, spec, model = load_table("vllm"), _checked(built, "vLLM"), _name(built.loaded)
    n_experts, together = _n_experts(built.loaded.model), spec.tp * spec.dp
    if spec.dp > 1 and n_experts == 0:
        raise _refused("vLLM", "attention data parallelism of a model without experts", "serving.dp")
    if spec.ep not in (1, together):
        raise _refused("vLLM", f"experts on {spec.ep} of tp * dp = {together} ranks", "serving.ep")
    copies = spec.dp if n_experts else _copies(built)
    layout: dict[str, Data] = {"serving.tp": spec.tp, "serving.pp": spec.pp, "serving.dp": copies}
    switches = {"--enable-expert-parallel": spec.ep > 1, "--enable-eplb": spec.redundant_experts > 0}
    words = [*_degrees(table, layout), *(switch for switch, is_on in switches.items() if is_on)]
    return _files(built, table, words, copies, serve=["vllm", "serve", model], bench=["vllm", "bench", "serve", "--model", model])


def sglang(built: BuiltServing) -> FrameworkFiles:
    """Return the commands of SGLang's server and of its client."""
    table, spec, model = load_table("sglang"), _checked(built, "SGLang"), _name(built.loaded)
    # Its tensor-parallel ranks are all ranks of a stage; attention may be data parallel on them.
    copies = spec.dp if spec.dp > 1 else _copies(built)
    layout: dict[str, Data] = {"serving.tp": spec.tp * spec.dp, "serving.pp": spec.pp, "job.dp": copies, "serving.ep": spec.ep}
    words = [*_degrees(table, layout), *(["--enable-dp-attention"] if spec.dp > 1 else [])]
    serve = ["python3", "-m", "sglang.launch_server", "--model-path", model]
    bench = ["python3", "-m", "sglang.bench_serving", "--model", model]
    return _files(built, table, words, copies, serve=serve, bench=bench)


def trtllm(built: BuiltServing) -> FrameworkFiles:
    """Return the commands of TensorRT-LLM's server and of its client, and its file of options.

    Raises
    ------
    ScenarioError
        When TensorRT-LLM has no such deployment.
    """
    table, spec, model = load_table("tensorrt_llm"), _checked(built, "TensorRT-LLM"), _name(built.loaded)
    if spec.dp > 1 and spec.tp > 1:
        raise _refused("TensorRT-LLM", "attention that is data parallel and divided too", "serving.tp")
    layout: dict[str, Data] = {"serving.tp": spec.tp * spec.dp, "serving.pp": spec.pp, "serving.ep": spec.ep}
    words = [*_degrees(table, layout), *(["--enable-attention-dp"] if spec.dp > 1 else [])]
    bench = ["python3", "-m", "tensorrt_llm.serve.scripts.benchmark_serving", "--model", model]
    return _files(built, table, words, 1, serve=["trtllm-serve", model], bench=bench)


SERVERS: Final[Mapping[str, Callable[[BuiltServing], FrameworkFiles]]] = MappingProxyType(
    {"vllm": vllm, "sglang": sglang, "trtllm": trtllm}
)
"""Engines in whose words a deployment can be written."""


def _checked(built: BuiltServing, title: str) -> ServingSpec:
    spec = built.scenario.spec.serving
    if spec.disaggregated is not None:
        raise _refused(title, "one command for pools of prefill and of decode", "serving.disaggregated")
    return spec


def _refused(title: str, what: str, field: str) -> ScenarioError:
    return ScenarioError(f"{title} has no {what}", field=field, hint="change it with -s, or write another engine's command")


def _files(built: BuiltServing, table: Vocabulary, layout: list[str], copies: int, *, serve: list[str], bench: list[str]) -> FrameworkFiles:
    notes = [f"commands of {table.file.title} {table.file.versions.partition(';')[0]}"]
    options = [*layout, *_options(built, table, notes)]
    versions = {key: row.versions for row in table.rows if row.versions is not None for key in row.keys}
    flags = (option.partition(" ")[0] for option in options)
    notes[0] += "".join(f"; {flag} {versions[key]}" for flag in flags if (key := canonical(flag.removeprefix("--"))) in versions)
    client = _client(built.scenario.spec.requests, table, notes)
    notes += _unsaid(built, table, copies)
    # What the engine cannot be told stands in the file too: it may be all that is kept.
    file = list[str]()
    if table.name == "tensorrt_llm":
        options, file = _with_a_file(options)
    lines = ["#!/bin/bash", *(f"# {note}" for note in notes), *file, _command(serve, options, end=" &" if client else "")]
    if client:
        lines += [_WAIT.format(port=_PORTS[table.name]), _command(bench, client)]
    return FrameworkFiles(text="\n".join(lines) + "\n", notes=tuple(notes))


def _with_a_file(options: list[str]) -> tuple[list[str], list[str]]:
    """Return the options of a command line, and the lines that write the others to the file that it names."""
    kept, data = list[str](), dict[str, dict[str, Data]]()
    for option in options:
        flag, _, value = option.partition(" ")
        key = canonical(flag.removeprefix("--"))
        if key in _ON_THE_COMMAND_LINE:
            kept.append(f"--{key} {value}")
        else:
            section, _, field = key.partition(".")
            data.setdefault(section, {})[field] = value or "true"
    if not data:
        return kept, []
    said = {key: each.get("") or f"{{{', '.join(f'{field}: {value}' for field, value in each.items())}}}" for key, each in data.items()}
    return [*kept, "--extra_llm_api_options options.yaml"], [
        "cat > options.yaml <<'EOF'",
        *(f"{key}: {value}" for key, value in said.items()),
        "EOF",
    ]


def _command(words: list[str], options: list[str], end: str = "") -> str:
    return " \\\n  ".join([shlex.join(words), *options]) + end


def _degrees(table: Vocabulary, layout: Mapping[str, Data]) -> list[str]:
    return [option for key, value in layout.items() if key == "serving.tp" or value != 1 for option in _option(table, key, value)]


def _options(built: BuiltServing, table: Vocabulary, notes: list[str]) -> Iterator[str]:
    spec, accelerator = built.scenario.spec.serving, built.node.accelerator
    own = {"precision": _of_the_checkpoint(table, _name(built.loaded)), "kv_precision": "bf16", "redundant_experts": 0}
    defaults = rules_of(spec.engine, EngineDevice(name=accelerator.name, memory_bytes=accelerator.memory_bytes))
    for name in _OPTIONS:
        value: Data = getattr(spec, name)
        if value in (*_LEFT_TO_THE_ENGINE, own.get(name)):
            continue
        if name in _LIMITS and isinstance(value, int) and any(each.to == "job.limits_of_all_ranks" for each in table.defaults):
            value *= spec.dp
        found = _option(table, f"serving.{name}", value)
        if not found and name == "precision" and own[name] == "bf16":
            found = _option(table, "job.dtype", value)
        yield from found
        if not found and value != getattr(defaults, name, None):
            notes.append(f"no option says serving.{name}: {str(value).lower()}")


def _of_the_checkpoint(table: Vocabulary, model: str) -> str:
    """Return the precision that engines take from a checkpoint of this name without an option."""
    rows = (each for each in table.defaults if each.to == "serving.precision" and "model" in each.where)
    return next((str(each.value) for each in rows if any(fnmatchcase(model.lower(), str(name)) for name in each.where["model"])), "bf16")


def _option(table: Vocabulary, setting: str, value: Data, under: str = "") -> list[str]:
    said = table.said(setting, value, under)
    if said is None:
        return []
    key, theirs = said
    option, dot, field = key.removeprefix(under).partition(".")
    flag = f"--{option.replace('_', '-')}{dot}{field}"
    return [flag if theirs is True or theirs == "true" else f"{flag} {shlex.quote(str(theirs))}"]


def _copies(built: BuiltServing) -> int:
    """Return the replicas that one command starts: all of them, where they are in one node."""
    replicas, spec = built.pools[0].n_replicas, built.scenario.spec.serving
    return replicas if replicas * spec.tp * spec.pp * spec.dp <= built.node.n_accelerators else 1


def _unsaid(built: BuiltServing, table: Vocabulary, copies: int) -> Iterator[str]:
    spec, replicas = built.scenario.spec.serving, built.pools[0].n_replicas
    if copies > 1 and spec.dp == 1:
        yield f"{replicas} replicas: the server starts them, and chooses one for each request by its own rule"
    elif replicas > 1:
        yield f"{replicas} replicas: start the server so many times, behind a router ({spec.router})"
    if spec.speculative is not None:
        yield f"speculative decoding has options that name the draft; {table.file.title} is told without it"


def _client(requests: RequestsSpec, table: Vocabulary, notes: list[str]) -> list[str]:
    """Return the options of the client; nothing, and a note, where it cannot send such requests."""
    arrival, exact = requests.arrival, table.name == "vllm"
    lengths = _lengths(requests, symmetric=exact)
    count = requests.count
    reasons = [
        (arrival in ("constant", "trace") or (arrival == "gamma" and not exact), f"arrival {arrival}"),
        (lengths is None, "lengths of this distribution"),
        (count is None, "a duration in the place of a count"),
    ]
    lacks = next((reason for holds, reason in reasons if holds), None)
    if lacks is not None or lengths is None:
        notes.append(f"no command of a client: that of {table.file.title} has no {lacks}")
        return []
    given: dict[str, Data] = {"job.dataset": "random", **lengths, "requests.count": count}
    if arrival in ("poisson", "gamma"):
        given["job.rate"] = requests.rate
    if arrival == "gamma":
        given["requests.burstiness"] = requests.burstiness
    if arrival == "closed":
        given["job.concurrency"] = requests.concurrency
    if requests.warmup:
        notes.append(f"the client counts those of the warm-up too: {requests.warmup}")
    return [option for key, value in given.items() if value is not None for option in _option(table, key, value, "client.")]


def _lengths(requests: RequestsSpec, *, symmetric: bool) -> dict[str, Data] | None:
    """Return lengths and their relative spread, around a mean or below a maximum; None where a client cannot draw such."""
    found: dict[str, Data] = {}
    spreads: set[float] = set()
    for key, length in (("requests.input_tokens", requests.input_tokens), ("requests.output_tokens", requests.output_tokens)):
        least, most = length.uniform if isinstance(length, UniformSpec) else (length, length)
        if not isinstance(least, int) or not isinstance(most, int):
            return None
        if symmetric and (least + most) % 2:
            return None
        found[key] = (least + most) // 2 if symmetric else most
        spreads.add((most - least) / (most + least) if symmetric else least / most)
    if len(spreads) > 1:
        return None
    # Rounded so that the client's own rounding gives these lengths again.
    (exact,) = spreads
    spread = math.floor(1e6 * exact) / 1e6 if symmetric else math.ceil(1e6 * exact) / 1e6
    return {**found, **({} if symmetric and not spread else {"job.length_spread": spread})}


def _n_experts(model: Model) -> int:
    return model.experts.n_experts if model.experts is not None else 0


def _name(loaded: LoadedModel) -> str:
    """Return the name of a shipped model on the Hugging Face Hub, where its sources name it; any other model's own name."""
    urls = (source.url for source in loaded.spec.sources)
    found = ("/".join(url.removeprefix(_HUB).split("/")[:2]) for url in urls if url.startswith(_HUB))
    return next((name for name in found if shipped_name(name) == loaded.model.name), loaded.model.name)
