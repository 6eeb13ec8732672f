"""Whether a trace is of the accelerator that is calibrated."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from clustersim.documents.spots import Data
from clustersim.errors import Place, ScenarioError
from clustersim.hardware.models import Accelerator
from clustersim.units.quantity import format_quantity

MEMORY: Final = 1.15
"""Times: a device reports up to 7 % more than its data sheet (GiB for GB), and the next size of one model is 17 % more (H100 NVL)."""
FORMS: Final = ("sxm", "pcie")


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedDevice:
    """One device as the profiler names it."""

    name: str
    memory_bytes: float | None


def devices_of(data: Data) -> tuple[TracedDevice, ...]:
    """Return the devices that a trace names in ``deviceProperties``."""
    listed = data.get("deviceProperties") if isinstance(data, dict) else None
    found: list[TracedDevice] = []
    for item in listed if isinstance(listed, list) else []:
        name = item.get("name") if isinstance(item, dict) else None
        memory = item.get("totalGlobalMem") if isinstance(item, dict) else None
        if isinstance(name, str) and name:
            found.append(TracedDevice(name=name, memory_bytes=float(memory) if isinstance(memory, int | float) else None))
    return tuple(dict.fromkeys(found))


def check_device(
    devices: Sequence[TracedDevice], accelerator: Accelerator, *, said: str | None, file: str, use: str = "calibrated"
) -> None:
    """Refuse a trace of another device.

    Parameters
    ----------
    said
        Device that the user says the trace is of, which stands above what the trace says.
    use
        Purpose of the accelerator: ``calibrated`` or ``simulated``.

    Raises
    ------
    ScenarioError
        When the device is another, or nobody says which it is.
    """
    if said is not None:
        if not is_of(said, accelerator.name):
            message = f"'{said}' is not {accelerator.name}, which is {use}"
            raise ScenarioError(message, field="--device", hint="take the accelerator that was traced; see clustersim show accelerators")
        return
    if not devices:
        hint = f"if it was recorded on {accelerator.name}, add --device {model_of(accelerator.name)}"
        raise ScenarioError("does not say which device it is of", hint=hint, place=Place(file=file))
    for device in devices:
        size = "" if device.memory_bytes is None else f" with {format_quantity(device.memory_bytes, 'B', 3)}"
        if not is_of(device.name, accelerator.name) or not _holds(device.memory_bytes, accelerator.memory_bytes):
            memory = format_quantity(accelerator.memory_bytes, "B", 3)
            message = f"is of {device.name}{size}, and {accelerator.name} with {memory} is {use}"
            hint = "take the accelerator that was traced, or say with --device what it is if the trace is wrong"
            raise ScenarioError(message, hint=hint, place=Place(file=file))


def model_of(accelerator: str) -> str:
    """Return the model in the name of a shipped accelerator."""
    return accelerator.partition("-")[0]


def is_of(device: str, accelerator: str) -> bool:
    """Return whether a driver would call an accelerator so: its model is a word, or several, and no other form factor is named.

    Examples
    --------
    >>> [is_of(name, "a100-sxm4-40g") for name in ("NVIDIA A100-PG509-200", "NVIDIA A100-PCIE-40GB", "Tesla V100-SXM2-16GB", "a100")]
    [True, False, False, True]
    >>> is_of("NVIDIA GeForce RTX 4090", "rtx4090"), is_of("NVIDIA GH200 480GB", "h200-sxm")
    (True, False)
    """
    words = re.findall(r"[a-z0-9]+", device.lower())
    runs = ("".join(words[first:last]) for first in range(len(words)) for last in range(first + 1, len(words) + 1))
    forms, own = _forms(words), _forms(accelerator.split("-"))
    return model_of(accelerator) in runs and (not forms or not own or forms == own)


def _forms(words: Sequence[str]) -> set[str]:
    return {form for form in FORMS for word in words if word.startswith(form)}


def _holds(reported_bytes: float | None, memory_bytes: float) -> bool:
    return reported_bytes is None or 1 / MEMORY < reported_bytes / memory_bytes < MEMORY
