"""The flows of the benchmark in SimGrid; runs under the interpreter that has its binding, and knows nothing of this project.

Reads one JSON document from stdin: ``n_hosts``, ``links`` (name and bandwidth), ``flows`` (ends, route, bytes, start_s). Writes one to
stdout: the seconds of wall time that the simulation took, without laying the platform, and when each flow finished.
"""

from __future__ import annotations

import json
import sys
from time import perf_counter

import simgrid  # pyright: ignore[reportMissingImports] - comes from the distribution, not from the package index

MODEL = [
    # Plain max-min fairness: nothing for TCP's window, its slow start, its acknowledgements, or the length of a way.
    "network/model:CM02",
    "network/TCP-gamma:0",
    "network/bandwidth-factor:1",
    "network/latency-factor:1",
    "network/weight-S:0",
    "network/crosstraffic:0",
    # Its default counts times within a nanosecond as one, which is much in a run of milliseconds.
    "surf/precision:1e-13",
    "maxmin/precision:1e-9",
]


def main() -> None:
    case = json.load(sys.stdin)
    options = [f"--cfg={option}" for option in (*MODEL, *sys.argv[1:])]
    simgrid.Engine(["flows", *options, "--log=root.thres:warning"])
    zone = simgrid.NetZone.create_full_zone("zone")
    hosts = [zone.create_host(f"host{number}", 1e9) for number in range(case["n_hosts"])]
    links = {name: zone.create_link(name, bandwidth).set_latency(0.0).seal() for name, bandwidth in case["links"]}
    for flow in case["flows"]:
        source, destination = (hosts[end] for end in flow["ends"])
        route = [simgrid.LinkInRoute(links[name]) for name in flow["route"]]
        zone.add_route(source.netpoint, destination.netpoint, None, None, route, False)
    zone.seal()
    finish_s = [0.0] * len(case["flows"])

    def send() -> None:
        """Start every flow when its latency is over: SimGrid would count the latency in the fair shares."""
        now_s, activities = 0.0, []
        for flow in case["flows"]:
            if flow["start_s"] > now_s:
                simgrid.this_actor.sleep_for(flow["start_s"] - now_s)
                now_s = flow["start_s"]
            source, destination = (hosts[end] for end in flow["ends"])
            activities.append(simgrid.Comm.sendto_async(source, destination, flow["bytes"]))
        simgrid.Comm.wait_all(activities)
        finish_s[:] = [activity.finish_time for activity in activities]

    simgrid.Actor.create("sender", hosts[0], send)
    began_s = perf_counter()
    simgrid.Engine.instance.run()
    json.dump({"wall_s": perf_counter() - began_s, "finish_s": finish_s}, sys.stdout)


if __name__ == "__main__":
    main()
