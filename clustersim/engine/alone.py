"""Duration of an operation on links that nothing else uses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from clustersim.collectives.library import CollectiveCall, Library
from clustersim.engine.traffic import CoupledFlow, FlowPhases, Traffic
from clustersim.hardware.library_costs import CollectiveOp
from clustersim.network.in_flight import whole_ticks_s
from clustersim.network.rates import State
from clustersim.network.sharing import SharedNetwork


@dataclass(slots=True)
class Carried:
    """Traffic of an operation, a pass or a step."""

    seconds: dict[State, float] = field(default_factory=dict[State, float])
    """Seconds for which each combination of flow classes is in flight."""
    bytes: dict[int, float] = field(default_factory=dict[int, float])
    """Bytes of all flows of each flow class."""

    def add(self, other: Carried, times: float = 1.0) -> None:
        """Add other traffic, so many times."""
        for state, seconds in other.seconds.items():
            self.seconds[state] = self.seconds.get(state, 0.0) + times * seconds
        for flow_class, size_bytes in other.bytes.items():
            self.bytes[flow_class] = self.bytes.get(flow_class, 0.0) + times * size_bytes

    def times(self, factor: float) -> Carried:
        """Return so many times the traffic."""
        found = Carried()
        found.add(self, factor)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """Duration of an operation by itself, and its traffic."""

    duration_s: float
    carried: Carried


@dataclass(slots=True)
class IdleCollectives:
    """Times of collectives among the first ranks of a cluster, on links that nothing else uses."""

    library: Library
    _traffic: Traffic = field(init=False)

    def __post_init__(self) -> None:
        network = SharedNetwork(self.library.bandwidth_bytes_per_s, labels=self.library.cluster.tier_index)
        self._traffic = Traffic(library=self.library, network=network)

    def seconds(self, op: CollectiveOp, size_bytes: float, n_ranks: int) -> float:
        """Return the time of a collective of a tensor, by the algorithm that the library chooses."""
        call = CollectiveCall(op=op, group=f"{n_ranks} ranks", size_bytes=size_bytes)
        operation = self.library.operation(call, (tuple(range(n_ranks)),))
        return alone(self._traffic.phases_of(operation), self._traffic.network).duration_s


def alone(phases: FlowPhases, network: SharedNetwork) -> Alone:
    """Return time and network states of an uncontended operation: sequential phases, each as long as its last flow."""
    duration_s, carried = 0.0, Carried()
    for phase in phases:
        for coupled_flow in phase:
            if coupled_flow.size_bytes > 0.0:
                carried.add(Carried(bytes={coupled_flow.flow_class: coupled_flow.size_bytes}))
        if len(phase) == 1:
            (coupled_flow,) = phase
            flow_s = (
                whole_ticks_s(coupled_flow.size_bytes / network.idle_rate(coupled_flow.flow_class))
                if coupled_flow.size_bytes > 0.0
                else 0.0
            )
            duration_s += coupled_flow.latency_s + flow_s
            if flow_s > 0.0:
                carried.add(Carried({state_of((coupled_flow.flow_class,)): flow_s}))
        else:
            duration_s += _beside_each_other(phase, network, carried)
    return Alone(duration_s=duration_s, carried=carried)


def state_of(flow_classes: Iterable[int]) -> State:
    """Return flow classes, named once for each flow, as a state of the network."""
    return tuple(sorted(Counter(flow_classes).items()))


def _beside_each_other(phase: tuple[CoupledFlow, ...], network: SharedNetwork, carried: Carried) -> float:
    """Return the time of a phase: flows start after their latency and end when their bytes have moved."""
    waiting = sorted(range(len(phase)), key=lambda place: (phase[place].latency_s, place))
    left_bytes: dict[int, float] = {}
    now_s = 0.0
    while waiting or left_bytes:
        while waiting and phase[waiting[0]].latency_s <= now_s:
            place = waiting.pop(0)
            if phase[place].size_bytes > 0.0:
                left_bytes[place] = phase[place].size_bytes
        next_start_s = phase[waiting[0]].latency_s if waiting else float("inf")
        if not left_bytes:
            now_s = max(now_s, next_start_s) if waiting else now_s
            continue
        state = state_of(phase[place].flow_class for place in left_bytes)
        rates = network.rates(state)
        ends_s = {place: whole_ticks_s(left / rates[phase[place].flow_class]) for place, left in left_bytes.items()}
        step_s = min(*ends_s.values(), next_start_s - now_s)
        carried.add(Carried({state: step_s}))
        left_bytes = {place: left - rates[phase[place].flow_class] * step_s for place, left in left_bytes.items() if ends_s[place] > step_s}
        now_s += step_s
    return now_s
