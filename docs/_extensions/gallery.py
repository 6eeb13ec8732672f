"""Draw the pictures of the gallery when the documentation is built."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata

from clustersim.apps.plot.plots import draw_plot
from clustersim.report.plots.canvas import save, style

FOLDER: Final = "_gallery"
PAID: Final = ("cost.gpu_hour=2.50 USD", "cost.power_price=0.08 USD/kWh")
SCHEDULES: Final = ("1f1b", "gpipe", "zb-h1", "dualpipe")
SWEEP: Final = "reference/gallery-sweep.csv"

PICTURES: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = MappingProxyType(
    {
        **dict.fromkeys(("pipeline", "timeline", "communication", "links", "topology", "roofline"), (("llama3-70b-h100-512",), ())),
        "breakdown": (SCHEDULES, ()),
        "memory": (("llama3-405b-4d",), ()),
        "memory_over_time": (("1f1b",), ()),
        "cost": (("llama3-405b-16k-cost",), ()),
        "goodput": (("llama3-405b-16k-cost",), ()),
        "strong_scaling": (("llama3-70b-h100-512",), ()),
        "weak_scaling": (("llama3-8b-8xh100",), ()),
        **dict.fromkeys(("latency", "kv", "throughput_latency"), (("serve-llama3-70b-chat",), ())),
        "pareto": (SCHEDULES, PAID),
        "heatmap": ((SWEEP,), ()),
        "lines": ((SWEEP,), ()),
        "tornado": (("llama3-8b-slow-network",), ()),
        "validation": (("megatron-sc21", "korthikanti-2022", "zero-bubble", "fms-fsdp"), ()),
    }
)
"""Of each kind, what it is drawn from, and what is set."""


def draw_gallery(app: Sphinx) -> None:
    """Draw every picture that is not there yet."""
    folder = Path(app.srcdir) / FOLDER
    folder.mkdir(exist_ok=True)
    for kind, (sources, overrides) in PICTURES.items():
        path = folder / f"{kind}.png"
        if not path.is_file():
            found = [str(Path(app.srcdir) / source) if source == SWEEP else source for source in sources]
            with style():
                save(draw_plot(kind, found, overrides), path)


def setup(app: Sphinx) -> ExtensionMetadata:
    """Draw before pages are read."""
    app.connect("builder-inited", draw_gallery)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
