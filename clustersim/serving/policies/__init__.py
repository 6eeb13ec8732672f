"""Batching rules of the engines, by name and version."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from clustersim.errors import DomainError
from clustersim.serving.engines import version_key
from clustersim.serving.policies import sglang, static, tensorrt_llm, vllm
from clustersim.serving.rules import EngineDevice, EngineRules

ENGINES: Final[Mapping[str, tuple[EngineRules, ...]]] = MappingProxyType(
    {"vllm": vllm.VERSIONS, "sglang": sglang.VERSIONS, "tensorrt_llm": tensorrt_llm.VERSIONS, "static": static.VERSIONS}
)
"""Rules of each engine, by the release that brought them, the oldest first."""


def rules_of(engine: str, device: EngineDevice) -> EngineRules:
    """Return the rules of an engine, written as ``vllm`` or ``vllm@0.11``; without a version those of the newest known one.

    A version that is older than all takes the rules of the oldest.

    Raises
    ------
    DomainError
        When there is no such engine, or the version is no number.

    Examples
    --------
    >>> from clustersim.serving.rules import EngineDevice
    >>> rules_of("vllm@0.11", EngineDevice(memory_bytes=80e9, name="h100-sxm")).max_batched_tokens
    8192
    """
    name, _, version = engine.partition("@")
    if name not in ENGINES:
        raise DomainError(
            f"unknown engine '{name}'", path=("engine",), hint=f"use one of {', '.join(ENGINES)}, with a version as in vllm@0.11"
        )
    known = ENGINES[name]
    if not version:
        return known[-1].on(device)
    asked = version_key(version)
    if not asked and version != known[0].version:
        raise DomainError(
            f"'{version}' is no version of {name}", path=("engine",), hint=f"write a number such as {name}@{known[-1].version}"
        )
    found = [rules for rules in known if version_key(rules.version) <= asked]
    return (found[-1] if found else known[0]).on(device)


def is_older_than_known(engine: str) -> bool:
    """Return whether a version is older than all with known rules.

    Examples
    --------
    >>> is_older_than_known("sglang@0.3.5"), is_older_than_known("sglang")
    (True, False)
    """
    name, _, version = engine.partition("@")
    return bool(version_key(version)) and version_key(version) < version_key(ENGINES[name][0].version)
