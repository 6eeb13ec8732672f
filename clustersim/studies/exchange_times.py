"""How long workers take to exchange gradients on an idle cluster: by a ring, by what the library chooses, by parameter servers."""

from __future__ import annotations

from dataclasses import dataclass, field

from clustersim.collectives.library import Call, Library
from clustersim.collectives.parameter_server import place_servers
from clustersim.collectives.timing import Operation
from clustersim.engine.alone import alone
from clustersim.engine.traffic import Flights, Traffic
from clustersim.hardware.calibration import NetworkCalibration
from clustersim.hardware.communication import CollectiveOp, Servers
from clustersim.hardware.models import Fabric, Node, ServerHosts
from clustersim.network.sharing import SharedNetwork
from clustersim.studies.exchange_forms import Parties
from clustersim.topology.build import build_cluster


@dataclass(slots=True, kw_only=True)
class Bench:
    """One cluster, which lays every pattern once; nodes and hosts that do not take part are idle."""

    library: Library
    _traffic: dict[Parties | int, Traffic] = field(default_factory=dict["Parties | int", Traffic])
    """One for each group: the fewer kinds of flow a network knows, the sooner it answers."""
    _servers: dict[Parties, Servers] = field(default_factory=dict[Parties, Servers])

    def all_reduce(self, workers: int, size_bytes: float, algorithm: str) -> tuple[float, str]:
        """Return seconds and algorithm; ``auto`` leaves the choice to the library."""
        operation = self._operation("all_reduce", workers, size_bytes, algorithm=algorithm)
        traffic = self._traffic_of(workers)
        return alone(traffic.flights_of(operation), traffic.network).duration_s, operation.algorithm

    def in_turn_s(self, parties: Parties, size_bytes: float) -> float:
        """Return the time in which all gradients are pushed and then all parameters pulled."""
        flights = self._flights("all_reduce", parties, size_bytes)
        return alone(flights, self._traffic_of(parties).network).duration_s

    def overlapped_s(self, parties: Parties, size_bytes: float) -> float:
        """Return the same with both at once."""
        (push,), (pull,) = (self._flights(op, parties, size_bytes) for op in ("push", "pull"))
        return alone(((*push, *pull),), self._traffic_of(parties).network).duration_s

    def _flights(self, op: CollectiveOp, parties: Parties, size_bytes: float) -> Flights:
        if parties not in self._servers:
            self._servers[parties] = place_servers(self.library.cluster, parties.hosts)
        operation = self._operation(op, parties.workers, size_bytes, servers=self._servers[parties])
        return self._traffic_of(parties).flights_of(operation)

    def _operation(
        self, op: CollectiveOp, workers: int, size_bytes: float, *, algorithm: str = "parameter_server", servers: Servers | None = None
    ) -> Operation:
        call = Call(op=op, group=f"{workers} workers", size_bytes=size_bytes, algorithm=algorithm, servers=servers)
        return self.library.operation(call, (range(workers),))

    def _traffic_of(self, group: Parties | int) -> Traffic:
        if group not in self._traffic:
            network = SharedNetwork(self.library.bandwidth_bytes_per_s, account=False)
            self._traffic[group] = Traffic(library=self.library, network=network)
        return self._traffic[group]


def bench(node: Node, fabric: Fabric, calibration: NetworkCalibration, *, most_workers: int) -> Bench:
    """Return a cluster with room for so many workers and as many dedicated servers."""
    hosts = ServerHosts(n_hosts=most_workers, host=node.host, nic=node.nic, n_nics=node.n_nics)
    cluster = build_cluster(node, most_workers, fabric, servers=hosts)
    return Bench(library=Library(cluster=cluster, calibration=calibration))
