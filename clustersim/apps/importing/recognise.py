"""The framework that files belong to, from the keys in them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

from clustersim.apps.importing.entries import Contents
from clustersim.apps.importing.parts import OTHER
from clustersim.apps.importing.table import Foreign, canonical, foreign_kinds, framework_names, load_table
from clustersim.errors import Place, ScenarioError

_CONFIGURATIONS: Final = (".yaml", ".yml", ".toml", ".json", ".sh", ".slurm", ".sbatch")
_HEAD: Final = 20_000
_OWN: Final = ({"model", "cluster"}, {"model", "training"})
"""Keys at the top that make a file a scenario of ours."""


def foreign_kind(text: str) -> Foreign | None:
    """Return the kind of a file that is no configuration of a training job; None where it may be one."""
    head = text[:_HEAD]
    return next((kind for kind in foreign_kinds() if all(re.search(pattern, head, re.MULTILINE) for pattern in kind.patterns)), None)


def refuse_foreign(text: str, file: str) -> None:
    """Refuse descriptions of clusters, traces, measurements and serving deployments, by what they are.

    Raises
    ------
    ScenarioError
        With the kind of the file, and the command that takes it if there is one.
    """
    kind = foreign_kind(text)
    if kind is not None:
        raise ScenarioError(
            f"is {kind.kind} ({kind.title}), not a job", place=Place(file=file), hint=kind.instead.replace("hf:FILE", f"hf:{file}")
        )


def is_own(contents: Contents) -> bool:
    """Return whether a file is a scenario of ours."""
    top = {entry.key.partition(".")[0] for entry in contents.entries}
    # Frameworks have a model and a training section too; none has our strategy and cluster, or version 1.
    return any(wanted <= top for wanted in _OWN) and bool(top & {"strategy", "cluster"})


def framework_of(contents: Sequence[Contents]) -> str:
    """Return the name of the framework whose keys the files hold.

    Raises
    ------
    ScenarioError
        When none fits, or several do.
    """
    fits = candidates(contents)
    files = " and ".join(dict.fromkeys(each.file for each in contents))
    if len(fits) == 1:
        return fits[0]
    if fits:
        names = " and of ".join(load_table(name).file.title for name in fits)
        raise ScenarioError(f"holds keys of {names}", place=Place(file=files), hint=f"choose with --as {' or --as '.join(fits)}")
    named = {text for each in contents for entry in each.entries for text in str(entry.value).split() if text.endswith(_CONFIGURATIONS)}
    where = f"it names {', '.join(sorted(named)[:3])}: name that too" if named else "name a file of a training job"
    raise ScenarioError(
        "holds keys of no framework that is known",
        place=Place(file=files),
        hint=f"{where}, or choose with --as {', '.join(framework_names())}",
    )


def candidates(contents: Sequence[Contents]) -> list[str]:
    """Return the frameworks whose keys the files hold."""
    entries = [entry for each in contents for entry in each.entries]
    names = {entry.name for entry in entries}
    # Deeper in an object of Kubernetes stand the images of containers without a command.
    started = [entry for entry in entries if re.fullmatch(r"(\w+\.)?(program|image)", entry.name)]
    servers = [entry for entry in started if not entry.name.startswith((OTHER, "router.", "client."))]
    # A client says which engine it measures only where no server does.
    programs = {str(entry.value) for entry in servers or started if not entry.name.startswith((OTHER, "router."))}
    return [name for name in framework_names() if _fits(name, names, programs)]


def _fits(framework: str, names: set[str], programs: set[str]) -> bool:
    table = load_table(framework)
    recognised = table.file.recognised
    if recognised is None:
        return False
    bare = {each for name in names for each in table.names(name)}

    def has(key: str) -> bool:
        wanted = canonical(key)
        return wanted in bare or ("*" in wanted and any(fnmatchcase(name, wanted) for name in bare))

    if any(fnmatchcase(program, pattern) for program in programs for pattern in recognised.programs):
        return True
    return any(all(has(key) for key in keys) for keys in recognised.any) and not any(has(key) for key in recognised.without)
