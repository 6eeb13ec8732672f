"""Chakra execution traces: nodes of one rank with their dependencies, as messages of Protocol Buffers.

A file is a message with metadata, then a message for each node, each behind its length as a varint. Only this file knows Protocol Buffers,
which is an extra.

References
----------
.. [1] MLCommons, *Chakra*, ``schema/protobuf/et_def.proto``, version 0.0.4: https://github.com/mlcommons/chakra.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Final

from clustersim.documents.text import Data

if TYPE_CHECKING:
    from google.protobuf.message import Message

VERSION: Final = "0.0.4"
COMPUTE, SEND, RECEIVE, COLLECTIVE = "COMP_NODE", "COMM_SEND_NODE", "COMM_RECV_NODE", "COMM_COLL_NODE"
NODE_TYPES: Final = ("INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", COMPUTE, SEND, RECEIVE, COLLECTIVE)
"""By number. Those of storage follow in later versions; no accelerator runs them."""
COLLECTIVES: Final = (
    "ALL_REDUCE",
    "REDUCE",
    "ALL_GATHER",
    "GATHER",
    "SCATTER",
    "BROADCAST",
    "ALL_TO_ALL",
    "REDUCE_SCATTER",
    "REDUCE_SCATTER_BLOCK",
    "BARRIER",
)
"""By number, which the attribute ``comm_type`` holds."""
Value = int | float | bool | str
_SCALARS: Final = (
    *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
    *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"),
)
"""Types of an attribute: fields 3, 5, 7 and so on hold one value, and 4, 6, 8 and so on a list."""
_FIELDS: Final[Mapping[str, Sequence[tuple[str, int, str]]]] = {
    **{f"{scalar.capitalize()}List": [("values", 1, f"repeated {scalar}")] for scalar in _SCALARS},
    "AttributeProto": [
        ("name", 1, "string"),
        ("doc_string", 2, "string"),
        *((f"{scalar}_val", 3 + 2 * place, f"oneof {scalar}") for place, scalar in enumerate(_SCALARS)),
        *((f"{scalar}_list", 4 + 2 * place, f"oneof {scalar.capitalize()}List") for place, scalar in enumerate(_SCALARS)),
    ],
    "GlobalMetadata": [("version", 1, "string"), ("attr", 2, "repeated AttributeProto")],
    "IOInfo": [("values", 1, "string"), ("shapes", 2, "string"), ("types", 3, "string")],
    "Node": [
        ("id", 1, "uint64"),
        ("name", 2, "string"),
        ("type", 3, "int32"),
        ("ctrl_deps", 4, "repeated uint64"),
        ("data_deps", 5, "repeated uint64"),
        ("start_time_micros", 6, "uint64"),
        ("duration_micros", 7, "uint64"),
        ("inputs", 8, "IOInfo"),
        ("outputs", 9, "IOInfo"),
        ("attr", 10, "repeated AttributeProto"),
    ],
}
"""Fields of each message: name, number and type. The type of a node is an enumeration, which is sent as a whole number."""
_PACKAGE: Final = "ChakraProtoMsg"
_TYPES: Final = {"comm_src": "int32", "comm_dst": "int32", "comm_tag": "int32", "comm_priority": "int32", "tensor_size": "uint64"}
"""Types of attributes that readers ask for; other whole numbers are ``int64``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChakraNode:
    """One operation of one rank."""

    id: int
    name: str
    type: str
    after: tuple[int, ...] = ()
    """Identifiers of the nodes that it waits for."""
    start_us: int = 0
    duration_us: int = 0
    attributes: Mapping[str, Value] = field(default_factory=dict[str, Value])


def written(nodes: Iterable[ChakraNode], attributes: Mapping[str, Value]) -> bytes:
    """Return the file of some nodes, with attributes of all.

    Raises
    ------
    ImportError
        When Protocol Buffers are not installed.
    """
    from google.protobuf import proto

    stream, node_message = BytesIO(), _message("Node")
    head = _message("GlobalMetadata")(version=VERSION, attr=[_attribute(*each) for each in attributes.items()])
    proto.serialize_length_prefixed(head, stream)
    for node in nodes:
        message = node_message(
            id=node.id,
            name=node.name,
            type=NODE_TYPES.index(node.type),
            data_deps=node.after,
            start_time_micros=node.start_us,
            duration_micros=node.duration_us,
            attr=[_attribute(*each) for each in node.attributes.items()],
        )
        proto.serialize_length_prefixed(message, stream)
    return stream.getvalue()


def _attribute(name: str, value: Value) -> Message:
    kind = "bool" if isinstance(value, bool) else "double" if isinstance(value, float) else "string" if isinstance(value, str) else "int64"
    return _message("AttributeProto")(name=name, **{f"{_TYPES.get(name, kind)}_val": value})


def is_chakra(raw: bytes) -> bool:
    """Return whether a file begins as an execution trace: with the version of its schema, after a length.

    Examples
    --------
    >>> is_chakra(bytes.fromhex("070a05302e302e34")), is_chakra(b"model: llama3-8b")
    (True, False)
    """
    return len(raw) > 3 and raw[1] == 0x0A and 2 + raw[2] <= raw[0] and raw[3 : 3 + raw[2]].replace(b".", b"").isdigit()


def read(raw: bytes) -> list[ChakraNode]:
    """Return the nodes of a file.

    Raises
    ------
    ImportError
        When Protocol Buffers are not installed.
    ValueError
        When it is torn, or no execution trace.
    """
    from google.protobuf import proto
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message import DecodeError

    stream = BytesIO(raw)
    nodes: list[ChakraNode] = []
    try:
        proto.parse_length_prefixed(_message("GlobalMetadata"), stream)
        while stream.tell() < len(raw):
            nodes.append(node_of(MessageToDict(proto.parse_length_prefixed(_message("Node"), stream))))
    except DecodeError as error:
        raise ValueError(str(error)) from error
    return nodes


def node_of(document: Mapping[str, Data]) -> ChakraNode:
    """Return a node from its JSON form, as Chakra's own tools write it too.

    Raises
    ------
    ValueError
        When a value is of another type.
    """
    kind = document.get("type", 0)
    attributes: dict[str, Value] = {}
    for each in _listed(document, "attr"):
        if isinstance(each, dict):
            attributes.update({str(each.get("name")): _value(key, value) for key, value in each.items() if key.endswith("Val")})
    return ChakraNode(
        id=_whole(document, "id"),
        name=str(document.get("name", "")),
        type=NODE_TYPES[kind] if isinstance(kind, int) and 0 <= kind < len(NODE_TYPES) else str(kind),
        after=tuple(dict.fromkeys(int(str(each)) for key in ("ctrlDeps", "dataDeps") for each in _listed(document, key))),
        start_us=_whole(document, "startTimeMicros"),
        duration_us=_whole(document, "durationMicros"),
        attributes=attributes,
    )


def _listed(document: Mapping[str, Data], key: str) -> list[Data]:
    found = document.get(key, [])
    if not isinstance(found, list):
        raise ValueError(f"{key} is no list")
    return found


def _whole(document: Mapping[str, Data], key: str) -> int:
    found = int(str(document.get(key, 0)))
    if found < 0:
        raise ValueError(f"{key} is below 0")
    return found


def _value(key: str, value: Data) -> Value:
    """Return the value of an attribute: the JSON form has long whole numbers as text."""
    if isinstance(value, bool):
        return value
    if "int" in key or "fixed" in key:
        return int(str(value))
    return float(str(value)) if key in ("doubleVal", "floatVal") else str(value)


def _message(name: str) -> type[Message]:
    return _messages()[name]


@cache
def _messages() -> dict[str, type[Message]]:
    """Return the class of each message."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field_type, field_label = descriptor_pb2.FieldDescriptorProto.Type, descriptor_pb2.FieldDescriptorProto.Label
    schema = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package=_PACKAGE, syntax="proto3")
    for message, fields in _FIELDS.items():
        own = schema.message_type.add(name=message)
        for title, number, words in fields:
            *how, kind = words.split()
            added = own.field.add(
                name=title, number=number, label=field_label.Value("LABEL_REPEATED" if "repeated" in how else "LABEL_OPTIONAL")
            )
            added.type = field_type.Value("TYPE_MESSAGE" if kind in _FIELDS else f"TYPE_{kind.upper()}")
            if kind in _FIELDS:
                added.type_name = f".{_PACKAGE}.{kind}"
            if "oneof" in how:
                added.oneof_index = 0
        if any("oneof" in words for _, _, words in fields):
            own.oneof_decl.add(name="value")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(schema)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _FIELDS}
