"""A serving run: clients, router, replicas, and the transfers between pools."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, repeat

import numpy as np
import simpy

from clustersim.engine.cache_transfers import CacheLinks, CacheTransfers
from clustersim.engine.pace import StepVariation
from clustersim.engine.replicas import ARRIVAL, Replica
from clustersim.engine.world import Process, World
from clustersim.network.in_flight import TICK_S
from clustersim.serving.batch import StepModel
from clustersim.serving.records import EngineStepLog, IntArray, RequestLog, tick_array
from clustersim.serving.requests import Requests
from clustersim.serving.router import ROUTERS, Router
from clustersim.serving.scheduler import EngineStep, Scheduler
from clustersim.serving.sequence import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPool:
    """Replicas of one kind, each with its own scheduler."""

    schedulers: tuple[Scheduler, ...]
    model: StepModel
    slowdowns: tuple[float, ...] = ()
    """Factor on the duration of the steps of each replica; empty where all are as fast."""
    graph_tokens: int = 0
    """Tokens of a replica's largest CUDA graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """Everything that answers requests."""

    serving: ReplicaPool
    """Replicas that requests are sent to; those that compute prompts where pools are apart."""
    decode: ReplicaPool | None = None
    links: CacheLinks | None = None
    """Cluster between prefill and decode replicas."""
    router: str = "round_robin"
    seed: int = 0
    frontend_base_s: float = 0.0
    """Time from sending a request until a scheduler sees it: transport, and what the server does before."""
    frontend_per_token_s: float = 0.0
    """The same for each token of the prompt."""
    most_tokens: int | None = None
    """Tokens of prompt and answer that the model has positions for; None for any number."""
    jitter: StepVariation | None = None
    """Variation of each step of each replica, those that requests are sent to first."""
    every_step: bool = False
    """Whether each step is a separate event, also in decode-only stretches: the same result, but slower."""


@dataclass(slots=True)
class _KvTransfer:
    """A KV cache on its way to the replica that decodes."""

    moved: Sequence
    decoder: Replica
    target: int
    """Number of the decode replica in its pool."""
    sent_bytes: float = 0.0
    n_missing: int = 1
    """Parts that have not landed; the last one is sent when the prompt is computed."""
    all_landed: Callable[[], None] | None = None

    def landed(self) -> None:
        """Count a part."""
        self.n_missing -= 1
        if self.n_missing == 0:
            assert self.all_landed is not None
            self.all_landed()


@dataclass(slots=True)
class ServingRun:
    """State and records of one run."""

    deployment: Deployment
    requests: Requests
    world: World = field(default_factory=lambda: World(0))
    """Simulated time in whole ticks."""
    steps: EngineStepLog = field(default_factory=EngineStepLog)
    """Steps of the replicas that requests are sent to."""
    decode_steps: EngineStepLog = field(default_factory=EngineStepLog)
    """Steps of the decode replicas of disaggregated pools."""
    transfer_s: list[float] = field(default_factory=list[float])
    """Duration of each transfer between pools, waiting for the link included."""
    log: RequestLog = field(init=False)
    replicas: list[Replica] = field(init=False)
    """Those that requests are sent to, and then those that only decode."""
    _delays: IntArray = field(init=False)
    """Ticks of each request in the front end; those of different requests run beside each other."""
    _route: Router = field(init=False)
    _route_decode: Router | None = None
    _answered: Callable[[], None] | None = None
    transfers: CacheTransfers | None = None
    _under_way: dict[int, _KvTransfer] = field(default_factory=dict[int, _KvTransfer])
    """KV caches that leave while their prompt is computed, by request."""
    _n_open: int = 0
    """Requests that are neither answered nor refused."""
    _order: Items[int] = ()
    """Requests by the tick at which a scheduler may see them, where the clients do not wait for answers."""
    _seen: Items[int] = ()
    """Those ticks; a last one that never comes."""
    _n_seen: int = 0
    _most_tokens: int = field(init=False)
    """Tokens of prompt and output for which the model has positions and the KV cache has room, for one request alone."""

    def __post_init__(self) -> None:
        """Start all replicas."""
        deployment = self.deployment
        generator = np.random.default_rng([deployment.seed, 1])
        self._delays = tick_array(
            deployment.frontend_base_s + deployment.frontend_per_token_s * self.requests.input_tokens.astype(np.float64)
        )
        self.log = RequestLog.of(len(self.requests))
        apart = deployment.decode is not None
        self.replicas = []
        self._start(deployment.serving, self.steps, self._hand_over if apart else self._finish)
        self._route = ROUTERS[deployment.router](list(self.replicas), generator)
        if deployment.decode is not None:
            n_prefill = len(self.replicas)
            self._start(deployment.decode, self.decode_steps, self._finish)
            self._route_decode = ROUTERS["least_loaded"](self.replicas[n_prefill:], generator)
            assert deployment.links is not None
            self.transfers = CacheTransfers(deployment.links, self.world)
        self._n_open = len(self.requests)
        room = min(replica.scheduler.pool.room_tokens for replica in (self.replicas[0], self.replicas[-1]))
        self._most_tokens = room if deployment.most_tokens is None else min(room, deployment.most_tokens)

    def run(self) -> None:
        """Send all requests and answer them."""
        arrival_s = self.requests.arrival_s
        if arrival_s is None:
            self.world.process(self._clients())
        else:
            sent = tick_array(arrival_s)
            self.log.sent[:] = sent
            seen = sent + self._delays
            order = np.argsort(seen, kind="stable")
            self._order, self._seen = array("q", order.tobytes()), array("q", np.append(seen[order], sys.maxsize).tobytes())
            if self.replicas[0].arrivals is None:
                self.world.process(self._arrivals())
        self.world.run()
        assert int((self.log.done < 0).sum()) == len(self.log.refused)

    @property
    def n_events(self) -> int:
        """Steps and stretches of steps, requests and transfers."""
        return sum(replica.n_events for replica in self.replicas) + len(self.requests) + len(self.transfer_s)

    def _start(self, pool: ReplicaPool, log: EngineStepLog, finish: Callable[[Replica, Sequence], None]) -> None:
        settles = len(pool.schedulers) > 1 or self.deployment.decode is not None
        links = self.deployment.links
        layered = links is not None and links.n_layers > 1 and pool is self.deployment.serving
        log.graph_tokens = pool.graph_tokens
        for scheduler, slowdown in zip(pool.schedulers, pool.slowdowns or repeat(1.0), strict=False):
            replica = Replica(
                world=self.world,
                scheduler=scheduler,
                model=pool.model,
                log=log,
                on_first_token=self._first_token,
                on_done=finish,
                on_chunks=self._send_layers if layered else None,
                number=len(self.replicas),
                every_step=self.deployment.every_step,
                slowdown=slowdown,
                jitter=self.deployment.jitter,
                settles=settles,
                arrivals=None if settles or self.requests.arrival_s is None else self._take,
            )
            replica.start()
            self.replicas.append(replica)

    def _send(self, index: int) -> None:
        """Send a request to the front end."""
        self.log.sent[index] = self.world.now
        delay = self._delays.item(index)
        if delay:
            self.world.when(self.world.after(delay, ARRIVAL), partial(self._accept, index, int(self.world.now) + delay))
        else:
            self._accept(index, int(self.world.now))

    def _accept(self, index: int, moment: int) -> None:
        """Pass a request on to the replica that the router chooses."""
        requests = self.requests
        n_output = requests.output_tokens.item(index)
        prefix = requests.prefixes[index] if requests.prefixes else ()
        # A prefill replica gives the first token; the others come from where the KV cache goes.
        asked = n_output if self._route_decode is None else 1
        sequence = Sequence(index, requests.input_tokens.item(index), asked, prefix)
        if sequence.n_input + n_output <= self._most_tokens:
            self.replicas[self._route(sequence)].accept(sequence, moment)
        else:
            self.log.refused.append(index)
            self._close()

    def _take(self, until: int) -> int:
        """Accept the requests up to a tick, and return the tick of the next."""
        while (moment := self._seen[self._n_seen]) <= until:
            self._n_seen += 1
            self._accept(self._order[self._n_seen - 1], moment)
        return moment

    def _arrivals(self) -> Process:
        now = 0
        while (moment := self._take(now)) < sys.maxsize:
            yield self.world.after(moment - now, ARRIVAL)
            now = moment

    def _clients(self) -> Process:
        """Keep a number of requests in flight; all warm-up requests end before the others are sent."""
        n_warmup, n_all = self.requests.n_warmup, len(self.requests)
        for first, end in ((0, n_warmup), (n_warmup, n_all)):
            left = iter(range(first, end))
            n_open = end - first
            finished = self.world.event()

            def answered(left: Iterator[int] = left, finished: simpy.Event = finished) -> None:
                nonlocal n_open
                n_open -= 1
                following = next(left, None)
                if following is not None:
                    self._send(following)
                elif n_open == 0:
                    finished.succeed()

            self._answered = answered
            if n_open:
                for index in islice(left, self.requests.concurrency):
                    self._send(index)
                yield finished

    def _first_token(self, sequence: Sequence) -> None:
        self.log.first_token[sequence.index] = self.world.now

    def _finish(self, _: Replica, sequence: Sequence) -> None:
        self.log.done[sequence.index] = self.world.now
        self._close()

    def _close(self) -> None:
        if self._answered is not None:
            self._answered()
        self._n_open -= 1
        if not self._n_open:
            self.world.halt()  # loads of others go on for ever

    def _route_transfer(self, index: int) -> _KvTransfer:
        """Choose the replica that decodes a request."""
        route = self._route_decode
        assert route is not None
        moved = Sequence(index, self.requests.input_tokens.item(index), self.requests.output_tokens.item(index))
        target = route(moved)
        decoder = self.replicas[len(self.deployment.serving.schedulers) + target]
        decoder.n_coming += 1
        return _KvTransfer(moved, decoder, target)

    def _send_layers(self, replica: Replica, step: EngineStep, ticks: int) -> None:
        """Let the layers of the chunks of a step leave one behind the other, all but the last."""
        links, transfers = self.deployment.links, self.transfers
        assert links is not None
        assert transfers is not None
        for sequence, n_tokens in step.chunks:
            index = sequence.index
            if self.requests.output_tokens[index] == 1:
                continue
            transfer, n_found = self._under_way.get(index), 0
            if transfer is None:
                transfer = self._under_way[index] = self._route_transfer(index)
                n_found = sequence.n_cached  # in the prefix cache
            # States are known when the last token of the prompt is in them.
            state_bytes = links.state_bytes if sequence.n_cached + n_tokens == sequence.n_target else 0.0
            sent_bytes = ((n_tokens + n_found) * links.bytes_per_token + state_bytes) * (1.0 - 1.0 / links.n_layers)
            transfer.sent_bytes += sent_bytes
            transfer.n_missing += 1
            begin = partial(transfers.send, replica.number, transfer.target, sent_bytes, transfer.landed)
            self.world.when(self.world.after(ticks // links.n_layers), begin)

    def _hand_over(self, replica: Replica, sequence: Sequence) -> None:
        """Let what is left of the KV cache of a prompt go to where its output is produced."""
        index = sequence.index
        if self.requests.output_tokens[index] == 1:
            self._finish(replica, sequence)
            return
        transfers, begun = self.transfers, int(self.world.now)
        assert transfers is not None
        transfer = self._under_way.pop(index, None) or self._route_transfer(index)
        moved, decoder = transfer.moved, transfer.decoder
        moved.n_cached, moved.n_left, moved.last_tick = moved.n_input, moved.n_output - 1, begun
        pool = replica.scheduler.pool
        n_blocks = pool.blocks(moved.n_input)
        pool.take(n_blocks)  # until the last byte has left

        def all_landed() -> None:
            pool.n_used -= n_blocks
            replica.wake()
            self.transfer_s.append((int(self.world.now) - begun) * TICK_S)
            decoder.n_coming -= 1
            decoder.accept(moved, int(self.world.now))

        transfer.all_landed = all_landed
        # At least one layer: a prompt that was preempted was sent before.
        whole_bytes = moved.n_input * transfers.links.bytes_per_token + transfers.links.state_bytes
        left_bytes = max(whole_bytes - transfer.sent_bytes, whole_bytes / transfers.links.n_layers)
        transfers.send(replica.number, transfer.target, left_bytes, transfer.landed)
