"""``clustersim collective``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from clustersim.apps.collective.collective_times import (
    ELEMENT_BYTES,
    CollectiveRequest,
    CollectiveRow,
    collective_cluster,
    collective_rows,
    operation_named,
    parse_sizes,
    servers_on,
)
from clustersim.cli.options import JsonOption, SetOption
from clustersim.cli.terminal import notice, print_table, write_json
from clustersim.errors import EXIT_OK

COLUMNS = (">size (B)", ">count (elements)", "type", ">time (us)", ">algbw (GB/s)", ">busbw (GB/s)", "algorithm")


def collective_command(
    *,
    cluster: Annotated[str, typer.Option(metavar="NAME", help="A shipped node or cluster.")],
    nodes: Annotated[int | None, typer.Option(metavar="N", min=1, help="How many nodes; 1, or those of the cluster, if left out.")] = None,
    op: Annotated[
        str, typer.Option(metavar="NAME", help="all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, ...")
    ] = "all_reduce",
    algorithm: Annotated[str, typer.Option(metavar="NAME", help="auto, ring, tree, nvls, parameter_server, ...")] = "auto",
    sizes: Annotated[str, typer.Option(metavar="SIZES", help="1M:1G doubles, 1KB:8GB:4 multiplies by 4, or a list.")] = "1KiB:8GiB",
    ranks_per_node: Annotated[int | None, typer.Option(metavar="N", help="The first so many accelerators of each node.")] = None,
    servers: Annotated[int | None, typer.Option(metavar="N", help="Parameter servers.")] = None,
    placement: Annotated[str, typer.Option(metavar="NAME", help="Of parameter servers: colocated or dedicated.")] = "colocated",
    set_: SetOption = None,
    json: JsonOption = False,
) -> int:
    """Print time and bandwidth of a collective, as nccl-tests would."""
    operation = operation_named(op)
    sizes_bytes = parse_sizes(sizes)
    n_servers = servers_on(algorithm, servers, placement)
    dedicated = n_servers if placement == "dedicated" else 0
    machine = collective_cluster(cluster, nodes, tuple(set_ or ()), n_dedicated=dedicated)
    request = CollectiveRequest(
        op=operation,
        algorithm=algorithm,
        sizes_bytes=sizes_bytes,
        ranks_per_node=ranks_per_node,
        n_servers=n_servers,
        dedicated=placement == "dedicated",
    )
    rows, flags = collective_rows(machine, request)
    if json:
        write_json([asdict(row) for row in rows])
    else:
        notice(f"{op} of {machine.n_nodes} x {ranks_per_node or machine.node.n_accelerators} ranks of {machine.node.accelerator.name}")
        print_table(COLUMNS, [_cells(row) for row in rows])
    for flag in flags:
        notice(f"{flag.code}: {flag.message}")
    return EXIT_OK


def _cells(row: CollectiveRow) -> tuple[str, ...]:
    return (
        f"{row.bytes:.0f}",
        f"{row.bytes / ELEMENT_BYTES:.0f}",
        "float",
        f"{row.time_s * 1e6:.2f}",
        f"{row.algbw_bytes_per_s / 1e9:.2f}",
        f"{row.busbw_bytes_per_s / 1e9:.2f}",
        f"{row.algorithm} ({row.protocol})",
    )
