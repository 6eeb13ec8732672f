"""Files that hold a layout for each of several machines: the one for the machine that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from clustersim.apps.importing.deriving import shipped_node
from clustersim.apps.importing.entries import Contents, Entry
from clustersim.errors import Place, ScenarioError
from clustersim.hardware.catalog import profile_names

_MATRIX: Final = "perf_matrix"
"""Table of Megatron-Bridge: accelerator, number of them, precision."""
_COMMON: Final = "common"
_COUNT: Final = "num_gpus_"


def chosen_variant(contents: Contents, cluster: str | None, nodes: int | None, precision: str) -> Contents:
    """Return a file with the layout of one machine, below ``perf``; a file without layouts as it is.

    Raises
    ------
    ScenarioError
        When several layouts fit, or none.
    """
    listed = [(entry, entry.key.split(".")) for entry in contents.entries if entry.key.startswith(f"{_MATRIX}.")]
    held = list(dict.fromkeys((words[1], words[2]) for _, words in listed if len(words) > 3))
    if not held:
        return contents
    fits = [each for each in held if _fits(*each, cluster, nodes)]
    if len(fits) != 1:
        layouts = ", ".join(f"{count.removeprefix(_COUNT)} {name}" for name, count in fits or held)
        raise ScenarioError(
            f"holds layouts of several machines: {layouts}",
            place=Place(file=contents.file),
            hint="choose one with --cluster NAME, such as dgx-h100, and --nodes N",
        )
    ((name, count),) = fits
    kept = [(entry, words[3:]) for entry, words in listed if words[1:3] == [name, count]]
    others = list(dict.fromkeys(words[0] for _, words in kept if words[0] != _COMMON))
    wanted = next((each for each in others if each.startswith(precision)), None)
    entries = [*_below([each for each in kept if each[1][0] == _COMMON]), *_below([each for each in kept if each[1][0] == wanted])]
    line = kept[0][0].line
    facts = {"gpu": name, "num_gpus": int(count.removeprefix(_COUNT)), "compute_dtype": wanted or precision}
    entries += [Entry(key=key, value=value, file=contents.file, line=line) for key, value in facts.items()]
    rest = [entry for entry in contents.entries if not entry.key.startswith(f"{_MATRIX}.")]
    return replace(contents, entries=(*rest, *entries))


def _below(entries: Sequence[tuple[Entry, list[str]]]) -> list[Entry]:
    return [replace(entry, key=f"perf.{words[1]}") for entry, words in entries if len(words) == 2]


def _fits(name: str, count: str, cluster: str | None, nodes: int | None) -> bool:
    if cluster not in (*profile_names("clusters"), *profile_names("nodes")):
        return cluster is None
    node = shipped_node(cluster)
    asked = None if nodes is None else f"{_COUNT}{nodes * node.n_accelerators}"
    return node.accelerator.name.startswith(name) and asked in (None, count)
