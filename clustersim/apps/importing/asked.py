"""Options of an import."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """Options of ``clustersim import`` that change the scenario."""

    framework: str | None = None
    cluster: str | None = None
    nodes: int | None = None
    model: str | None = None
    overrides: tuple[str, ...] = ()
    strict: bool = False
    by_option: bool = True
    """Whether ``--cluster``, ``--nodes`` and ``--model`` may give values that no file has; otherwise only ``--set``."""
