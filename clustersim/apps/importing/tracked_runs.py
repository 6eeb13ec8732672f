"""Folders of experiment trackers: configuration, device and measured step time of a run of Weights & Biases or of MLflow.

References
----------
.. [1] Weights & Biases, ``wandb/run-*/files``: ``config.yaml`` with a value under each key, ``wandb-summary.json``,
   ``wandb-metadata.json``.
.. [2] MLflow, file store: ``params/KEY`` with a value, ``metrics/KEY`` with a line ``timestamp value step`` for each report.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Final

from clustersim.apps.importing.command import scalar
from clustersim.apps.importing.entries import Contents, Entry, LoggedSteps, flattened
from clustersim.documents.composing import read_yaml
from clustersim.documents.files import MB, read_text
from clustersim.documents.json_text import place_in, read_json
from clustersim.documents.text import Data
from clustersim.errors import Place, ScenarioError

CONFIG, SUMMARY, METADATA = "config.yaml", "wandb-summary.json", "wandb-metadata.json"
FILES: Final = "files"
"""Folder of a run of Weights & Biases that holds its files."""
PARAMETERS, METRICS, ABOUT = "params", "metrics", "meta.yaml"
_MOST_BYTES: Final = 16 * MB
_MOST_FILES: Final = 5000
_VALUE: Final = re.compile(r"(.+?)\.value(\..+)?")
_SEEN: Final = re.compile(r"_wandb\.value\.e\.[^.]+\.gpu(_count)?")
_OWN: Final = "_wandb"
"""Key of a configuration under which the tracker keeps its own."""
STEP_TIMES: Final[Mapping[str, float]] = {
    "iteration-time": 1.0,
    "*/iteration-time": 1.0,
    "runtime/iteration_time": 1.0,
    "train_step_timing in s": 1.0,
    "time_metrics/end_to_end(s)": 1.0,
    "*step_time_s": 1.0,
    "*seconds_per_step": 1.0,
    "perf/step_time_seconds": 1.0,
    "elapsed_time_per_iteration_ms": 1e-3,
    "*step_time_ms": 1e-3,
}
"""Metrics that are the time of a step, and their unit in seconds: of Megatron-LM, GPT-NeoX, NeMo, torchtitan, MaxText and nanotron."""
STEP_RATES: Final = ("*train_steps_per_second", "*batches_per_sec", "*steps_per_sec")
"""Metrics that are steps in a second: of the Trainer of Hugging Face and LLM Foundry."""


def tracked_folder(source: str, *, levels: int = 2) -> Path | None:
    """Return the folder with the files of a tracked run: that which is named, ``files`` in it, or the only run in it; None without one.

    Parameters
    ----------
    levels
        Folders above a run: ``mlruns`` holds experiments, which hold runs.

    Raises
    ------
    ScenarioError
        When a run has no configuration, or the folder holds several runs.
    """
    for folder in (Path(source), Path(source) / FILES):
        if any((folder / name).is_file() for name in (SUMMARY, METADATA)):
            if not (folder / CONFIG).is_file():
                hint = f"a run of Weights & Biases has its configuration in {CONFIG}"
                raise ScenarioError(f"has no {CONFIG}", place=Place(file=str(folder)), hint=hint)
            return folder
        if (folder / PARAMETERS).is_dir() and ((folder / METRICS).is_dir() or (folder / ABOUT).is_file()):
            return folder
    inside = sorted(islice(Path(source).glob("[!.]*"), _MOST_FILES)) if levels else []
    found = (tracked_folder(str(each), levels=levels - 1) for each in inside if each.is_dir())
    held = {each.resolve(): each for each in found if each is not None}
    if len(held) > 1:
        named = ", ".join(str(each.parent if each.name == FILES else each) for each in islice(held.values(), 3))
        raise ScenarioError(f"holds {len(held)} tracked runs", place=Place(file=source), hint=f"name one of them, such as {named}")
    return next(iter(held.values()), None)


def read_tracked(folder: Path) -> list[Contents]:
    """Return the configuration of a tracked run as keys and values with the step time that it reported, and its machine if told."""
    if (folder / CONFIG).is_file():
        entries = tuple(_wandb_config(folder / CONFIG))
        metrics = {name: [float(value)] for name, value in _leaves(folder / SUMMARY) if isinstance(value, int | float)}
    else:
        entries = tuple(_mlflow_parameters(folder / PARAMETERS))
        metrics = {name: values for name, path in _files(folder / METRICS) if (values := _reported(path))}
    name = str(folder.parent if folder.name == FILES else folder)
    found = [Contents(file=name, format="log", entries=entries, measured=_measured(metrics))]
    device = tuple(_wandb_device(folder / METADATA))
    return [*found, Contents(file=str(folder / METADATA), format="machine", entries=device)] if device else found


def _wandb_config(path: Path) -> Iterator[Entry]:
    text = read_text(path, _MOST_BYTES)
    read = read_yaml(text, str(path), text.splitlines(), lenient=True)
    if read is None or not isinstance(read[0], dict):
        raise ScenarioError("is not a mapping of keys to values", place=Place(file=str(path)))
    yield from wandb_values(tuple(flattened(*read, str(path))))


def is_wandb(entries: Sequence[Entry]) -> bool:
    """Return whether keys are those of a configuration as Weights & Biases writes it."""
    return any(each.key.startswith(f"{_OWN}.") for each in entries)


def wandb_values(entries: Sequence[Entry]) -> Iterator[Entry]:
    """Yield the keys of a run without the ``value`` that each has below it, and without those of the tracker."""
    for each in entries:
        if (held := _VALUE.fullmatch(each.key)) is not None and not each.key.startswith(f"{_OWN}."):
            yield replace(each, key=held[1] + (held[2] or ""))


def wandb_labels(entries: Sequence[Entry]) -> Iterator[Entry]:
    """Yield name and number of the accelerators that the tracker saw, as the labels of a node."""
    for each in entries:
        if (seen := _SEEN.fullmatch(each.key)) is not None:
            yield replace(each, key=f"nvidia.com/gpu.{'count' if seen[1] else 'product'}")


def _wandb_device(path: Path) -> Iterator[Entry]:
    """Yield name and number of the accelerators of a node, as descriptions of machines have them."""
    about = dict(_leaves(path))
    if isinstance(about.get("gpu"), str) and isinstance(about.get("gpu_count"), int):
        text = read_json(str(path))[1]
        for key, own in (("product", "gpu"), ("count", "gpu_count")):
            yield Entry(key=f"accelerators.{key}", value=about[own], file=str(path), line=place_in(text, str(path), (own,)).line)


def _leaves(path: Path) -> Iterator[tuple[str, Data]]:
    """Yield keys and values of a file that a run may have."""
    if path.is_file():
        yield from ((entry.key, entry.value) for entry in flattened(read_json(str(path))[2], None, str(path)))


def _mlflow_parameters(folder: Path) -> Iterator[Entry]:
    for name, path in _files(folder):
        yield Entry(key=name.replace("/", "."), value=scalar(read_text(path, _MOST_BYTES).strip()), file=str(path), line=1)


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield name and file of each key, which may have a slash in it."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    if len(paths) > _MOST_FILES:
        raise ScenarioError(f"has {len(paths):,} files; a run is read up to {_MOST_FILES:,}", place=Place(file=str(folder)))
    return ((path.relative_to(folder).as_posix(), path) for path in paths)


def _reported(path: Path) -> list[float]:
    """Return the values of a metric, the earliest first."""
    rows = (line.split() for line in read_text(path, _MOST_BYTES).splitlines())
    return [float(row[1]) for row in rows if len(row) >= 2 and re.fullmatch(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", row[1])]


def _measured(metrics: Mapping[str, list[float]]) -> LoggedSteps | None:
    """Return the step time of the first metric that is one: the median of its reports after the first, which holds the start-up."""
    for pattern in (*STEP_TIMES, *STEP_RATES):
        for name, reported in metrics.items():
            values = [value for value in reported if value > 0.0]
            if fnmatchcase(name, pattern) and values:
                later = values[1:] or values
                unit_s = STEP_TIMES.get(pattern)
                return LoggedSteps(step_time_s=1.0 / median(later) if unit_s is None else unit_s * median(later), n_steps=len(later))
    return None
