"""All presets by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from clustersim.scenario.preset_data_parallel import DATA_PARALLEL
from clustersim.scenario.preset_megatron import MEGATRON_LIKE
from clustersim.scenario.preset_model_parallel import MODEL_PARALLEL
from clustersim.scenario.preset_sources import Preset

PRESETS: Final[Mapping[str, Preset]] = MappingProxyType({**DATA_PARALLEL, **MEGATRON_LIKE, **MODEL_PARALLEL})
"""Every value of ``strategy.preset``."""
