"""Write the table of benchmarks for the documentation from what pytest-benchmark has measured.

Usage: python -m tests.benchmarks.table MEASURED.json DOCUMENT.md
"""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path
from typing import Final, TypedDict

TEXT: Final = """# Benchmarks

Written by `make bench`; figures are of the machine below, the best of several rounds each. Ratios compare two things
that were timed in turn in one run, and `make ratios` fails when one of them gets worse by more than a third.

| machine | |
|---|---|
| processor | {processor}, {cores} cores |
| system | {system} |
| Python | {python} |

| what | measured | limit | held |
|---|---:|---:|---|
{rows}
"""


class Measured(TypedDict):
    """One benchmark of the document that pytest-benchmark writes."""

    name: str
    extra_info: dict[str, str | float]


def sentence(name: str) -> str:
    """Return the claim of a test as people write it.

    Examples
    --------
    >>> sentence("test_help_starts_at_once[a]")
    'help starts at once (a)'
    """
    words, _, case = name.removeprefix("test_").partition("[")
    return words.replace("_", " ") + (f" ({case.removesuffix(']')})" if case else "")


def row(of: Measured) -> str:
    """Return a line of the table."""
    info = of["extra_info"]
    measured, limit, unit = float(info["measured"]), float(info["limit"]), str(info["unit"])
    less = info["better"] == "less"
    held = measured <= limit if less else measured >= limit
    cells = (sentence(of["name"]), _shown(measured, unit), f"{'<=' if less else '>='} {_shown(limit, unit)}", "yes" if held else "no")
    return f"| {' | '.join(cells)} |"


def _shown(value: float, unit: str) -> str:
    if unit == "B":
        return f"{value / 1e6:,.0f} MB"
    return f"{value:.3g} {unit}".rstrip()


def main(measured: Path, document: Path) -> None:
    """Read what was measured and write the document."""
    found = json.loads(measured.read_text(encoding="utf-8"))
    rows = [row(each) for each in found["benchmarks"] if "measured" in each["extra_info"]]
    cpu = found["machine_info"]["cpu"]
    text = TEXT.format(
        processor=cpu.get("brand_raw", platform.machine()),
        cores=os.cpu_count(),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        rows="\n".join(rows),
    )
    document.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
