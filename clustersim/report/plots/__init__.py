"""Pictures of a step: pipeline, breakdown and memory. Only the modules that draw import matplotlib."""

from __future__ import annotations

from clustersim.report.plots.write import write_plots

__all__ = ["write_plots"]
