"""Commands of containers, in the YAML of Kubernetes, Helm and Docker Compose."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from clustersim.apps.importing.command import LAUNCHERS, options
from clustersim.apps.importing.entries import Contents, Entry
from clustersim.apps.importing.parts import Command, exported, part_in, part_of, together
from clustersim.apps.importing.recognise import candidates
from clustersim.apps.importing.shell import EmbeddedFile, Word, read_script
from clustersim.apps.importing.table import machine_table
from clustersim.documents.composing import read_yaml
from clustersim.documents.text import Data, Spot
from clustersim.errors import ScenarioError

_CONTAINER: Final = re.compile(r"^\s*(?:- )?(?:args|command|modelURL):|^run:|^kind:\s*(?:LLMInferenceService|RayJob)", re.MULTILINE)
_BETWEEN: Final = re.compile(r"^---\s*(?:#.*)?$", re.MULTILINE)
_SHELLS: Final = ("sh", "bash", "/bin/sh", "/bin/bash", "/usr/bin/env")
_COUNTS: Final = ("replicas", "numReplicas", "replicaCount", "minReplicas")
_HUB: Final = "hf://"
_PARALLELISM: Final = {"tensor": "--tensor-parallel-size", "data": "--data-parallel-size", "pipeline": "--pipeline-parallel-size"}
"""Keys of the Helm chart of llm-d and of KServe that become options of vLLM."""
SLICES: Final = "nvidia.com/mig"
"""Begin of the resources that are slices of an accelerator, and label for them."""
_ADDITIONAL: Final = "VLLM_ADDITIONAL_ARGS"
"""Variable with further options, in the image of KServe."""
_PODS: Final = {"DaemonSet", "ReplicaSet", "Deployment", "StatefulSet", "LeaderWorkerSet"}
_MOST_REPLICAS: Final = 1_000_000
_LONGEST_SERVICE: Final = 500


@dataclass(slots=True)
class _Found:
    commands: list[Command] = field(default_factory=list[Command])
    documents: list[EmbeddedFile] = field(default_factory=list[EmbeddedFile])
    exported: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    labels: list[Entry] = field(default_factory=list[Entry])
    """Labels of nodes that a pod asks for."""


def read_containers(text: str, file: str) -> Contents | None:
    """Return the options of the commands in containers; None where no container has a command of a job.

    Nothing is executed, and a value that another object holds stays open.
    """
    if _CONTAINER.search(text) is None:
        return None
    found = _Found()
    for part, line in _documents(text):
        try:
            read = read_yaml(part.replace("\t", "  "), file, part.splitlines(), lenient=True)
        except ScenarioError:
            continue
        if read is not None:
            _walk(*read, _Around(file=file, first_line=line), found)
            found.labels += [Entry(key=key, value=value, file=file, line=None) for key, value in _labels(read[0])]
    contents = together(found.commands, found.documents, file, counted=True)
    started = (part_of(each) in ("client", "prefill", "decode", "serve") or each.words[0].text in LAUNCHERS for each in found.commands)
    if not any(started) and not candidates([contents]):
        return None
    entries = (*exported(found.exported, file), *contents.entries)
    return replace(contents, format="yaml", entries=entries, labels=tuple(found.labels))


def _labels(data: Data) -> Iterator[tuple[str, str | int]]:
    """Yield the labels of nodes that selectors and affinities of pods ask for."""
    if isinstance(data, dict):
        key, values = data.get("key"), data.get("values")
        if isinstance(key, str) and isinstance(values, list) and values:
            yield key, str(values[0])
        yield from (
            (key, value)
            for key, value in data.items()
            if ("/" in key or key in machine_table().file.labels) and isinstance(value, str | int)
        )
        yield from ((SLICES, f"{value} of {key}") for key, value in data.items() if key.startswith(f"{SLICES}-"))
    for value in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        yield from _labels(value)


def _documents(text: str) -> Iterator[tuple[str, int]]:
    """Yield the documents of a stream, each with its first line."""
    at = 0
    for match in (*_BETWEEN.finditer(text), None):
        end = len(text) if match is None else match.start()
        if text[at:end].strip():
            yield text[at:end], text.count("\n", 0, at) + 1
        at = end if match is None else match.end()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Around:
    """Facts of the objects that hold a container."""

    file: str
    first_line: int
    service: str = ""
    replicas: int = 1
    model: str = ""
    options: tuple[str, ...] = ()
    group: int | None = None
    """Pods of one server."""
    set_: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables that the operator of a job sets."""


def _walk(data: Data, spot: Spot, around: _Around, found: _Found) -> None:
    if isinstance(data, list):
        for index, item in enumerate(data):
            if index in spot.children:
                _walk(item, spot.children[index], around, found)
    if not isinstance(data, dict):
        return
    around = _inner(data, around)
    found.exported |= {name: (value, around.first_line + spot.line - 1) for name, value in _rendezvous(data).items()}
    if data.get("kind") == "ConfigMap" and isinstance(held := data.get("data"), dict):
        line = around.first_line + spot.line - 1
        found.documents += [EmbeddedFile(name=name, text=text, line=line) for name, text in held.items() if isinstance(text, str)]
    if isinstance(data.get("args"), list | str) or isinstance(data.get("command"), list | str):
        _container(data, spot, around, found)
    if isinstance(data.get("modelURL"), str):
        _production_stack(data, spot, around, found)
    if isinstance(data.get("run"), str) and isinstance(resources := data.get("resources"), dict):
        _task(data, resources, spot, around, found)
    _ray_job(data, spot, around, found)
    if data.get("kind") == "LLMInferenceService" and isinstance(held := data.get("spec"), dict):
        _inference_service(held, around, found)
        return
    for key, value in data.items():
        # Workers beside a leader are ranks of its server.
        beside = key == "workerTemplate" and "leaderTemplate" in data
        if isinstance(value, dict | list) and key in spot.children and not beside:
            service = around.service if key in ("spec", "template", "metadata", "containers") else f"{around.service} {key}"
            _walk(value, spot.children[key], replace(around, service=service[-_LONGEST_SERVICE:]), found)


def _task(data: Mapping[str, Data], resources: Mapping[str, Data], spot: Spot, around: _Around, found: _Found) -> None:
    """Add the commands of a task of SkyPilot, whose first choice of accelerators counts."""
    asked, service = resources.get("accelerators"), data.get("service")
    first = next(iter(asked), "") if isinstance(asked, dict | list) else asked or ""
    name, _, count = str(first).partition(":")
    if name:
        # SkyPilot calls those of 80 GB A100-80GB.
        name = "A100-SXM4-40GB" if name == "A100" else name
        found.labels.append(Entry(key="nvidia.com/gpu.product", value=name, file=around.file, line=around.first_line + spot.line - 1))
    variables = {**_environment({"env": data.get("envs")}), "SKYPILOT_NUM_NODES": str(data.get("num_nodes", 1)), "SKYPILOT_NODE_RANK": "0"}
    variables |= {"SKYPILOT_NUM_GPUS_PER_NODE": count} if count.isdecimal() else {}
    _text("run", {**data, "env": {**variables}}, spot, _inner(service, around) if isinstance(service, dict) else around, found)


def _ray_job(data: Mapping[str, Data], spot: Spot, around: _Around, found: _Found) -> None:
    """Add the command of a RayJob."""
    if isinstance(data.get("entrypoint"), str) and "rayClusterSpec" in data:
        _text("entrypoint", data, spot, around, found)


def _text(key: str, data: Mapping[str, Data], spot: Spot, around: _Around, found: _Found) -> None:
    """Add the commands of a text of a shell."""
    script: dict[str, Data] = {"command": ["bash", "-c"], "args": [data[key]], "env": data.get("env")}
    place = Spot(line=spot.line, column=spot.column, keys={}, children={"args": spot.children[key]} if key in spot.children else {})
    _container(script, place, around, found)


def _production_stack(data: Mapping[str, Data], spot: Spot, around: _Around, found: _Found) -> None:
    """Add the server of a model of vLLM's production stack, whose chart turns keys in camel case into options."""
    settings, cache, name = data.get("vllmConfig"), data.get("lmcacheConfig"), data.get("name")
    settings = settings if isinstance(settings, dict) else {}
    texts = ["vllm", "serve", str(data["modelURL"])]
    for key, value in settings.items():
        option = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", key).lower()
        if isinstance(value, bool):
            texts.append(f"--{option}" if value else f"--no-{option}")
        elif isinstance(value, str | int | float):
            texts += [f"--{option}", str(value)]
    extra = settings.get("extraArgs")
    texts += [str(each) for each in (extra if isinstance(extra, list) else [])]
    if isinstance(cache, dict) and isinstance(role := cache.get("kvRole"), str):
        texts += ["--kv-transfer-config", json.dumps({"kv_role": role})]
    found.commands.append(
        _described(texts, {**data, "image": f"{data.get('repository')}:{data.get('tag')}"}, spot.line, replace(around, service=str(name)))
    )


def _inference_service(spec: Mapping[str, Data], around: _Around, found: _Found) -> None:
    """Add the servers of KServe, which starts vLLM with the model and the parallelism of each pool."""
    prefill = spec.get("prefill")
    around = _inner(spec, around)
    for service, pool in (("decode" if isinstance(prefill, dict) else "", spec), ("prefill", prefill)):
        if not isinstance(pool, dict):
            continue
        template = pool.get("template")
        containers = template.get("containers") if isinstance(template, dict) else None
        mappings = [each for each in (containers if isinstance(containers, list) else []) if isinstance(each, dict)]
        main = mappings[0] if mappings else dict[str, Data]()
        here = replace(_inner(pool, around), service=service)
        arguments = main.get("args")
        texts = ["vllm", "serve", here.model, *here.options, *_split(_environment(main).get(_ADDITIONAL, ""))]
        texts += [str(each) for each in (arguments if isinstance(arguments, list) else [])]
        found.commands.append(_described(texts, main, 1, here))


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _described(texts: list[str], data: Mapping[str, Data], line: int, around: _Around) -> Command:
    """Return the command that follows from settings, as if it stood in their line."""
    return _command(tuple(Word(text=text, line=around.first_line + line - 1) for text in texts if text), data, around)


def _inner(data: Mapping[str, Data], around: _Around) -> _Around:
    """Return what an object says about the containers in it."""
    count = next((number for key in _COUNTS if (number := _count(data.get(key))) is not None), None)
    artifacts, parallelism, metadata = data.get("modelArtifacts", data.get("model")), data.get("parallelism"), data.get("metadata")
    model, given, service = around.model, around.options, around.service
    if isinstance(artifacts, dict):
        uri, name = artifacts.get("uri"), artifacts.get("name")
        named = uri if isinstance(uri, str) and (uri.startswith(_HUB) or not isinstance(name, str)) else name
        model = named.removeprefix(_HUB) if isinstance(named, str) else model
    if isinstance(parallelism, dict):
        given = tuple(word for key, option in _PARALLELISM.items() if key in parallelism for word in (option, str(parallelism[key])))
        given += ("--enable-expert-parallel",) if parallelism.get("expert") is True else ()
    kinds = [name for key in ("componentType", "subComponentType") if isinstance(name := data.get(key), str)]
    if isinstance(metadata, dict) and isinstance(name := metadata.get("name"), str) and str(data.get("kind")) in _PODS:
        kinds.append(name)
    deploy = data.get("deploy")
    count = _count(deploy.get("replicas")) if count is None and isinstance(deploy, dict) else count
    replicas, group = around.replicas if count is None else count, _group(data) or around.group
    set_ = _rendezvous(data) or around.set_
    return replace(around, service=" ".join((service, *kinds)), replicas=replicas, model=model, options=given, group=group, set_=set_)


def _rendezvous(data: Mapping[str, Data]) -> dict[str, str]:
    """Return the variables of torchrun that Kubeflow sets in the pods of a PyTorchJob or a TrainJob."""
    kinds, pods = data.get("pytorchReplicaSpecs"), _count(data.get("numNodes"))
    if isinstance(kinds, dict):
        pods = sum(_count(kind.get("replicas", 1)) or 0 for kind in kinds.values() if isinstance(kind, dict))
    each = _count(data.get("nprocPerNode", data.get("numProcPerNode")))
    found = {"PET_NNODES": pods, "PET_NPROC_PER_NODE": each, "WORLD_SIZE": pods and pods * (each or 1)}
    return {name: str(number) for name, number in found.items() if number} if pods else {}


def _group(data: Mapping[str, Data]) -> int | None:
    """Return the pods of a server: those of a LeaderWorkerSet, of Dynamo or of AIBrix, or of the data-parallel ranks of llm-d's chart."""
    template, parallelism, several = data.get("leaderWorkerTemplate"), data.get("parallelism"), data.get("multinode")
    if isinstance(template, dict):
        return _count(template.get("size"))
    if isinstance(several, dict):
        return _count(several.get("nodeCount"))
    if "podGroupSize" in data:
        return _count(data["podGroupSize"])
    if not isinstance(parallelism, dict):
        return None
    ranks, local = _count(parallelism.get("data")), _count(parallelism.get("dataLocal"))
    return ranks // local if ranks and local else None


def _count(value: Data) -> int | None:
    text = str(value)
    return int(text) if text.isdecimal() and int(text[:9]) <= _MOST_REPLICAS else None


def _container(data: Mapping[str, Data], spot: Spot, around: _Around, found: _Found) -> None:
    words = [word for key in ("command", "args") for word in _words(data.get(key), spot.children.get(key), around)]
    variables = {**({"LWS_GROUP_SIZE": str(around.group)} if around.group else {}), **around.set_, **_environment(data)}
    found.exported |= {name: (value, around.first_line + spot.line - 1) for name, value in _environment(data).items()}
    if words and words[0].text in _SHELLS and (script := next((word for word in words if " " in word.text or "\n" in word.text), None)):
        read = read_script(script.text, variables)
        found.documents += [EmbeddedFile(name=each.name, text=each.text, line=each.line + script.line - 1) for each in read.documents]
        commands = [tuple(Word(text=word.text, line=word.line + script.line - 1) for word in each) for each in read.commands]
    else:
        commands = [(*_server_of(words, data), *(Word(text=_known(word.text, variables), line=word.line) for word in words))]
    for each in commands:
        if each:
            found.commands.append(_command(each, data, around))


def _server_of(words: Sequence[Word], data: Mapping[str, Data]) -> Iterator[Word]:
    """Yield the image of a server that is handed arguments which begin with its model, where no command replaces its own."""
    image, own = data.get("image"), part_in(" ".join(word.text for word in words))
    given = words and own == "job" and "command" not in data and not words[0].text.startswith("-")
    if given and isinstance(image, str) and part_in(image) == "serve":
        yield Word(text=image, line=words[0].line)


def _command(words: tuple[Word, ...], data: Mapping[str, Data], around: _Around) -> Command:
    line, image = words[0].line, data.get("image")
    if data.get("modelCommand") == "vllmServe":
        # The chart of llm-d puts the model and these options before those of the file.
        before = ("vllm", "serve", *((around.model,) if around.model else ()), *around.options)
        words = (*(Word(text=text, line=line) for text in before), *words)
    elif isinstance(image, str) and words[0].text.startswith("-"):
        words = (Word(text=image, line=line), *words)
    elif "modelFormat" in data and words[0].text.startswith("-"):
        words = (Word(text="vllm", line=line), Word(text="serve", line=line), *words)
    entries = options(words, around.file)
    pods = next((each.value for each in entries if each.name == "nnodes" and isinstance(each.value, int)), 1)
    # Without an object that groups pods, each is a node of a server of several nodes.
    servers = around.replicas // pods if around.group is None and pods > 0 and around.replicas % pods == 0 else around.replicas
    # A command of its own replaces the server of an image, unless it hands options on to it.
    starts = part_in(" ".join(word.text for word in words)) not in ("job", "other") or any(word.text.startswith("--") for word in words)
    if isinstance(image, str) and starts:
        entries = (Entry(key="image", value=image, file=around.file, line=line), *entries)
    return Command(words=words, entries=entries, service=around.service, replicas=servers)


def _words(value: Data, spot: Spot | None, around: _Around) -> Iterator[Word]:
    line = around.first_line - 1 + (spot.line if spot is not None else 1)
    if isinstance(value, str):
        for command in read_script(value).commands[:1]:
            yield from (Word(text=word.text, line=word.line + line - 1) for word in command)
    for index, item in enumerate(value if isinstance(value, list) else []):
        below = spot.children.get(index) if spot is not None else None
        yield Word(text=str(item), line=line if below is None else around.first_line - 1 + below.line)


def _environment(data: Mapping[str, Data]) -> dict[str, str]:
    """Return the variables of a container with known values."""
    found: dict[str, str] = {}
    for key in ("env", "environment"):
        listed = data.get(key)
        for item in listed if isinstance(listed, list) else []:
            if isinstance(item, dict) and isinstance(name := item.get("name"), str) and isinstance(item.get("value"), str | int):
                found[name] = str(item["value"])
            elif isinstance(item, str) and "=" in item:
                found[item.partition("=")[0]] = item.partition("=")[2]
        if isinstance(listed, dict):
            found |= {name: str(value) for name, value in listed.items() if isinstance(value, str | int)}
    return found


def _known(text: str, variables: Mapping[str, str]) -> str:
    """Return a word with ``$(NAME)`` replaced, as Kubernetes does."""
    return re.sub(r"\$\(([A-Za-z_]\w*)\)", lambda match: variables.get(match[1], match[0]), text)
