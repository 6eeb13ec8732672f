"""The rules by which a serving engine forms its batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWait:
    """A wait until prompts and decoding sequences fill a share of the token budget (``batch_wait_timeout_iters``)."""

    steps: int
    """Most steps that prompts wait."""
    budget_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWait:
    """A wait until each rank of attention data parallelism has a prompt (``attention_dp_config``)."""

    steps: int
    """Every so many steps prompts begin all the same; the steps are counted while nobody waits, too."""
    further_steps: int
    """Steps that they wait for more when each rank has one."""
    n_ranks: int


Admission = Literal["first_chunk", "prompt", "estimated", "guaranteed", "batch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDevice:
    """Accelerator and ranks of a replica, as far as defaults of an engine depend on them."""

    name: str
    memory_bytes: float
    tp: int = 1
    pp: int = 1
    dp: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """Sizes of a batch on accelerators of some memory."""

    max_num_seqs: int
    max_batched_tokens: int
    min_memory_bytes: float = 0.0
    except_for: tuple[str, ...] = ()
    """Beginnings of names of accelerators that have it not."""
    largest_graphs: tuple[int, int]
    """Tokens of the largest CUDA graph on fewer than four ranks, and on more."""

    def holds(self, device: EngineDevice) -> bool:
        """Return whether a device has these defaults."""
        return device.memory_bytes >= self.min_memory_bytes and not device.name.startswith(self.except_for or ("\0",))


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRules:
    """Batching rules of one engine in one version."""

    engine: str
    version: str
    """First release that has these rules."""
    block_tokens: int
    """Tokens of one block of the KV cache."""
    defaults: tuple[Defaults, ...]
    """Sizes of a batch by device; the first that holds."""
    admission: Admission
    """Condition for a request to leave the queue. ``first_chunk``: its next chunk fits in the free blocks. ``prompt``: its whole prompt
    does. ``estimated``: beside what running requests are expected to need. ``guaranteed``: prompt and output, beside all that running
    requests may need, so that nobody is preempted. ``batch``: the same, and all requests of the batch before have left."""
    mixes: bool = True
    """Whether chunks of prompts and decoding sequences share a step; otherwise prompts go first."""
    chunked_prefill: bool = True
    """Whether a prompt may be computed in several steps."""
    prefix_cache: bool = False
    asynchronous: bool = False
    """Whether a step is scheduled while the one before it runs: a request that arrives meanwhile waits one step longer, and the host's work
    is hidden behind the accelerator's."""
    batch_wait: BatchWait | None = None
    rank_wait: RankWait | None = None
    receive_interval: int = 1
    """Decode steps between two looks for new requests."""
    n_null_blocks: int = 0
    """Blocks that hold no tokens."""
    memory_fraction: float = 0.9
    """Share of the memory that weights, activations and KV cache may fill."""
    default_fraction: Callable[[EngineDevice, int, int], float] | None = None
    """That share by device, token budget and largest graph, where the engine works it out."""
    max_num_seqs: int = 0
    """Sequences in a batch; zero until the device is known."""
    max_batched_tokens: int = 0
    """Token budget of a step; zero until the device is known."""
    divides_budget: bool = False
    """Whether ranks of attention data parallelism share the default budget."""
    largest_graph: int = 0
    """Tokens of the largest CUDA graph, larger batches are launched kernel by kernel; zero until the device is known."""

    def on(self, device: EngineDevice) -> EngineRules:
        """Return the rules with their defaults for a device."""
        found = next(each for each in self.defaults if each.holds(device))
        return replace(
            self,
            max_num_seqs=found.max_num_seqs,
            max_batched_tokens=found.max_batched_tokens // (device.dp if self.divides_budget else 1),
            largest_graph=found.largest_graphs[device.tp * device.dp >= 4],
        )
