"""Serving engines by version: host time, CUDA graphs, and their memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from re import match, sub
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, with_config

from clustersim.documents.check import validate_document
from clustersim.documents.files import data_path
from clustersim.documents.text import read_document
from clustersim.errors import DomainError
from clustersim.hardware.profile_schema import Checked
from clustersim.hardware.source import CheckedSource

MIB: Final = 2.0**20
Microseconds = Annotated[float, AfterValidator(lambda value: value * 1e-6)]
Mebibytes = Annotated[float, AfterValidator(lambda value: value * MIB)]


def _key_of(attribute: str) -> str:
    """Return the key of an attribute in the file, whose units are smaller."""
    return attribute if attribute == "state_element_bytes" else sub("_s$", "_us", attribute).replace("_bytes", "_mib")


FractionOf = Literal["all", "static", "free"]
States = Literal["blocks", "batch", "share"]


@with_config({"extra": "forbid", "alias_generator": _key_of})
@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConstants:
    """Constants of one range of versions of an engine."""

    since: str
    """First version of the range."""
    framework: str
    """Whose kernels it runs."""
    collectives: str
    """Library of its all-reduce: its own kernels, or ``nccl``."""
    host_base_s: Microseconds
    """Host time of a step that does not depend on the batch."""
    host_per_sequence_s: Microseconds
    vendors: tuple[str, ...] = ()
    """Vendors of accelerators that it is released for, where they are not all."""
    graph_step: int
    """Batches of decode steps are padded to multiples of it, above the smallest sizes."""
    piecewise: bool
    """Whether steps with prompts are captured too, all but attention; otherwise they are launched kernel by kernel."""
    launch_s: Microseconds
    """Host time to launch one kernel outside a graph."""
    attention_launches: int
    """Launches of a layer for attention outside a graph; where a step with prompts is captured in pieces, those beside the pieces."""
    reread_fraction: Mapping[str, float] = field(default_factory=dict[str, float])
    """Share of a cache that each further query head of a group reads again in decode, by vendor, where kernels were not measured."""
    split_attention: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """Compute capabilities, by vendor, with attention kernels that treat decoding sequences apart from the prompts of a step; other
    accelerators of these vendors have one kernel for all sequences."""
    expert_launches: int
    """Launches of routed experts outside a graph, those beside the kernels that a profile names included."""
    stream_floor_s: Microseconds
    """Time of a small kernel between products, inside a graph."""
    gathers_cast: bool = False
    """Whether attention data parallelism gathers tokens for the experts in the format of their product, not in 16 bits."""
    sampling_base_s: Microseconds
    """Time of sampling that does not depend on the batch."""
    frontend_base_s: Microseconds
    """Latency of one request outside the steps: from the client to the scheduler and back."""
    frontend_per_token_s: Microseconds
    """The same for each token of the prompt, which is tokenised."""
    fraction_of: FractionOf
    """Memory of which it takes a share. ``all``: of all memory, for everything. ``static``: of all memory, for weights, states and cache.
    ``free``: of what is free behind the model, for the cache."""
    context_bytes: Mebibytes
    """Kept by the driver, libraries and the allocator."""
    graph_bytes_per_layer: Mebibytes
    """CUDA graphs of all captured sizes."""
    communication_bytes: Mebibytes
    """Buffers of NCCL and of the engine's own all-reduce."""
    state_element_bytes: float
    """One number of the matrix of a layer with a state."""
    states: States
    """``blocks``: sequences take blocks of the cache for their states. ``batch``: states of all sequences of a batch are set aside.
    ``share``: a share of what is left for cache and states is, and limits the batch."""
    engine: str = ""

    def padded(self, n_tokens: int) -> int:
        """Return the size of the graph that a decode batch is padded to."""
        if n_tokens <= 2:
            return max(1, n_tokens)
        if n_tokens <= 4:
            return 4
        return -(-n_tokens // self.graph_step) * self.graph_step


class _Engines(Checked):
    engines: dict[str, list[EngineConstants]]
    sources: list[CheckedSource]


def engine_names() -> tuple[str, ...]:
    """Return the engines that have constants."""
    return tuple(_read().engines)


def engine_constants(engine: str, version: str | None = None) -> EngineConstants:
    """Return the constants of an engine in a version; the newest without one.

    Raises
    ------
    DomainError
        There is no such engine.
    """
    known = _read().engines
    if engine not in known:
        raise DomainError(f"unknown engine '{engine}'", path=("engine",), hint=f"use one of {', '.join(known)}")
    ranges = known[engine]
    found = ranges[-1]
    if version is not None:
        fitting = [each for each in ranges if version_key(each.since) <= version_key(version)]
        found = fitting[-1] if fitting else ranges[0]
    return replace(found, engine=engine)


def version_key(version: str) -> tuple[int, ...]:
    """Return a version as numbers, for comparison.

    Examples
    --------
    >>> version_key("v0.11.0"), version_key("1.2.0rc6.post2"), version_key("nightly") < version_key("0.1")
    ((0, 11, 0), (1, 2, 0), True)
    """
    found = match(r"v*([0-9]+(?:\.[0-9]+)*)", version)
    return tuple(map(int, found[1].split("."))) if found else ()


@lru_cache
def _read() -> _Engines:
    return validate_document(_Engines, read_document(data_path("hardware_profiles") / "serving" / "engines.yaml"))
