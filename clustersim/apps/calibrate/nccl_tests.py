"""Output of nccl-tests: collectives by size, as text or JSON, and the hardware they ran on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Final

from clustersim.apps.calibrate.measurements import measured_file, read_table, read_text
from clustersim.apps.collective.collective_times import OPERATIONS
from clustersim.documents.json_text import place_in, read_json
from clustersim.documents.text import Data, source_place
from clustersim.errors import Place, ScenarioError
from clustersim.hardware.library_costs import CollectiveOp

PROGRAMS: Final[dict[str, CollectiveOp]] = {
    **{op: op for op in OPERATIONS},
    "alltoall": "all_to_all",
    "sendrecv": "send_recv",
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
}
"""Operations by the names of the programs of nccl-tests, without ``_perf``, and by what people call files."""
MICRO: Final = 1e-6

AUTO: Final = "auto"
NCCL_NAMES: Final[dict[str, str]] = {"nvlstree": "nvls_tree", "collnetdirect": "sharp", "collnetchain": "sharp"}
"""Values of NCCL_ALGO, in small letters, that are called otherwise here."""

_LABEL: Final = re.compile(r"^\s*(?:\[[^\]]*\](?:<\w+>)?:?|[\w.-]+:)\s?(?=[\s#\d])")
"""Label of a launcher before every line: ``[1,0]<stdout>:`` (mpirun), ``0: `` (srun -l), ``node-7: `` (pdsh), ``[pod/name]`` (kubectl)."""
_ALGORITHM: Final = re.compile(r"NCCL_ALGO set by environment to (\w+)")
"""Printed with NCCL_DEBUG=INFO."""
_PROGRAM: Final = re.compile(r"(?:^|[/\s])([a-z_]+?)_perf\w*(?:$|[\s\"'])")
_BEGINS: Final = re.compile(r"nThread\s+\d+\s+nGpus\s+\d+")
_DEVICE: Final = re.compile(r"^\s*#?\s*Rank\s+\d+\s.*\son\s+(\S+)\s+device\s(?:\s*\d+\s+\[[^\]]*\]\s*(.*\S))?")
"""Host of a rank, and what its device is called."""
_RESULT: Final = re.compile(r"^\s*(\d+)\s+(\d+)\s+[a-z]\w*\s+(?:[a-z]\w*\s+)?(?:-?\d+\s+(?=(?:\S+\s+){7}\S+\s*$))?(\S+\s.*)$")
"""Bytes, elements, type, reduction and root, of which old versions leave out some, then times and bandwidths out of place and in place."""
_REDUCES: Final = re.compile(r"\s(sum|prod|max|min|avg)\s+-1\s")
"""Reduction without a root."""
COLUMNS: Final = {
    "op": ("collective", "operation"),
    "nodes": (),
    "ranks_per_node": (),
    "algorithm": (),
    "bytes": ("size", "size_bytes"),
    "time_s": ("seconds",),
    "time_ms": ("ms",),
    "time_us": ("us",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedCollective:
    """One measured collective."""

    op: CollectiveOp
    n_nodes: int
    ranks_per_node: int
    size_bytes: float
    time_s: float
    file: str
    algorithm: str = AUTO
    device: str = ""
    """Name of the devices that it ran on, as far as the file says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """Nodes and ranks in each, as far as known."""

    n_nodes: int | None = None
    per_node: int | None = None

    def known(self, hosts: Sequence[str], place: Place) -> tuple[int, int]:
        """Return nodes and ranks in each, from the hosts of all ranks where the user gives none.

        Raises
        ------
        ScenarioError
            When nobody says, hosts have different numbers of ranks, or the two contradict each other.
        """
        counts = {host: hosts.count(host) for host in dict.fromkeys(hosts)}
        if len(set(counts.values())) > 1:
            raise ScenarioError(f"hosts have different numbers of ranks: {_listed(counts)}", place=place)
        listed = (len(counts), next(iter(counts.values()))) if counts else (None, None)
        n_nodes, per_node = self.n_nodes or listed[0], self.per_node or listed[1]
        if n_nodes is None or per_node is None:
            message = "nothing says on how many nodes and ranks this ran"
            raise ScenarioError(message, hint="add --nodes and --ranks-per-node", place=place)
        if counts and n_nodes * per_node != len(hosts):
            message = f"lists {len(hosts)} ranks, and {n_nodes} nodes of {per_node} have {n_nodes * per_node}"
            raise ScenarioError(message, hint="leave out --nodes and --ranks-per-node, or correct them", place=place)
        return n_nodes, per_node


def read_collectives(path: str, ranks: Ranks) -> list[TimedCollective]:
    """Return the measured collectives of a file: nccl-tests as text or JSON (``-J``), or a table (``.csv``).

    A table has the columns ``op``, ``nodes``, ``ranks_per_node``, ``bytes``, one of ``time_s``, ``time_ms`` and ``time_us``, and if wanted
    ``algorithm``. Times are those out of place, as nccl-tests puts them first.

    Parameters
    ----------
    ranks
        What the user says of nodes and ranks; the file may say it itself.

    Raises
    ------
    ScenarioError
        When the file cannot be used, with the place of the first mistake.
    """
    suffix = Path(path).suffix.lower()
    found = _of_table(path) if suffix == ".csv" else _of_json(path, ranks) if suffix == ".json" else _of_text(path, ranks)
    if not found:
        hint = "expected are lines such as '1048576 262144 float sum -1 61.5 17.1 29.8 0'"
        raise ScenarioError("holds no measured collective", hint=hint, place=Place(file=path))
    return found


def _of_table(path: str) -> list[TimedCollective]:
    name = measured_file(path).name
    return [
        TimedCollective(
            op=PROGRAMS[line.choice("op", {each: each for each in PROGRAMS})],
            n_nodes=line.whole("nodes"),
            ranks_per_node=line.whole("ranks_per_node"),
            size_bytes=float(line.whole("bytes")),
            time_s=line.seconds(0.0),
            file=name,
            algorithm=line.cells.get("algorithm", AUTO),
        )
        for line in read_table(path, COLUMNS, ("op", "nodes", "ranks_per_node", "bytes"))
    ]


def _of_text(path: str, ranks: Ranks) -> list[TimedCollective]:
    name = measured_file(path).name
    raw = read_text(path).splitlines()
    lines = [_LABEL.sub("", line) for line in raw]
    algorithm = next((algorithm_of(match[1]) for match in map(_ALGORITHM.search, raw) if match), AUTO)
    hosts: list[str] = []
    called = ""
    program: str | None = None
    each: TimedCollective | None = None
    found: list[TimedCollective] = []
    for number, line in enumerate(lines, 1):
        if (started := _PROGRAM.search(line)) is not None or _BEGINS.search(line):
            # Another test of the same log.
            hosts = hosts if each is None else []
            program, each = started[1] if started is not None else program, None
        if (device := _DEVICE.match(line)) is not None:
            hosts.append(device[1])
            called = device[2] or called
        match = _RESULT.match(line)
        if match is None:
            continue
        if each is None:
            n_nodes, per_node = ranks.known(hosts, Place(file=path))
            op = _operation(program, path, None if program else _operation_of(lines[number - 1 :], n_nodes * per_node))
            each = TimedCollective(
                op=op, n_nodes=n_nodes, ranks_per_node=per_node, size_bytes=0.0, time_s=0.0, file=name, algorithm=algorithm, device=called
            )
        column = len(raw[number - 1]) - len(line) + match.start(3) + 1
        time_us = _first_time(match[3], source_place(path, raw, number, column))
        if int(match[1]) > 0 and time_us > 0.0:
            found.append(replace(each, size_bytes=float(match[1]), time_s=time_us * MICRO))
    return found


def algorithm_of(name: str) -> str:
    """Return what an algorithm is called here that NCCL_ALGO may call otherwise.

    Examples
    --------
    >>> algorithm_of("NVLSTree"), algorithm_of("Ring")
    ('nvls_tree', 'ring')
    """
    return NCCL_NAMES.get(name.lower(), name.lower())


def _first_time(text: str, place: Place) -> float:
    word = text.split(maxsplit=1)[0]
    try:
        return float(word)
    except ValueError as error:
        raise ScenarioError(f"'{word}' is not a time in microseconds", place=place) from error


def _of_json(path: str, ranks: Ranks) -> list[TimedCollective]:
    _, text, data = read_json(path)
    name = measured_file(path).name
    config = data.get("config") if isinstance(data, dict) else None
    devices = _list_at(config, "devices") or _list_at(data, "devices")
    hosts = [str(device.get("hostname")) for device in devices if isinstance(device, dict)]
    arguments = _list_at(data, "args")
    results = _list_at(data, "results")
    if not results:
        return []
    op = _operation(Path(str(arguments[0])).name.partition("_perf")[0] if arguments else None, path)
    n_nodes, per_node = ranks.known(hosts, Place(file=path))
    found: list[TimedCollective] = []
    for index, result in enumerate(results):
        size, time_us = _result(result)
        if size is None or time_us is None:
            place = place_in(text, path, ("results", index))
            raise ScenarioError("has no size and time", hint="expected are 'size' and 'out_of_place': {'time': ...}", place=place)
        if size > 0.0 and time_us > 0.0:
            found.append(
                TimedCollective(op=op, n_nodes=n_nodes, ranks_per_node=per_node, size_bytes=size, time_s=time_us * MICRO, file=name)
            )
    return found


def _result(result: Data) -> tuple[float | None, float | None]:
    """Return size and time of one result; the time is that in place where there is no other."""
    if not isinstance(result, dict):
        return None, None
    body = result.get("out_of_place") or result.get("in_place")
    time_us = body.get("time") if isinstance(body, dict) else None
    size = result.get("size")
    return (float(size) if isinstance(size, int | float) else None, float(time_us) if isinstance(time_us, int | float) else None)


def _list_at(data: Data, key: str) -> list[Data]:
    found = data.get(key) if isinstance(data, dict) else None
    return found if isinstance(found, list) else []


def _operation(program: str | None, path: str, measured: CollectiveOp | None = None) -> CollectiveOp:
    """Return the operation of a program, or else the one that the name of the file or else its bandwidth tells."""
    if program is not None and program in PROGRAMS:
        return PROGRAMS[program]
    if program is None:
        words = re.sub(r"[^a-z]+", "_", Path(path).stem.lower()).strip("_")
        named: list[CollectiveOp] = [
            PROGRAMS[word] for word in sorted(PROGRAMS, key=len, reverse=True) if re.search(rf"(^|_){word}(_|$)", words)
        ]
        if measured is not None and named and measured not in named:
            message = f"is named as {named[0]}, and has the bus bandwidth of {measured}"
            raise ScenarioError(message, hint="rename the file, or check the number of ranks", place=Place(file=path))
        if measured is not None or named:
            return named[0] if measured is None else measured
        hint = "begin the name of the file with it, such as all_reduce-2x8.txt"
        raise ScenarioError("nothing says which operation this is", hint=hint, place=Place(file=path))
    raise ScenarioError(f"'{program}' is not simulated", hint=f"use one of {', '.join(OPERATIONS)}", place=Place(file=path))


def _operation_of(lines: Sequence[str], n_ranks: int) -> CollectiveOp | None:
    """Return the operation that reduces, by bus bandwidth over bandwidth in the largest result of a test; None of any other."""
    own = takewhile(lambda line: not _BEGINS.search(line), lines)
    rows = [match for line in own if (match := _RESULT.match(line)) is not None and _REDUCES.search(line)]
    words = max(rows, key=lambda row: int(row[1]))[3].split() if rows else []
    try:
        share = float(words[2]) / float(words[1])
    except (IndexError, ValueError, ZeroDivisionError):
        return None
    once = (n_ranks - 1) / n_ranks
    known: dict[CollectiveOp, float] = {"all_reduce": 2 * once, "reduce_scatter": once}
    return next((op for op, wanted in known.items() if abs(share - wanted) < 0.25 / n_ranks), None)


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{host} {count}" for host, count in list(counts.items())[:4])
