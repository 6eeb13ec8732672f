"""Commands of one file together: servers, pools of them, clients and routers, by the part that each has in the job."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal

from clustersim.apps.importing.entries import Contents, Entry, Pool, flattened, toml_entries
from clustersim.apps.importing.node_files import read_hostfile
from clustersim.apps.importing.shell import EmbeddedFile, Word
from clustersim.documents.check import validate_document
from clustersim.documents.composing import read_yaml
from clustersim.documents.files import data_path
from clustersim.documents.text import read_document
from clustersim.errors import ScenarioError
from clustersim.hardware.profile_schema import Checked

Part = Literal["client", "router", "other", "build", "prefill", "decode", "serve", "job"]

POOLS: Final[tuple[Literal["prefill"], Literal["decode"]]] = ("prefill", "decode")
OTHER: Final = "other_command."
_LAUNCHER: Final = "launcher.--"
_OF_HOSTS: Final = {"nodes.count": "launcher.num_nodes", "accelerators.count": "launcher.num_gpus"}
"""Options of a launcher, by what a file of hosts says in place of them."""
_OF_NO_POOL: Final = (OTHER, "router.", "client.", "env.", "sbatch.")
_COUNTED: Final = (*((f"{pool}.replicas",) for pool in POOLS), ("sbatch.nodes", "sbatch.N"))
"""Numbers that each file gives of its own, and that are added; of several names for one the last counts."""


class CommandPart(Checked):
    """A pattern of commands that have one part."""

    part: Part
    pattern: str


class CommandFile(Checked):
    """``scenarios/imports/commands.yaml``."""

    commands: list[CommandPart]
    files_count: str
    """Pattern of programs whose option files count before the options of their commands."""
    programs: list[str]
    """Programs after launchers that are neither scripts nor modules."""
    subcommands: list[str]
    pools: dict[str, list[str]]
    """Words in the names of services, for each pool."""
    slurm: dict[str, list[str]]
    """Variables that Slurm sets from each option of sbatch."""


@lru_cache
def command_file() -> CommandFile:
    """Return the parts of commands."""
    return validate_document(CommandFile, read_document(data_path("scenarios") / "imports" / "commands.yaml"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command of a file."""

    words: tuple[Word, ...]
    entries: tuple[Entry, ...]
    service: str = ""
    """Name of the service that it is of, where it has one."""
    replicas: int = 1


def part_of(command: Command) -> Part:
    """Return the part of a command."""
    found = part_in(" ".join(word.text for word in command.words))
    if found == "serve":
        service = command.service.lower()
        pools = command_file().pools
        named: list[Part] = [pool for pool in POOLS if any(word in service for word in pools[pool])]
        return named[0] if named else found
    return found


def part_in(text: str) -> Part:
    """Return the part that a text names."""
    found: list[Part] = [each.part for each in command_file().commands if re.search(each.pattern, text)]
    return found[0] if found else "job"


def together(commands: Sequence[Command], documents: Sequence[EmbeddedFile], file: str, *, counted: bool) -> Contents:
    """Return the options of all commands: those of the job, and those of pools and clients below their names.

    Parameters
    ----------
    documents
        Files that the text itself holds; the one that a command names is a part of its options.
    counted
        Whether replicas are told also where there is one.
    """
    parts = [part_of(command) for command in commands]
    named, has_pools = {*parts}, all(pool in parts for pool in POOLS)
    if not has_pools:
        parts = ["serve" if part in POOLS else part for part in parts]
    first = next((part for part in ("serve", "build", "job") if part in parts), "job")
    jobs = [at for at, part in enumerate(parts) if part == first]
    job = max(jobs, key=lambda at: len(commands[at].entries), default=None)
    found: list[Entry] = []
    for pool in POOLS if has_pools else ():
        found += _pool([command for command, part in zip(commands, parts, strict=True) if part == pool], pool, documents, file)
    if job is not None and not has_pools:
        alike = sum(commands[at].replicas for at in jobs) if parts[job] == "serve" else commands[job].replicas
        if alike > 1 or counted:
            found.append(Entry(key="replicas", value=alike, file=file, line=_line(commands[job])))
        found += _with_documents(commands[job], documents, file)
        found += [entry for at, part in enumerate(parts) if part == "build" and at != job for entry in commands[at].entries]
    clients = [command for command, part in zip(commands, parts, strict=True) if part == "client"]
    if clients:
        found += _below("client", max(clients, key=lambda each: len(each.entries)).entries)
    for at, (command, part) in enumerate(zip(commands, parts, strict=True)):
        if job is not None and at != job and _launches(command, commands[job]):
            found += [entry for entry in command.entries if entry.key.startswith(_LAUNCHER)]
        elif part == "router" or (part == "job" and at != job):
            found += [replace(entry, key=f"{'router.' if part == 'router' else OTHER}{entry.key}") for entry in command.entries]
    pools: list[Pool] = [pool for pool in POOLS if pool in named]
    return Contents(file=file, format="arguments", entries=tuple(found), pool=pools[0] if len(pools) == 1 else "")


def _launches(command: Command, job: Command) -> bool:
    """Return whether a command is the launcher of a process that is listed beside it, as ``ps`` does."""
    programs = [[entry.value for entry in each.entries if entry.name == "program"][-1:] for each in (command, job)]
    launched = [any(entry.key.startswith(_LAUNCHER) for entry in each.entries) for each in (command, job)]
    return programs[0] == programs[1] and launched == [True, False]


def with_pools(contents: Sequence[Contents]) -> list[Contents]:
    """Return files with options below the names of pools where they are both pools of a deployment, and their counts added."""
    whole = any(entry.name == f"{POOLS[0]}.replicas" for each in contents for entry in each.entries)
    if not whole and not {*POOLS} <= {each.pool for each in contents}:
        return [*contents]
    named = [replace(each, entries=tuple(_of_pool(each)), pool="") if each.pool else each for each in contents]
    for counted in _COUNTED if any(each.pool for each in contents) else ():
        named = _added(named, counted)
    return named


def _added(contents: Sequence[Contents], names: Collection[str]) -> list[Contents]:
    """Return files of which the last that gives some number gives the sum of all."""
    found = [[entry for entry in each.entries if entry.name in names] for each in contents]
    given = [of_file[-1] for of_file in found if of_file]
    numbers = [entry.value for entry in given if isinstance(entry.value, int)]
    if len(numbers) < 2 or len(numbers) < len(given):
        return [*contents]
    total = replace(given[-1], value=sum(numbers))
    return [replace(each, entries=tuple(total if entry is given[-1] else entry for entry in each.entries)) for each in contents]


def _of_pool(file: Contents) -> Iterator[Entry]:
    if file.format == "arguments" and all(entry.key != "replicas" for entry in file.entries):
        yield Entry(key=f"{file.pool}.replicas", value=1, file=file.file)
    for entry in file.entries:
        yield entry if entry.name.startswith(_OF_NO_POOL) else replace(entry, key=f"{file.pool}.{entry.key}")


def _pool(commands: Sequence[Command], pool: str, documents: Sequence[EmbeddedFile], file: str) -> Iterator[Entry]:
    widest = max(commands, key=lambda each: len(each.entries))
    yield Entry(key=f"{pool}.replicas", value=sum(each.replicas for each in commands), file=file, line=_line(widest))
    yield from _below(pool, _with_documents(widest, documents, file))


def _below(name: str, entries: Sequence[Entry]) -> Iterator[Entry]:
    return (replace(entry, key=f"{name}.{entry.key}") for entry in entries)


def _line(command: Command) -> int | None:
    return command.words[0].line if command.words else None


def _with_documents(command: Command, documents: Sequence[EmbeddedFile], file: str) -> tuple[Entry, ...]:
    """Return the options of a command, after those of its option files, or before where those count."""
    by_name = {document.name: document for document in documents}
    named = [by_name[name] for word in command.words if (name := _file_in(word.text)) in by_name]
    found = [entry for document in named for entry in _read(document, file)]
    entries = _without_names(command.entries, by_name)
    return (*entries, *found) if _files_count(command.entries) else (*found, *entries)


def _file_in(text: str) -> str:
    return re.split(r"[/=]", text)[-1]


def _files_count(entries: Sequence[Entry]) -> bool:
    """Return whether the option files of a command count before its options."""
    return any(entry.name.endswith("program") and re.search(command_file().files_count, str(entry.value)) for entry in entries)


def _names_file(entry: Entry, names: Collection[str]) -> bool:
    """Return whether the value of an option is one of some files."""
    return isinstance(entry.value, str) and _file_in(entry.value) in names


def _without_names(entries: Sequence[Entry], read: Collection[str]) -> tuple[Entry, ...]:
    """Return options, those that name files that are read with them marked."""
    return tuple(replace(entry, names_read=True) if _names_file(entry, read) else entry for entry in entries)


def with_option_files(contents: Sequence[Contents]) -> list[Contents]:
    """Return the files with those that options of a command name before it, or behind it where those count."""
    found = list[Contents]()
    commands = [each for each in contents if each.format == "arguments"]
    for each in contents:
        if each.format != "arguments":
            found += () if any(_naming(command, each) for command in commands) else [each]
            continue
        named = [replace(file, pool=pool) for file in contents if file.format != "arguments" for pool in _naming(each, file)]
        read = replace(each, entries=_without_names(each.entries, [Path(file.file).name for file in named]))
        named = [file for file in named if file not in found]
        found += [read, *named] if _files_count(each.entries) else [*named, read]
    return found


def roots(contents: Sequence[Contents]) -> list[Contents]:
    """Return the files without those that another one starts; of files that start each other, the first stays."""
    ran = {name for each in contents for name in each.ran}
    found: list[Contents] = []
    for each in sorted(contents, key=lambda each: Path(each.file).name in ran):
        if not any(Path(each.file).name in root.ran for root in found):
            found.append(each)
    return [each for each in contents if each in found]


def linked(source: str, sources: Sequence[str], scripts: Mapping[str, str]) -> bool:
    """Return whether a script names another one of the files, or another script names it."""
    name, names = Path(source).name, {Path(each).name for each in sources}
    return any(other in scripts.get(name, "") or name in scripts.get(other, "") for other in names - {name})


def _naming(command: Contents, file: Contents) -> list[Pool]:
    """Return the pools whose commands in a file name another file; an empty one stands for all of the deployment."""
    naming = [entry for entry in command.entries if _names_file(entry, [Path(file.file).name])]
    pools: list[Pool] = [pool for pool in POOLS if any(entry.name.startswith(f"{pool}.") for entry in naming)]
    whole: list[Pool] = [command.pool] if naming else []
    return pools or whole


def _read(document: EmbeddedFile, file: str) -> Iterator[Entry]:
    try:
        if "slots=" in document.text:
            facts = read_hostfile(document.text, file).facts
            found = [Entry(key=_OF_HOSTS[key], value=value, file=file, line=line) for key, value, line in facts]
        elif document.name.endswith(".toml"):
            found = [*toml_entries(document.text, file)]
        else:
            read = read_yaml(document.text.replace("\t", "  "), file, document.text.splitlines(), lenient=True)
            found = [*flattened(*read, file)] if read is not None and isinstance(read[0], dict) else []
    except (ScenarioError, ValueError, RecursionError):
        return
    yield from (replace(each, line=None if each.line is None else each.line + document.line - 1) for each in found)


def exported(variables: Mapping[str, tuple[str, int]], file: str) -> Iterator[Entry]:
    """Yield the exported variables of a text."""
    return (Entry(key=f"env.{name}", value=value, file=file, line=line) for name, (value, line) in variables.items())
