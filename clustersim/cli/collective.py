"""``clustersim collective`` and ``clustersim flows``: the network model alone."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Annotated, Final

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
from clustersim.apps.collective.flows_file import load_flows
from clustersim.cli.options import JsonOption, SetOption
from clustersim.cli.terminal import notice, print_table, write_json
from clustersim.errors import EXIT_OK, ScenarioError
from clustersim.network.flow_times import finish_times
from clustersim.units.quantity import format_quantity

COLUMNS = (">size (B)", ">count (elements)", "type", ">time (us)", ">algbw (GB/s)", ">busbw (GB/s)", "algorithm")


def collective_command(
    *,
    cluster: Annotated[str, typer.Option(metavar="NAME", help="A shipped node or cluster.")],
    nodes: Annotated[int | None, typer.Option(metavar="N", min=1, help="Number of nodes; default: 1, or those of the cluster.")] = None,
    op: Annotated[
        str, typer.Option(metavar="NAME", help="all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, ...")
    ] = "all_reduce",
    algorithm: Annotated[str, typer.Option(metavar="NAME", help="auto, ring, tree, nvls, parameter_server, ...")] = "auto",
    sizes: Annotated[str, typer.Option(metavar="SIZES", help="1M:1G doubles, 1KB:8GB:4 multiplies by 4, or a list.")] = "1KiB:8GiB",
    ranks_per_node: Annotated[int | None, typer.Option(metavar="N", help="Use the first N accelerators of each node.")] = None,
    servers: Annotated[int | None, typer.Option(metavar="N", help="Parameter servers.")] = None,
    placement: Annotated[str, typer.Option(metavar="NAME", help="Placement of parameter servers: colocated or dedicated.")] = "colocated",
    set_: SetOption = None,
    json: JsonOption = False,
) -> int:
    """Print time and bandwidth of a collective, in the columns of nccl-tests."""
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


_DIGITS: Final = 6


def flows_command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A JSON file of links and flows, possibly gzipped, or - for stdin.")],
    *,
    json: JsonOption = False,
) -> int:
    """Print the end times of flows on shared links.

    This is the network model alone.
    """
    found = load_flows(file)
    finish_s = finish_times(found.links, found.flows)
    for number, end_s in enumerate(finish_s):
        if not math.isfinite(end_s):
            raise ScenarioError(
                "takes longer than a number can say", field=f"flows[{number}]", hint="mind that bytes and bandwidths are in SI units"
            )
    if json:
        write_json({"finish_s": finish_s})
        return EXIT_OK
    rows = [
        (
            str(number),
            " > ".join(found.link_names[link] for link in flow.route),
            format_quantity(flow.size_bytes, "B", _DIGITS),
            format_quantity(flow.start_s, "s", _DIGITS),
            format_quantity(end_s, "s", _DIGITS),
            format_quantity(flow.size_bytes / (end_s - flow.start_s), "B/s", _DIGITS) if end_s > flow.start_s else "-",
        )
        for number, (flow, end_s) in enumerate(zip(found.flows, finish_s, strict=True))
    ]
    print_table((">flow", "route", ">bytes", ">start", ">finish", ">mean rate"), rows)
    return EXIT_OK
