"""``clustersim collective``."""

from __future__ import annotations

from dataclasses import asdict, dataclass

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
from clustersim.cli.terminal import notice, print_table, write_json
from clustersim.errors import EXIT_OK

COLUMNS = (">size (B)", ">count (elements)", "type", ">time (us)", ">algbw (GB/s)", ">busbw (GB/s)", "algorithm")


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveOptions:
    """The options of ``collective``."""

    cluster: str
    nodes: int | None
    op: str
    algorithm: str
    sizes: str
    ranks_per_node: int | None
    servers: int | None
    placement: str
    overrides: tuple[str, ...]
    as_json: bool


def collective_command(options: CollectiveOptions) -> int:
    """Print time and bandwidth of one collective, size by size, and return the exit code."""
    op = operation_named(options.op)
    sizes_bytes = parse_sizes(options.sizes)
    n_servers = servers_on(options.algorithm, options.servers, options.placement)
    dedicated = n_servers if options.placement == "dedicated" else 0
    cluster = collective_cluster(options.cluster, options.nodes, options.overrides, n_dedicated=dedicated)
    request = CollectiveRequest(
        op=op,
        algorithm=options.algorithm,
        sizes_bytes=sizes_bytes,
        ranks_per_node=options.ranks_per_node,
        n_servers=n_servers,
        dedicated=options.placement == "dedicated",
    )
    rows, flags = collective_rows(cluster, request)
    if options.as_json:
        write_json([_plain(row) for row in rows])
    else:
        print_table(COLUMNS, [_cells(row) for row in rows])
    for flag in flags:
        notice(f"{flag.code}: {flag.message}")
    return EXIT_OK


def _plain(row: CollectiveRow) -> dict[str, object]:
    return asdict(row)


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
