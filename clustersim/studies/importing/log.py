"""Logs of training jobs: the arguments that they print, and the step times that they report."""

from __future__ import annotations

import re
import statistics
from typing import Final

from clustersim.documents.spots import Data
from clustersim.studies.importing.command import scalar
from clustersim.studies.importing.entries import Contents, Entry, Measured

_BEGINS: Final = re.compile(r"-{4,} ?arguments ?-{4,}")
_ENDS: Final = re.compile(r"-{4,} ?end of arguments ?-{4,}")
_ARGUMENT: Final = re.compile(r"(?:^|[\s:\]])([A-Za-z_]\w*) \.{3,} ?(.*)$")
_VOCABULARY: Final = re.compile(r"padded vocab \(size: (\d{1,12})\) with \d+ dummy tokens \(new size: (\d{1,12})\)")
_STEP: Final = re.compile(r"iteration +(\d{1,12})/.*elapsed time per iteration \(ms\): (\d{1,12}(?:\.\d{1,12})?)")
_DEVICE: Final = re.compile(r"^\| +(\d+) +((?:NVIDIA|Tesla|GeForce|Quadro|A100|H100|H200|B200)\b.*?)\s+(?:On|Off) +\|")
_DEVICE_MEMORY: Final = re.compile(r"/ *(\d{1,9})MiB")
_MOST_LINES: Final = 2_000_000


def is_log(text: str) -> bool:
    """Return whether a text holds the arguments of a job as Megatron-LM prints them."""
    return _BEGINS.search(text) is not None


def read_log(text: str, file: str) -> Contents:
    """Return the arguments of a log, what it says about the machine, and its step times; the first printing of the arguments counts."""
    entries: list[Entry] = []
    steps: list[tuple[int, float]] = []
    inside: bool | None = None
    devices: dict[str, tuple[str, int]] = {}
    memory_mib: tuple[int, int] | None = None
    for number, line in enumerate(text.splitlines()[:_MOST_LINES], start=1):
        if inside is None and _BEGINS.search(line):
            inside = True
        elif inside and _ENDS.search(line):
            inside = False
        elif inside and (argument := _ARGUMENT.search(line)):
            entries.append(Entry(key=argument[1], value=scalar(argument[2].strip()), file=file, line=number))
        elif vocabulary := _VOCABULARY.search(line):
            if not any(entry.key.startswith("padded_vocab") for entry in entries):
                entries.append(Entry(key="padded_vocab.size", value=int(vocabulary[1]), file=file, line=number))
                entries.append(Entry(key="padded_vocab.new_size", value=int(vocabulary[2]), file=file, line=number))
        elif step := _STEP.search(line):
            steps.append((int(step[1]), float(step[2]) / 1e3))
        elif device := _DEVICE.match(line):
            devices.setdefault(device[1], (device[2].rstrip(" ."), number))
        elif devices and memory_mib is None and (memory := _DEVICE_MEMORY.search(line)):
            memory_mib = int(memory[1]), number
    entries += _machine(devices, memory_mib, file)
    return Contents(file=file, format="log", entries=tuple(entries), measured=_measured(steps))


def _machine(devices: dict[str, tuple[str, int]], memory_mib: tuple[int, int] | None, file: str) -> list[Entry]:
    if not devices:
        return []
    name, line = next(iter(devices.values()))
    found: list[tuple[str, Data, int]] = [("nvidia_smi.devices", len(devices), line)]
    # nvidia-smi cuts long names off; with the memory they tell one accelerator from another.
    size = f" {memory_mib[0] / 1024:.0f}GiB" if memory_mib else ""
    found.insert(0, ("nvidia_smi.name", f"{name}{size}", line))
    return [Entry(key=key, value=value, file=file, line=at) for key, value, at in found]


def _measured(steps: list[tuple[int, float]]) -> Measured | None:
    if not steps:
        return None
    # The first report includes start-up: compilation, allocation, connections.
    times = [seconds for _, seconds in sorted(steps)[1:]] or [seconds for _, seconds in steps]
    return Measured(step_time_s=statistics.median(times), n_steps=len(times))
