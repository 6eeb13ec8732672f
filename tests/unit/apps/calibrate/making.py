"""Measurements that are made from known constants, for the tests that ask for them back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from clustersim.apps.calibrate.fitting import CalibrationTarget, in_bursts
from clustersim.hardware.calibration import Calibration
from clustersim.hardware.calibrations import calibration_of_generation, changed
from clustersim.hardware.catalog import load_accelerator
from clustersim.workloads.operators import FlashAttention, Gemm

A100: Final = "a100-sxm4-80g"
BASE: Final = calibration_of_generation("ampere")
TARGET: Final = CalibrationTarget(accelerator=load_accelerator(A100), base=BASE)
SHAPES: Final = tuple((m, n, k) for m in (512, 1024, 2048, 8192) for n in (512, 768, 1536, 4096, 12288) for k in (256, 1024, 4096))


def known(values: Mapping[str, float]) -> Calibration:
    """Return the constants of the A100 with some others."""
    return changed(BASE, values)


def write(path: Path, header: str, rows: Iterable[Sequence[object]]) -> str:
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n", encoding="utf-8")
    return str(path)


def products_file(path: Path, calibration: Calibration, shapes: Iterable[tuple[int, int, int]] = SHAPES) -> str:
    """Write products as they would be measured with some constants."""
    card = in_bursts(TARGET, calibration, "bf16")
    return write(path, "m,n,k,dtype,time_us", [(*shape, "bf16", card.kernel_s(Gemm(*shape)) * 1e6) for shape in shapes])


def attention_file(path: Path, calibration: Calibration) -> str:
    """Write attention, each direction by itself, as it would be measured with some constants."""
    card = in_bursts(TARGET, calibration, "bf16")
    rows: list[Sequence[object]] = []
    for length in (512, 1024, 4096, 16384):
        for width in (64, 128):
            for causal in (False, True):
                for way in ("fwd", "bwd"):
                    kernel = FlashAttention(2, 16, 16, length, length, width, causal, way == "bwd", generation="flash_2")
                    rows.append(("flash_2", "bf16", way, causal, width, length, 2, 16, card.kernel_s(kernel)))
    return write(path, "implementation,dtype,pass,causal,head_dim,seq_len,batch,heads,time_s", rows)


def nccl_text(times_us: Mapping[int, float], *, hosts: Sequence[str], program: str | None = "all_reduce_perf", prefix: str = "") -> str:
    """Return what nccl-tests prints."""
    lines = ["# nThread 1 nGpus 1 minBytes 8 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20"]
    lines += [f"# Collective test starting: {program}"] if program else []
    lines += ["# Using devices"]
    lines += [
        f"#  Rank {rank:2} Group  0 Pid {rank + 40:6} on {host:>10} device {rank % 8:2} [0x0f] A100" for rank, host in enumerate(hosts)
    ]
    lines += ["#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong"]
    for size, time_us in times_us.items():
        lines.append(
            f"{size:12}  {size // 4:12}     float     sum      -1  {time_us:.9g}    0.02    0.05      0    {time_us / 2:.9g}  1 1  0"
        )
    lines += ["# Avg bus bandwidth    : 66.4834"]
    return "".join(f"{prefix}{line}\n" for line in lines)


class Trace:
    """A trace of the profiler that is written kernel by kernel."""

    def __init__(self) -> None:
        self.events: list[dict[str, object]] = [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}]
        self.device: dict[str, object] | None = {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85_899_345_920}
        self.number = 0
        self.host_us = 0.0
        self.device_us = 0.0

    def kernel(
        self,
        name: str,
        tensors: Sequence[Sequence[int]],
        duration_us: float,
        *,
        kind: str = "c10::Half",
        gap_us: float = 2.0,
        dispatch_us: float = 40.0,
    ) -> None:
        """Add an operator with its launch and its kernel, which follows the one before on the stream."""
        self.number += 1
        ids = {"External id": self.number}
        dims = [*map(list, tensors), []]
        shapes: dict[str, object] = {**ids, "Input Dims": dims, "Input type": [*[kind] * len(tensors), "Scalar"]}
        self._add("cpu_op", name, self.host_us, dispatch_us / 2, shapes, tid=11)
        self._add("cuda_runtime", "cudaLaunchKernel", self.host_us + 5, 4, {**ids, "correlation": 1000 + self.number}, tid=11)
        self.device_us = max(self.device_us + gap_us, self.host_us + 10)
        self._add("kernel", "k", self.device_us, duration_us, {"correlation": 1000 + self.number, "stream": 7, "device": 0}, tid=7)
        self.device_us += duration_us
        self.host_us += dispatch_us

    def wait(self) -> None:
        """Let the host wait for the accelerator."""
        self._add("cuda_runtime", "cudaDeviceSynchronize", self.host_us, 1, {}, tid=11)
        self.host_us = max(self.host_us, self.device_us) + 3000.0

    def write(self, path: Path) -> str:
        named = {} if self.device is None else {"deviceProperties": [self.device]}
        path.write_text(json.dumps({**named, "traceEvents": self.events}), encoding="utf-8")
        return str(path)

    def _add(self, kind: str, name: str, ts: float, dur: float, args: dict[str, object], *, tid: int) -> None:
        self.events.append({"ph": "X", "cat": kind, "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": tid, "args": args})
