"""Words of a command line to keys and values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from clustersim.apps.importing.entries import Contents, Entry
from clustersim.apps.importing.parts import Command, command_file, exported, together
from clustersim.apps.importing.shell import NO_TEXTS, WRAPPERS, Word, read_script
from clustersim.documents.composing import read_yaml
from clustersim.documents.text import Data
from clustersim.errors import ScenarioError

LAUNCHER: Final = "launcher"
"""Stands before the options of what starts the processes, such as torchrun."""
_OPTION: Final = re.compile(r"--?[A-Za-z][\w.-]*")
_ASSIGNED: Final = re.compile(r"((?:--?|\+{0,2})[A-Za-z][\w.\[\]/@-]*)=(.*)", re.DOTALL)
_ARRAY: Final = re.compile(r"\$(?:[@*]|\{\w+\[[@*]\]\})")
_VARIABLE: Final = re.compile(r"\$\{?\w+\}?")
_OPTIONS: Final = re.compile(r"(?i)\$\{?\w*(?:options?|opts?|arg(?:ument)?s?|flags?|extras?|params)\}?")
"""Variables that hold further options, by their names."""
_DIRECTIVE: Final = re.compile(r"^#(SBATCH|PBS|BSUB)\s+(--?[\w-]+)(?:[=\s]+(\S+))?", re.MULTILINE)
_NEXT_PART: Final = re.compile(r"^#SBATCH\s+(?:hetjob|packjob)\b", re.MULTILINE)
"""Ends the first part of a heterogeneous job, on which ``srun`` runs."""
_OF_A_NODE: Final = re.compile(r"\b(?:select|nodes|num)=")
_RESOURCE: Final = re.compile(r"(\w+)=(\d{1,9})\b")
"""Number of a resource of a node, as PBS and LSF write them behind what names nodes: ``select=16:ngpus=4``."""
_BEFORE_OPTION: Final = re.compile(r"\s+(?=-)")
_CALL: Final = re.compile(r"([A-Za-z]\w*)\((\w+\s*=[^()]*)\)")
_COUNT: Final = re.compile(r"(\d{1,9})$")
_CONTAINERS: Final = ("docker", "podman", "nerdctl")
_IMAGE: Final = re.compile(r"[a-z0-9][\w.-]*(?::\d+)?(?:/[\w.-]+)+(?:[:@][\w.:-]+)?")
_MODULE: Final = "-m"
_STARTERS: Final = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "deepspeed.launcher.runner",
    "paddle.distributed.launch",
)
"""Modules that start another script."""
_PER_NODE: Final = {"-N": ("mpirun", "mpiexec", "orterun", "aprun"), "--num_processes": ("mason.py",)}
"""Options that count the processes of a node, not nodes or all processes, below these programs."""
LAUNCHERS: Final = ("torchrun", "deepspeed", "srun", "mpirun", "mpiexec", "jsrun", "accelerate", "launch", *_STARTERS)


def read_commands(text: str, file: str, sourced: Mapping[str, str] = NO_TEXTS) -> Contents:
    """Return the options of a command line or a shell script; nothing of it is executed.

    Of several commands for one job, the one with the most options counts; without any, the options that variables hold.
    """
    directives = list(_directives(text, file))
    others = {name: each for name, each in sourced.items() if name != file.rpartition("/")[2]}
    script = read_script(text, _variables(directives), others)
    given = [each for words in script.ran.values() for each in _directives(_BEFORE_OPTION.sub("\n#SBATCH ", words), file)]
    directives += [each for name, words in script.ran.items() if words for each in _directives(sourced[name], name)]
    if any(script.ran.values()):
        script = read_script(text, _variables([*directives, *given]), others)
    commands: list[tuple[Word, ...]] = []
    for words in script.commands:
        # A line that begins with an option goes on with the line before, as where a command was broken for reading.
        if commands and _OPTION.fullmatch(words[0].text):
            commands[-1] += words
        else:
            commands.append(words)
    if not any(_OPTION.fullmatch(word.text) or _ASSIGNED.fullmatch(word.text) for words in commands for word in words) and script.options:
        commands = [script.options]
    found = [*directives, *exported(script.exported, file)]
    read = together([Command(words=words, entries=options(words, file)) for words in commands], script.documents, file, counted=False)
    entries = (*found, *(each for entry in read.entries for each in _called(entry)))
    return replace(read, entries=entries, ran=tuple(script.ran))


def _called(entry: Entry) -> Iterator[Entry]:
    """Yield an option, and below it the arguments of a recipe that it calls, as NeMo-Run writes them."""
    call = _CALL.fullmatch(entry.value) if isinstance(entry.value, str) else None
    yield entry if call is None else replace(entry, value=call[1])
    for name, value in re.findall(r"(\w+)\s*=\s*([^,\s]+)", call[2] if call else ""):
        yield replace(entry, key=f"{entry.key}.{name}", value=scalar(value))


def _directives(text: str, file: str) -> Iterator[Entry]:
    for match in _DIRECTIVE.finditer(_NEXT_PART.split(text, 1)[0]):
        line, scheduler = text.count("\n", 0, match.start()) + 1, match[1].lower()
        listed = _RESOURCE.findall(match[3]) if scheduler != "sbatch" and match[3] and _OF_A_NODE.search(match[3]) else []
        for key, value in listed or [(match[2], match[3])]:
            yield Entry(key=f"{scheduler}.{key}", value=_value([value] if value else []), file=file, line=line)


def _variables(directives: Sequence[Entry]) -> dict[str, str]:
    """Return the variables that Slurm sets for a job with these directives."""
    known = command_file().slurm
    counts = {entry.name.rpartition(".")[2]: last[1] for entry in directives if (last := _COUNT.search(str(entry.value))) is not None}
    found = {name: count for option, count in counts.items() for name in known.get(option, [])}
    if {"nodes", "ntasks_per_node"} <= counts.keys():
        found = dict.fromkeys(known["ntasks"], str(int(counts["nodes"]) * int(counts["ntasks_per_node"]))) | found
    return found


def options(words: Sequence[Word], file: str) -> tuple[Entry, ...]:
    """Return the options of a command, with its program, its container image, and its arguments that are no options."""
    contained = words[0].text in _CONTAINERS if words else False
    image = next((word for word in words[2:] if contained and _IMAGE.fullmatch(word.text)), None)
    found = () if image is None else (Entry(key="image", value=image.text, file=file, line=image.line),)
    return (*found, *_entries(words, file))


def _entries(words: Sequence[Word], file: str) -> Iterator[Entry]:
    start, at = _start_of_arguments(words), 0
    # The options of jsrun count sets of resources, not processes.
    prefix = f"{'jsrun' if words[0].text == 'jsrun' else 'beaker' if _wrapped(words) else LAUNCHER}." if start else ""
    while at < len(words):
        if at >= start:
            prefix = ""
        elif words[at].text == "--":
            prefix = f"{LAUNCHER}."
        word = words[at]
        assigned = _ASSIGNED.fullmatch(word.text)
        at += 1
        if assigned is not None:
            yield Entry(key=prefix + assigned[1].lstrip("+"), value=_value([assigned[2]]), file=file, line=word.line)
        elif _OPTION.fullmatch(word.text):
            values: list[str] = []
            # An option of a launcher has one value at most; a program may follow it.
            most = len(words) if at > start or not start else at + (words[at : at + 1] != [] and words[at].text not in LAUNCHERS)
            while at < min(most, len(words)) and _is_value(words[at].text, values) and at != start - 1:
                values.append(words[at].text)
                at += 1
            per_node = prefix and _counts_a_node(word.text, words[:at])
            yield Entry(key=prefix + (word.text, "-npernode")[bool(per_node)], value=_value(values), file=file, line=word.line)
        elif at == start or (at == 1 and not start):
            n_sub = 1 if at < len(words) and words[at].text in command_file().subcommands else 0
            n_sub += n_sub and at + 1 < len(words) and words[at + 1].text in command_file().subcommands
            yield Entry(key="program", value=" ".join(each.text for each in words[at - 1 : at + n_sub]), file=file, line=word.line)
            at += n_sub
        elif word.text in LAUNCHERS:
            yield Entry(key="program", value=f"{words[0].text} {word.text}", file=file, line=word.line)
        elif at > start and word.text not in command_file().subcommands:
            yield Entry(key="argument", value=word.text, file=file, line=word.line)


def _counts_a_node(option: str, words: Sequence[Word]) -> bool:
    """Return whether an option counts processes of a node: of programs with such an option, the last of the words before it decides."""
    programs = _PER_NODE.get(option, ())
    names = (word.text.rpartition("/")[2] for word in reversed(words))
    return next((name for name in names if name in (*programs, "srun")), None) in programs


def _start_of_arguments(words: Sequence[Word]) -> int:
    """Return the number of words up to the script and with it; 0 without one."""
    image = 0
    for at, word in enumerate(words):
        if at < _wrapped(words):
            continue
        if word.text.endswith(".py"):
            return at + 1
        if at and words[at - 1].text == _MODULE and word.text not in _STARTERS:
            return at + 1
        if at and word.text.rpartition("/")[2] in command_file().programs and words[at - 1].text != "--entrypoint":
            return at + 1
        if not image and at > 1 and words[0].text in _CONTAINERS and _IMAGE.fullmatch(word.text):
            image = at + 1
    return image


def _wrapped(words: Sequence[Word]) -> int:
    """Return the place of the ``--`` of a program that runs what follows; 0 without one."""
    ends = [at for at, word in enumerate(words) if word.text == "--"]
    return ends[0] if ends and any(word.text in WRAPPERS for word in words[:2]) else 0


def _is_value(text: str, before: Sequence[str]) -> bool:
    # Options in a variable that no file sets are no value of the option before them.
    if _OPTION.fullmatch(text) or _ARRAY.fullmatch(text) or (_VARIABLE if before else _OPTIONS).fullmatch(text):
        return False
    if before and text in command_file().subcommands:
        return False
    assigned = _ASSIGNED.fullmatch(text)
    # What is assigned behind a value, or to a dotted key, is an override of its own, as Hydra takes them.
    return assigned is None or not (text.startswith("-") or before or "." in assigned[1])


def _value(texts: list[str]) -> Data:
    if not texts:
        return True
    values: list[Data] = [scalar(text) for text in texts]
    return values[0] if len(values) == 1 else values


def scalar(text: str) -> Data:
    """Return a word as the number, truth value or text that it is; ``None`` is no value.

    Examples
    --------
    >>> scalar("8"), scalar("1e-5"), scalar("None"), scalar("99,1,0"), scalar("[1, 2]")
    (8, 1e-05, None, '99,1,0', [1, 2])
    """
    if text in ("None", "null"):
        return None
    if text in ("True", "False"):
        return text == "True"
    if len(text) > 200 or ":" in text:
        return text
    try:
        read = read_yaml(text, "", [text], lenient=True)
    except ScenarioError:
        return text
    return text if read is None or isinstance(read[0], dict) else read[0]
