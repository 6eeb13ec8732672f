"""``clustersim flows``: the network model alone."""

from __future__ import annotations

import math
from typing import Annotated, Final

import typer

from clustersim.apps.collective.flows_file import load_flows
from clustersim.cli.options import JsonOption
from clustersim.cli.terminal import print_table, write_json
from clustersim.errors import EXIT_OK, ScenarioError
from clustersim.network.flow_times import finish_times
from clustersim.units.quantity import format_quantity

_DIGITS: Final = 6


def flows_command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A JSON file of links and flows, also packed by gzip, or - for stdin.")],
    *,
    json: JsonOption = False,
) -> int:
    """Print when flows on shared links finish.

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
