"""Batching rules of the engines, by name and version."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from clustersim.errors import DomainError
from clustersim.serving.policies import sglang, static, tensorrt_llm, vllm
from clustersim.serving.rules import Device, Rules

ENGINES: Final[Mapping[str, tuple[Rules, ...]]] = MappingProxyType(
    {"vllm": vllm.VERSIONS, "sglang": sglang.VERSIONS, "tensorrt_llm": tensorrt_llm.VERSIONS, "static": static.VERSIONS}
)
"""Rules of each engine, by the release that brought them, the oldest first."""


def rules_of(engine: str, device: Device) -> Rules:
    """Return the rules of an engine, written as ``vllm`` or ``vllm@0.11``; without a version those of the newest that is known.

    Raises
    ------
    DomainError
        When there is no such engine, or it is older than all that are known.

    Examples
    --------
    >>> from clustersim.serving.rules import Device
    >>> rules_of("vllm@0.11", Device(memory_bytes=80e9, name="h100-sxm")).max_batched_tokens
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
    if version == known[0].version:
        return known[0].on(device)
    asked = _numbers(version)
    if asked is None or _numbers(known[0].version) is None:
        raise DomainError(
            f"'{version}' is no version of {name}", path=("engine",), hint=f"write a number such as {name}@{known[-1].version}"
        )
    found = [rules for rules in known if (_numbers(rules.version) or ()) <= asked]
    if not found:
        raise DomainError(
            f"the rules of {engine} are not known", path=("engine",), hint=f"the oldest that is known is {name}@{known[0].version}"
        )
    return found[-1].on(device)


def _numbers(version: str) -> tuple[int, ...] | None:
    parts = version.removeprefix("v").split(".")
    return tuple(map(int, parts)) if all(part.isdigit() for part in parts) else None
