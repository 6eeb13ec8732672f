"""Records of a job from Chakra execution traces of its ranks: as protobuf, as its JSON form, or as the JSON of Chakra's feeder."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

from clustersim.apps.compare.kernel_names import SENDS, Classifier, kernel_names
from clustersim.apps.records.recorded_job import HOST, NOT_A_NAME, JobRecord, JobRecords
from clustersim.documents.files import MB, read_bytes
from clustersim.documents.json_text import unpacked
from clustersim.documents.text import Data
from clustersim.errors import Place, ScenarioError
from clustersim.trace.chakra import COLLECTIVE, COLLECTIVES, NODE_TYPES, RECEIVE, SEND, ChakraNode, is_chakra, node_of, read

_MOST_BYTES: Final = 256 * MB
_HEAD_BYTES: Final = 4096
_BLANKS: Final = re.compile(r"\s*")
_RANK: Final = re.compile(r"(\d+)\.(et|json)(\.gz)?$")
"""Ending of the name of the file of a rank, as ASTRA-sim looks for it."""
_MICRO: Final = 1e-6
_KEYS: Final = (b'"workload_graph"', b'"ctrlDeps"', b'"dataDeps"', b'"durationMicros"')
_HOST_HALF: Final = b"[pytorch|profiler|"
"""Name of a node in the trace of PyTorch's observer, which has no kernels."""
_FEEDER: Final = {
    "Id": "id",
    "Name": "name",
    "NodeType": "type",
    "ctrlDeps": "ctrlDeps",
    "data_deps": "dataDeps",
    "runtime": "durationMicros",
}
"""Names of the JSON of Chakra's feeder, and those of the JSON form of its messages; all others are attributes."""


def is_execution_trace(source: str) -> bool:
    """Return whether a file is an execution trace, by how it begins."""
    path = Path(source)
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        head = stream.read(_HEAD_BYTES)
    if head[:2] == b"\x1f\x8b":
        head = unpacked(source, read_bytes(path, _MOST_BYTES))[:_HEAD_BYTES]
    return is_chakra(head) or any(key in head for key in _KEYS) or _HOST_HALF in head


def read_execution_traces(sources: Sequence[str]) -> JobRecords:
    """Return the records of the nodes of some ranks.

    A node waits for those that it names, and for those before it on its stream. The calls of a process group, and the sends from one rank
    to another, are distinguished by their order.

    Raises
    ------
    ScenarioError
        When a trace cannot be used, or has no durations.
    """
    found: list[JobRecord] = []
    ranks: dict[int, str] = {}
    for source in sources:
        name = _RANK.search(Path(source).name)
        rank = int(name[1]) if name else 0
        if rank in ranks:
            hint = "name each file by its rank, such as trace.0.et"
            raise ScenarioError(f"is of rank {rank}, as {ranks[rank]} is", place=Place(file=source), hint=hint)
        ranks[rank] = source
        found += _records(_nodes(source), rank, source, len(found))
    communicating = [record for record in found if not record.computes]
    if communicating and not any(record.duration_s for record in communicating):
        hint = "give one that was captured, or written by `clustersim export --as chakra`"
        raise ScenarioError("has no durations of its communication", place=Place(file=sources[0]), hint=hint)
    return JobRecords(records=tuple(found), n_ranks=max(ranks) + 1, overlap_s=0.0, delays=False, whole_steps=False, clocks="none")


def _nodes(source: str) -> list[ChakraNode]:
    """Return the nodes of a file in their order."""
    place = Place(file=source)
    raw = unpacked(source, read_bytes(Path(source), _MOST_BYTES))
    if _HOST_HALF in raw[:_HEAD_BYTES]:
        hint = "join it with the trace of the profiler by chakra_trace_link and chakra_converter, or give that trace"
        raise ScenarioError("is of PyTorch's observer, which records no kernels", place=place, hint=hint)
    try:
        nodes = read(raw) if is_chakra(raw) else [node_of(each) for each in _documents(raw.decode())]
    except ImportError as error:
        hint = "pip install 'clustersim[chakra]'"
        raise ScenarioError("is read by Protocol Buffers, which are not installed", place=place, hint=hint) from error
    except (ValueError, RecursionError) as error:
        raise ScenarioError(f"is no whole execution trace: {str(error)[:80]}", place=place) from error
    if not nodes:
        raise ScenarioError("holds no nodes", place=place)
    return nodes


def _documents(text: str) -> Iterator[Mapping[str, Data]]:
    """Yield the JSON form of the nodes: one object after the other, or a list of the feeder."""
    decoder, at = json.JSONDecoder(), _after_blanks(text, 0)
    while at < len(text):
        document: Data
        document, at = decoder.raw_decode(text, at)
        at = _after_blanks(text, at)
        listed = document.get("workload_graph", [document]) if isinstance(document, dict) else document
        for each in listed if isinstance(listed, list) else []:
            if not isinstance(each, dict):
                raise ValueError("holds something else than nodes")
            if "Id" in each:
                own = {_FEEDER[key]: value for key, value in each.items() if key in _FEEDER}
                rest = {key: value for key, value in each.items() if key not in _FEEDER}
                yield {**own, "attr": [{"name": key, _kind(value): value} for key, value in rest.items()]}
            elif "id" in each or "type" in each:
                yield each


def _after_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return at if found is None else found.end()


def _kind(value: Data) -> str:
    return "int64Val" if isinstance(value, int) else "stringVal"


def _records(nodes: Sequence[ChakraNode], rank: int, file: str, first: int) -> Iterator[JobRecord]:
    """Yield the records of a rank in an order in which its nodes can run; ``first`` is the place of the first among all."""
    ordered = _ordered(nodes, file)
    places = {node.id: first + place for place, (node, _) in enumerate(ordered)}
    names, counts, last = kernel_names().classifier(()), dict[Hashable, int](), dict[Hashable, int]()
    for node, begins_us in ordered:
        after = [places[each] for each in node.after if each in places]
        host = bool(node.attributes.get("is_cpu_op", False)) or node.type in NODE_TYPES[:2]
        communicates = node.type in (COLLECTIVE, SEND, RECEIVE) and not host
        stream = ("host", node.attributes.get("tid")) if host else ("device", node.attributes.get("stream"))
        if not communicates:
            # A stream runs one node at a time, as in ASTRA-sim.
            after += [last[stream]] if stream in last else []
            last[stream] = places[node.id]
        group = _group(node, rank) if communicates else None
        order = counts[group or node.name] = counts.get(group or node.name, -1) + 1
        yield JobRecord(
            step=0,
            rank=rank,
            stage=0,
            operation=HOST if host else NOT_A_NAME.sub("-", _operation(node, names)),
            computes=not communicates,
            shared=(group, order) if communicates else (rank, node.id),
            group=group,
            alike=(node.name, order),
            stream=str(stream),
            start_s=begins_us * _MICRO,
            end_s=(begins_us + node.duration_us) * _MICRO,
            is_send=communicates and node.type != COLLECTIVE,
            after=tuple(after),
        )


def _ordered(nodes: Sequence[ChakraNode], file: str) -> list[tuple[ChakraNode, int]]:
    """Return the nodes in a possible order, and the earliest start of each with its rank alone, in microseconds."""
    by_id = {node.id: node for node in nodes}
    start_us: dict[int, int] = {}
    try:
        for number in TopologicalSorter({node.id: [each for each in node.after if each in by_id] for node in nodes}).static_order():
            ends_us = (start_us[each] + by_id[each].duration_us for each in by_id[number].after if each in by_id)
            start_us[number] = max(ends_us, default=0)
    except CycleError as error:
        raise ScenarioError("has nodes that wait for each other", place=Place(file=file)) from error
    return [(by_id[number], each) for number, each in sorted(start_us.items(), key=lambda item: item[1])]


def _operation(node: ChakraNode, names: Classifier) -> str:
    """Return the kind of a node of the accelerator."""
    if node.type in (SEND, RECEIVE):
        return SENDS
    if node.type == COLLECTIVE:
        kind = node.attributes.get("comm_type")
        title = COLLECTIVES[kind].lower() if isinstance(kind, int) and 0 <= kind < len(COLLECTIVES) else node.name
        return names.of_name(title)
    return names.of_name(node.name)


def _group(node: ChakraNode, rank: int) -> Hashable:
    """Return the key that the ranks of a collective, or the two ends of a send, share."""
    own = node.attributes
    if node.type == SEND:
        return "send", own.get("comm_src", rank), own.get("comm_dst"), own.get("comm_tag")
    if node.type == RECEIVE:
        return "send", own.get("comm_src"), own.get("comm_dst", rank), own.get("comm_tag")
    return "group", own.get("pg_name", "")
