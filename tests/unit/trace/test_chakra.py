"""Chakra execution traces are written and read byte by byte as their public schema has them."""

from __future__ import annotations

import json

import pytest

from clustersim.trace.chakra import COLLECTIVE, COMPUTE, SEND, ChakraNode, node_of, read, written

pytest.importorskip("google.protobuf")

ASTRA_SIM = bytes.fromhex(
    "070a05302e302e344a08011214616c6c5f7265647563655f386e7075735f314d421807520e0a0969735f6370755f6f70d80100"
    "520d0a09636f6d6d5f747970654800520f0a09636f6d6d5f73697a6548808040"
)
"""examples/workload/microbenchmarks/all_reduce/8npus_1MB/all_reduce.1.et of astra-sim/astra-sim at 518bd513, MIT licence."""


def test_a_trace_of_astra_sim_is_read_and_written_alike() -> None:
    (node,) = nodes = read(ASTRA_SIM)

    assert (node.id, node.name, node.type) == (1, "all_reduce_8npus_1MB", COLLECTIVE)
    assert node.attributes == {"is_cpu_op": False, "comm_type": 0, "comm_size": 2**20}
    assert written(nodes, {}) == ASTRA_SIM


def test_what_is_written_is_read_again() -> None:
    nodes = [
        ChakraNode(
            id=0, name="gemm", type=COMPUTE, duration_us=7, attributes={"num_ops": 2**40, "tensor_size": 2**33, "note": "a", "x": 0.5}
        ),
        ChakraNode(id=1, name="send", type=SEND, after=(0,), start_us=7, attributes={"comm_dst": 3, "comm_tag": 9, "is_cpu_op": False}),
    ]

    assert read(written(nodes, {"rank": 0})) == nodes


def test_the_json_of_chakras_tools_is_the_same_node() -> None:
    text = """{"id": "5", "name": "all-reduce", "type": "COMM_COLL_NODE", "ctrlDeps": ["1"], "dataDeps": ["1", "2"], "durationMicros": "9",
        "attr": [{"name": "comm_size", "int64Val": "64"}, {"name": "is_cpu_op", "boolVal": false},
        {"name": "pg_name", "stringVal": "3"}]}"""

    assert node_of(json.loads(text)) == ChakraNode(
        id=5,
        name="all-reduce",
        type=COLLECTIVE,
        after=(1, 2),
        duration_us=9,
        attributes={"comm_size": 64, "is_cpu_op": False, "pg_name": "3"},
    )


@pytest.mark.parametrize("torn", [ASTRA_SIM[:-3], ASTRA_SIM[:12], ASTRA_SIM + b"\x05\x0a"])
def test_a_torn_trace_is_refused(torn: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read(torn)
