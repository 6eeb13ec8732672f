"""Predict how long a training step of a large model takes on a GPU cluster, and where the time goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from clustersim.apps.compare.compared_runs import compare as compare
    from clustersim.apps.plan.answer import plan as plan
    from clustersim.apps.run.result import Result as Result
    from clustersim.apps.run.running import run as run
    from clustersim.apps.study.calling import sweep as sweep
    from clustersim.apps.study.calling import what_if as what_if

__version__: Final = "0.1.0"

__all__ = ("Result", "__version__", "compare", "plan", "run", "sweep", "what_if")

_HOMES: Final = {
    "compare": "clustersim.apps.compare.compared_runs",
    "plan": "clustersim.apps.plan.answer",
    "Result": "clustersim.apps.run.result",
    "run": "clustersim.apps.run.running",
    "sweep": "clustersim.apps.study.calling",
    "what_if": "clustersim.apps.study.calling",
}


def __getattr__(name: str) -> object:
    """Return a public name, importing what it needs when first asked (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, asked for or not, and those that Python gives every module."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
