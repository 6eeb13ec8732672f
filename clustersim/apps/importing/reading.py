"""Reading of a file in any of the formats of training frameworks; the format is recognised by content."""

from __future__ import annotations

import json
import re
import shlex
import statistics
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from clustersim.apps.importing.command import read_commands, scalar
from clustersim.apps.importing.containers import read_containers
from clustersim.apps.importing.entries import TABLE, Contents, Entry, LoggedSteps, flattened, toml_entries
from clustersim.apps.importing.interpolation import resolved
from clustersim.apps.importing.parts import part_in
from clustersim.apps.importing.shell import NO_TEXTS
from clustersim.apps.importing.tracked_runs import is_wandb, wandb_labels, wandb_values
from clustersim.documents.composing import read_yaml
from clustersim.documents.files import STDIN, STDIN_NAME, read_bytes, read_stdin
from clustersim.documents.json_text import place_in
from clustersim.documents.text import Data
from clustersim.errors import Place, ScenarioError

_BEGINS: Final = re.compile(r"-{4,} ?arguments ?-{4,}")
_ENDS: Final = re.compile(r"-{4,} ?end of arguments ?-{4,}")
_CONFIGURATION: Final = re.compile(r"^([^\n]{0,80}?)-{7} Task Configuration -{7}\s*$", re.MULTILINE)
"""Line before the YAML in a log of Megatron-Bridge, with the prefix that a launcher gives to the lines of a rank."""
_RULE: Final = re.compile(r"-{20,}\s*")
_ARGUMENT: Final = re.compile(r"(?:^|[\s:\]])([A-Za-z_]\w*) \.{3,} ?(.*)$")
_VOCABULARY: Final = re.compile(r"padded vocab \(size: (\d{1,12})\) with \d+ dummy tokens \(new size: (\d{1,12})\)")
_STEP: Final = re.compile(r"iteration +(\d{1,12})/.*elapsed time per iteration \(ms\): (\d{1,12}(?:\.\d{1,12})?)")
_STEP_LINE: Final = re.compile(rf"^(?!\s*#).*{_STEP.pattern}", re.MULTILINE)
_STEP_TIME: Final = re.compile(r"(?:Step Time : (?=[\d.]+s GPU utilization)|train_step_timing in s[=:] ?)(\d{1,12}(?:\.\d{1,12})?)")
"""Step of Megatron-Bridge, beside the line of the iteration, which counts where a log has both; or of NeMo."""
_TIMES: Final = re.compile(r"^\s*time \(ms\) \|(.*)")
_TIMER: Final = re.compile(r"([a-z][\w/-]{1,60}): (\d{1,12}\.\d{1,12})")
_TIMER_LINE: Final = re.compile(r"^ {2,}([a-z][\w/-]{1,60}) \.{3,}: \(\d{1,12}\.\d{1,12}, (\d{1,12}\.\d{1,12})\)")
"""Least and largest over ranks."""
_SETUP: Final = ("setup", "load-checkpoint", "iterator", "save-checkpoint", "interval-time", "eval-time")
"""Timers that are not of a step."""
_SERVICE: Final = re.compile(r"^ExecStart=[-@:+!]*", re.MULTILINE)
"""Before the command of a unit of systemd."""
_SET: Final = re.compile(r"^Environment=", re.MULTILINE)
"""Before variables of such a unit, quoted as in a shell."""
_RUN_WITH: Final = re.compile(r"^#\s*tune run (?:\S+ )*?(\w+_(?:single_device|distributed)) ", re.MULTILINE)
"""Command in a comment of a configuration, which names the recipe that nothing else there does."""
_STAGE: Final = re.compile(r"^FROM[ \t]+(?:--\S+[ \t]+)*(\S+)(?:[ \t]+(?:AS|as)[ \t]+(\S+))?", re.MULTILINE)
_VARIABLE: Final = re.compile(r"^(?:ENV|ARG)[ \t]+(\w+)(=|[ \t]+)((?:.*\\\n)*.*)$", re.MULTILINE)
_BLANKS: Final = re.compile(r"(\"[^\"]*\"|'[^']*')|[ \t]+")
"""Blanks outside of quotes, and what is in quotes."""
_STARTED: Final = re.compile(r"^(ENTRYPOINT|CMD)\s+((?:.*\\\n)*.*)$", re.MULTILINE)
"""Start of a container in a Dockerfile; the last one counts, of the last stage or of those that it begins with."""
_HELD: Final = "serveConfigV2"
"""Key of a RayService, whose text is the YAML of Ray Serve."""
_DEVICE: Final = re.compile(r"\| +(\d+) +((?:NVIDIA|Tesla|GeForce|Quadro|A100|H100|H200|B200)\b.*?)\s+(?:On|Off) +\|")
_DEVICE_MEMORY: Final = re.compile(r"/ *(\d{1,9})MiB")
_MOST_LINES: Final = 2_000_000


def is_log(text: str) -> bool:
    """Return whether a text holds the settings of a job as Megatron-LM or Megatron-Bridge prints them, or its step times."""
    return any(each.search(text) is not None for each in (_BEGINS, _CONFIGURATION, _STEP_LINE, _STEP_TIME))


def read_log(text: str, file: str) -> Contents:
    """Return the arguments of a log, its machine, and its step times; the first printed arguments count."""
    entries = [*_configuration(text, file)]
    steps: list[tuple[int, float]] = []
    inside: bool | None = None
    devices: dict[str, tuple[str, int]] = {}
    memory_mib: int | None = None
    timers: dict[str, list[float]] = {}
    for number, line in enumerate(text.splitlines()[:_MOST_LINES], start=1):
        if inside is None and _BEGINS.search(line):
            inside = True
        elif inside and _ENDS.search(line):
            inside = False
        elif inside and (argument := _ARGUMENT.search(line)):
            entries.append(Entry(key=argument[1], value=scalar(argument[2].strip()), file=file, line=number))
        elif vocabulary := _VOCABULARY.search(line):
            if not any(entry.key.startswith("padded_vocab.") for entry in entries):
                entries.append(Entry(key="padded_vocab.size", value=int(vocabulary[1]), file=file, line=number))
                entries.append(Entry(key="padded_vocab.new_size", value=int(vocabulary[2]), file=file, line=number))
        elif step := _STEP.search(line):
            steps.append((int(step[1]), float(step[2]) / 1e3))
        elif steps and (found := _timers(line)):
            for name, milliseconds in found:
                timers.setdefault(name, []).append(milliseconds / 1e3)
        elif device := _DEVICE.search(line):
            devices.setdefault(device[1], (device[2].rstrip(" ."), number))
        elif devices and memory_mib is None and (memory := _DEVICE_MEMORY.search(line)):
            memory_mib = int(memory[1])
    labels = _machine(devices, memory_mib, file)
    steps = steps or [(at, float(seconds)) for at, seconds in enumerate(_STEP_TIME.findall(text))]
    return Contents(file=file, format="log", entries=tuple(entries), measured=_measured(steps, timers), labels=labels)


def _configuration(text: str, file: str) -> Iterator[Entry]:
    """Yield the settings that Megatron-Bridge prints before training."""
    title = _CONFIGURATION.search(text)
    if title is None:
        return
    begin = text.count("\n", 0, title.start()) + 1
    lines = enumerate(text.split("\n")[begin:_MOST_LINES], start=begin + 1)
    of_rank = [(number, line.removeprefix(title[1]).rstrip("\r")) for number, line in lines if line.startswith(title[1])]
    end = next((at for at, (_, line) in enumerate(of_rank) if _RULE.fullmatch(line)), 0)
    inside = [line for _, line in of_rank[:end]]
    if (read := read_yaml("\n".join(inside), file, inside, lenient=True)) is not None:
        yield from (replace(each, line=each.line and of_rank[each.line - 1][0]) for each in flattened(*read, file))


def _timers(line: str) -> list[tuple[str, float]]:
    """Return the timers of a line, in milliseconds."""
    times = _TIMES.match(line)
    found = [_TIMER_LINE.match(line)] if times is None else [*_TIMER.finditer(times[1])]
    return [(match[1], float(match[2])) for match in found if match is not None and not any(part in match[1] for part in _SETUP)]


def _machine(devices: dict[str, tuple[str, int]], memory_mib: int | None, file: str) -> tuple[Entry, ...]:
    """Return the devices that nvidia-smi lists, as the labels of a node."""
    if not devices:
        return ()
    name, line = next(iter(devices.values()))
    # nvidia-smi cuts long names off; with the memory they tell one accelerator from another.
    size = f" {memory_mib / 1024:.0f}GB" if memory_mib else ""
    found: dict[str, Data] = {"nvidia.com/gpu.product": f"{name}{size}", "nvidia.com/gpu.count": len(devices)}
    return tuple(Entry(key=key, value=value, file=file, line=line) for key, value in found.items())


def _measured(steps: list[tuple[int, float]], timers: Mapping[str, list[float]]) -> LoggedSteps | None:
    if not steps:
        return None
    # The first report includes start-up: compilation, allocation, connections.
    times = [seconds for _, seconds in sorted(steps)[1:]] or [seconds for _, seconds in steps]
    parts = {name: statistics.median(values[1:] or values) for name, values in timers.items()}
    return LoggedSteps(step_time_s=statistics.median(times), n_steps=len(times), timers_s=parts)


_MOST_BYTES: Final = 64 * 2**20
_MOST_STRUCTURED: Final = 2_000_000
"""Characters of YAML, TOML or JSON; no configuration comes near."""
_GZIP: Final = b"\x1f\x8b"
_GZIP_BITS: Final = 31
_HEAD: Final = 20_000
"""Characters by which a file is recognised."""
_TOML_VALUE: Final = re.compile(r"\s*[\w.\"-]+\s*=\s*(?:[\"'\[{0-9+-]|true\b|false\b).*")
_MAPPING_LINE: Final = re.compile(r"^[\s'\"-]*[\w.@/<$-][\w.@/ -]*['\"]?\s*:(?:\s|$)", re.MULTILINE)
_COMMANDS: Final = re.compile(r"(?:^|\s)--[A-Za-z][\w-]+|=|\bpython")
_HINT: Final = "name a configuration, a script, a command line or a log of a training framework"


def read_raw(source: str) -> str:
    """Return the text of a file, or of stdin for ``-``; of a packed or binary file, what of its beginning is text."""
    raw = read_stdin(_MOST_BYTES) if source == STDIN else read_bytes(Path(source), _MOST_BYTES, _HINT)
    if raw[:2] == _GZIP:
        try:
            raw = zlib.decompressobj(wbits=_GZIP_BITS).decompress(raw, _HEAD)
        except zlib.error:
            raw = b"\0"
        return raw.decode("utf-8", errors="replace") + "\0"
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw[:_HEAD].decode("utf-8", errors="replace") + "\0"


def name_of(source: str) -> str:
    """Return how messages call a source."""
    return STDIN_NAME if source == STDIN else source


def read_contents(text: str, file: str, sourced: Mapping[str, str] = NO_TEXTS) -> Contents:
    """Return a text as keys and values; a script may source other files that are named.

    Raises
    ------
    ScenarioError
        When it is binary, empty, or in none of the formats.
    """
    if "\0" in text:
        raise ScenarioError("is binary, not text", place=Place(file=file), hint=_HINT)
    if not text.strip():
        raise ScenarioError("is empty", place=Place(file=file), hint=_HINT)
    if is_log(text):
        return read_log(text, file)
    if len(text) > _MOST_STRUCTURED:
        raise ScenarioError("is larger than 2 MB, and no log of arguments", place=Place(file=file), hint=_HINT)
    if _SERVICE.search(text):
        return read_commands(_SET.sub("export ", _SERVICE.sub("", text)), file, sourced)
    head = _first_line(text)
    if head.startswith(("FROM ", "ARG ")) and (started := _of_image(text)) is not None:
        return read_commands(started, file, sourced)
    if TABLE.fullmatch(head) or _TOML_VALUE.fullmatch(head):
        found = _toml(text, file)
        if found is not None:
            return found
    if head.startswith(("{", "[")):
        return _json(text, file) or _yaml(text, file)
    if not text.startswith("#!") and _looks_like_mapping(text):
        return read_containers(text, file) or _yaml(text, file)
    if _COMMANDS.search(text) or part_in(text) == "serve" or any(name in text for name in sourced):
        return read_commands(text, file, sourced)
    raise ScenarioError("holds no keys and values", place=Place(file=file), hint=_HINT)


def _of_image(text: str) -> str | None:
    """Return the command that a Dockerfile starts, and its variables, line by line as a script has them; None without one."""
    spans: list[tuple[int, int]] = []
    image = ""
    end = len(text)
    for stage in reversed([*_STAGE.finditer(text)]):
        if not spans or stage[2] == image:
            spans.insert(0, (stage.start(), end))
            image = stage[1]
        end = stage.start()
    # Arguments before the first stage are for the names of images.
    spans.insert(0, (0, end))
    started = {each[1]: each for span in spans for each in _STARTED.finditer(text, *span)}
    if not started:
        return None
    lines = [""] * (text.count("\n") + 1)
    for each in (each for span in spans for each in _VARIABLE.finditer(text, *span)):
        at = text.count("\n", 0, each.start())
        # Without an equals sign the value is all that follows.
        value = each[3] if each[2] == "=" else _BLANKS.sub(lambda match: match[1] or f'"{match[0]}"', each[3])
        set_here = f"export {each[1]}={value}".split("\n")
        lines[at : at + len(set_here)] = set_here
    at = text.count("\n", 0, max(each.start() for each in started.values()))
    words = [_quoted(started[key][2]) for key in ("ENTRYPOINT", "CMD") if key in started]
    lines[at] = " ".join(("docker run", image, *words))
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """Return a list of words as a shell takes them; any other text as it is, without continued lines."""
    text = text.replace("\\\n", " ")
    try:
        words: Data = json.loads(text)
    except ValueError:
        return text
    return shlex.join(map(str, words)) if isinstance(words, list) else text


def _first_line(text: str) -> str:
    """Return the first line that is no comment."""
    return next((line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")), "")


def _looks_like_mapping(text: str) -> bool:
    head = _first_line(text)
    if head in ("---", "%YAML 1.2"):
        return True
    # In a script a colon stands here and there; in YAML it is on the first line.
    return _MAPPING_LINE.match(head) is not None


def _yaml(text: str, file: str) -> Contents:
    read = read_yaml(text.replace("\t", "  "), file, text.splitlines(), lenient=True)
    if read is None or not isinstance(read[0], dict):
        raise ScenarioError("is not a mapping of keys to values", place=Place(file=file), hint=_HINT)
    entries = tuple(flattened(*read, file))
    labels = tuple(wandb_labels(entries))
    entries = tuple(wandb_values(entries)) if is_wandb(entries) else entries
    held = [each for each in entries if each.key.endswith(_HELD)]
    if (recipe := _RUN_WITH.search(text)) is not None:
        entries = (Entry(key="program", value=recipe[1], file=file, line=text.count("\n", 0, recipe.start(1)) + 1), *entries)
    texts = [read_yaml(str(each.value), file, [], lenient=True) for each in held]
    within = (entry for each in texts if each is not None for entry in flattened(each[0], None, file))
    return Contents(file=file, format="yaml", entries=resolved((*within, *(each for each in entries if each not in held))), labels=labels)


def _json(text: str, file: str) -> Contents | None:
    try:
        data: Data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    entries = tuple(flattened(data, None, file))
    if isinstance(data, dict) and len(entries) <= _HEAD:
        # JSON is YAML; what that refuses, such as tabs, keeps its values and goes without lines.
        try:
            read = read_yaml(text.replace("\t", "  "), file, text.splitlines(), lenient=True)
        except ScenarioError:
            read = None
        lines = {entry.key: entry.line for entry in flattened(*read, file)} if read is not None else {}
        entries = tuple(Entry(key=entry.key, value=entry.value, file=file, line=lines.get(entry.key)) for entry in entries)
    if not isinstance(data, dict):
        raise ScenarioError("is a list, not a mapping of keys to values", place=place_in(text, file, ()), hint=_HINT)
    return Contents(file=file, format="json", entries=resolved(entries))


def _toml(text: str, file: str) -> Contents | None:
    try:
        return Contents(file=file, format="toml", entries=tuple(toml_entries(text, file)))
    except ValueError as error:
        if TABLE.fullmatch(_first_line(text)):
            raise ScenarioError(f"is not TOML: {str(error)[:1].lower()}{str(error)[1:]}", place=Place(file=file), hint=_HINT) from error
        return None
    except RecursionError as error:
        raise ScenarioError("is nested too deep", place=Place(file=file)) from error
