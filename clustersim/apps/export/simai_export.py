"""A simulated step as a workload of SimAI: rows of the first stage, with the times of its passes and the bytes of its collectives.

SimAI computes rows one after the other: forward in order, backward in reverse, and then what concerns weights. Overlap inside a pass, and
the time that a stage waits for others, are therefore its own business. Times are in nanoseconds.

References
----------
.. [1] Alibaba, *SimAI*, ``Workload::initialize_workload``: https://github.com/aliyun/SimAI.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Final

from clustersim.apps.export.operations import StepOperation, operations_of
from clustersim.apps.run.result import Result
from clustersim.documents.files import write_text
from clustersim.errors import ScenarioError
from clustersim.program.tasks import Collective

_OPS: Final = {"all_reduce": "ALLREDUCE", "all_gather": "ALLGATHER", "reduce_scatter": "REDUCESCATTER", "all_to_all": "ALLTOALL"}
_UPDATE_NS: Final = 100
"""Time after a weight gradient, as AICB writes it for all rows."""
_LEAST_NS: Final = 1
"""AICB writes it where nothing is computed."""
_MOST_BYTES: Final = 2**31 - 1
"""SimAI reads the bytes of a send as a 32-bit number."""


@dataclass(frozen=True, slots=True)
class _RowPart:
    """Computation, and the collective behind it."""

    name: str
    seconds: float
    collective: Collective | None

    def text(self) -> str:
        """Return time, collective and bytes."""
        return f"{max(_LEAST_NS, round(self.seconds * 1e9))}\t{_called(self.collective)}"


_NOTHING: Final = _RowPart("", 0.0, None)


def write_simai(result: Result, path: Path) -> None:
    """Write the workload."""
    program, steps = operations_of(result)
    operations, plan = steps[0], result.built.plan
    sharding = plan.strategy
    tasks = program.tasks
    n_batches = 1 + max((tasks[each.task].micro_batch for each in operations), default=0)
    sends = [each.transfer.bytes for each in operations if each.transfer is not None]
    rows = [
        _row(f"weights_{operation.name}".replace(" ", "_"), _NOTHING, _NOTHING, operation)
        for operation in operations
        if operation.beside and operation.collective is not None and operation.collective.group.size > 1
    ]
    for number in range(n_batches):
        own = [each for each in operations if tasks[each.task].micro_batch == number]
        forward = _parts([each for each in own if each.phase == "forward"])
        backward = _parts([each for each in own if each.phase in ("backward", "input", "weight", "recompute")])
        rows += [
            _row(one.name or other.name, one, other, None) for one, other in zip_longest(forward, reversed(backward), fillvalue=_NOTHING)
        ]
    rest = sum(
        each.duration_s
        for each in operations
        if each.collective is None and each.transfer is None and each.phase in ("optimizer", "host", "load")
    )
    rows.append(f"optimizer\t-1\t{_LEAST_NS}\tNONE\t0\t{_LEAST_NS}\tNONE\t0\t{max(_LEAST_NS, round(rest * 1e9))}\tNONE\t0\t{_UPDATE_NS}")
    head = {
        "model_parallel_NPU_group": sharding.tp,
        "ep": sharding.ep,
        "pp": sharding.pp,
        "vpp": sharding.virtual_stages,
        "ga": n_batches,
        "all_gpus": plan.n_ranks,
        "checkpoints": 0,
        "checkpoint_initiates": 0,
        **({"pp_comm": min(_MOST_BYTES, round(max(sends)))} if sends else {}),
    }
    first = "HYBRID_TRANSFORMER_FWD_IN_BCKWD " + " ".join(f"{key}: {value}" for key, value in head.items())
    write_text(path, "\n".join([first, str(len(rows)), *rows]) + "\n")


def _parts(operations: Sequence[StepOperation]) -> list[_RowPart]:
    """Return what is computed, up to each collective."""
    found: list[_RowPart] = []
    name, seconds = "", 0.0
    for operation in operations:
        if operation.collective is None:
            name, seconds = name or operation.name, seconds + operation.duration_s
        else:
            found.append(_RowPart(name or operation.name, seconds, operation.collective))
            name, seconds = "", 0.0
    return [*found, _RowPart(name, seconds, None)] if seconds > 0.0 else found


def _row(name: str, forward: _RowPart, backward: _RowPart, weights: StepOperation | None) -> str:
    last = _RowPart("", 0.0, None if weights is None else weights.collective)
    return f"{name.replace(' ', '_')}\t-1\t{forward.text()}\t{backward.text()}\t{last.text()}\t{_UPDATE_NS}"


def _called(collective: Collective | None) -> str:
    """Return a collective and its bytes: of tensor-parallel ranks, or of data-parallel ones for weights, where nothing else is said."""
    if collective is None:
        return "NONE\t0"
    group = collective.group
    if collective.op not in _OPS or group.dimension not in ("tp", "ep", "dp", "pp"):
        message = f"a workload of SimAI has no {collective.op.replace('_', '-')} of {group.name}"
        raise ScenarioError(message, field="--as", hint="use chakra, which names any group")
    suffix = "_EP" if group.dimension == "ep" else "_DP_EP" if group.name.startswith("expert") else ""
    return f"{_OPS[collective.op]}{suffix}\t{round(collective.bytes)}"
