from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from clustersim.network import compiled
from clustersim.network.compiled import compiled_loops, compiled_loops_are_loaded, numba_is_installed
from tests.unit.network.tables import following, levels, needs_numba, random_wiring, settle


@needs_numba
def test_compiled_loops_do_what_the_interpreter_does() -> None:
    for seed in range(10):
        generator = np.random.default_rng(seed)
        laid = random_wiring(generator)
        slow, fast = following("loops", laid), following("compiled", laid)
        for _ in range(20):
            kind, count = int(generator.integers(len(laid.limits))), float(generator.integers(3))
            assert settle(slow, {kind: count}) == settle(fast, {kind: count})

            # The compiler may round a product and a sum at once.
            assert levels(slow) == pytest.approx(levels(fast), rel=1e-12)
            assert slow.changes([])[0].tolist() == fast.changes([])[0].tolist()
            assert slow.n_looks == fast.n_looks


@needs_numba
def test_the_loops_are_loaded_once() -> None:
    assert compiled_loops() is compiled_loops()
    assert compiled_loops_are_loaded()


@needs_numba
def test_without_a_folder_for_machine_code_the_loops_are_compiled_all_the_same(tmp_path: Path) -> None:
    code = (
        "import numba\n"
        "real = numba.njit\n"
        "def njit(*args, cache=False):\n"
        "    if cache:\n"
        "        raise RuntimeError('cannot cache function: no locator available')\n"
        "    return real(*args)\n"
        "numba.njit = njit\n"
        "from clustersim.network.compiled import compiled_loops\n"
        "print(type(compiled_loops().settle).__name__)\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["CPUDispatcher"]


def test_numba_is_not_loaded_by_those_who_do_not_need_it() -> None:
    code = (
        "import sys\n"
        "from clustersim.network.flows import Flow, Pipe, finish_times\n"
        "finish_times([Pipe(bandwidth_bytes_per_s=1.0, latency_s=0.0)], [Flow(route=(0,), size_bytes=1.0, start_s=0.0)])\n"
        "print('numba' in sys.modules)\n"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() == ["False"]


def test_who_has_no_numba_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "find_spec", lambda name: None)

    assert not numba_is_installed()
