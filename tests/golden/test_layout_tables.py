"""Tables of layouts in the guides are what the simulator predicts; ``pytest --update-golden`` writes them anew."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

import pytest

from clustersim.apps.run.running import run

GUIDES = Path(__file__).parents[2] / "docs" / "how-to"
TABLE = re.compile(r"(?P<mark><!-- layouts of (?P<name>\S+) -->\n)(?P<rows>(?:\|[^\n]*\n)+)")
HEAD = ("| set | tokens/s/GPU | MFU | memory | compute | largest loss |", "|---|---:|---:|---:|---:|---|")
CASES = [(page, match["name"]) for page in sorted(GUIDES.glob("*.md")) for match in TABLE.finditer(page.read_text(encoding="utf-8"))]


def row(name: str, settings: str) -> str:
    result = run(name, set=[] if settings == "as it is" else [each.strip("` ") for each in settings.split("`, `")])
    metrics, breakdown = result.metrics, result.metrics.breakdown_s
    exposed: dict[str, float] = asdict(breakdown.exposed_communication)
    losses = {**{f"exposed {kind.upper()}": time_s for kind, time_s in exposed.items()}, "bubble": breakdown.bubble}
    worst = max(losses, key=lambda kind: losses[kind])
    memory = f"{metrics.memory.peak_bytes / 1e9:.0f} GB" + ("" if metrics.memory.fits else ", does not fit")
    parts = (
        settings,
        f"{metrics.tokens_per_s_per_gpu or 0.0:,.0f}",
        f"{100 * metrics.mfu:.1f} %",
        memory,
        f"{100 * breakdown.compute / metrics.step_time_s:.0f} %",
        f"{worst}, {100 * losses[worst] / metrics.step_time_s:.0f} %",
    )
    return f"| {' | '.join(parts)} |"


@pytest.mark.slow
@pytest.mark.parametrize(("page", "name"), CASES, ids=[f"{page.stem}: {name}" for page, name in CASES])
def test_a_table_of_layouts_is_what_is_predicted(page: Path, name: str, request: pytest.FixtureRequest) -> None:
    text = page.read_text(encoding="utf-8")
    shown = next(match for match in TABLE.finditer(text) if match["name"] == name)
    settings = [line.split(" | ")[0].removeprefix("| ") for line in shown["rows"].splitlines()[2:]]

    table = "".join(f"{line}\n" for line in (*HEAD, *(row(name, each) for each in settings)))

    if request.config.getoption("--update-golden"):
        page.write_text(f"{text[: shown.start('rows')]}{table}{text[shown.end('rows') :]}", encoding="utf-8", newline="\n")
        return
    assert shown["rows"] == table
