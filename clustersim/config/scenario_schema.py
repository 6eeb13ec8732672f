"""The scenario file as pydantic models: which keys there are, and what each may hold.

None means "left out" throughout; the build fills it in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    JsonValue,
    PlainSerializer,
    WithJsonSchema,
)

from clustersim.config.cost_section import CostSpec
from clustersim.config.goodput_section import ReliabilitySpec
from clustersim.config.node_groups import NodeGroups
from clustersim.config.stragglers import JitterSpec, StragglerSpec
from clustersim.errors import ScenarioError
from clustersim.hardware.calibration import MOST_SPREAD
from clustersim.hardware.profile_schema import Checked, NodeChange
from clustersim.parallel.settings import refuse_boolean
from clustersim.parallel.step_settings import Training
from clustersim.parallel.training_plan import StrategySettings
from clustersim.topology.names import LinkChange
from clustersim.units.fields import Degree, Numbers, Seconds, mistake
from clustersim.units.quantity import exact_quantity, parse_quantity

_HINT: Final = "write it such as '40 Gbit/s' or '50 %'"


_PERCENT: Final = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """One of the two."""

    rate_bytes_per_s: float | None = None
    fraction: float | None = None
    """Share of the data-sheet bandwidth of each link."""

    def on(self, bandwidth_bytes_per_s: float) -> float:
        """Return the rate on a link, in bytes per second."""
        if self.rate_bytes_per_s is not None:
            return self.rate_bytes_per_s
        return (self.fraction or 0.0) * bandwidth_bytes_per_s


def _read(value: object) -> Amount:
    if isinstance(value, Amount):
        return value
    text = value.strip() if isinstance(value, str) else ""
    if text.endswith("%"):
        return Amount(fraction=_share(text))
    try:
        rate = parse_quantity(value, "B/s")
    except ScenarioError as error:
        raise mistake(error.message, _HINT) from error
    if rate == 0.0:
        raise mistake("a load of nothing is none", _HINT)
    return Amount(rate_bytes_per_s=rate)


def _share(text: str) -> float:
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = math.nan
    if not 0.0 < percent <= _PERCENT:
        raise mistake(f"'{text}' is not a share above 0 % and at most 100 %", _HINT)
    return percent / _PERCENT


def _write(amount: Amount) -> str:
    if amount.rate_bytes_per_s is not None:
        return exact_quantity(amount.rate_bytes_per_s, "B/s")
    fraction = amount.fraction or 0.0
    text = f"{fraction * _PERCENT:g} %"
    return text if _share(text) == fraction else f"{fraction * _PERCENT!r} %"


LoadAmount = Annotated[
    Amount, BeforeValidator(_read), PlainSerializer(_write), WithJsonSchema({"type": "string", "examples": ["40 Gbit/s", "50 %"]})
]
"""A field that holds one."""


NAME_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"


def _check_some(value: list[str]) -> list[str]:
    if not value:
        raise mistake("no link is named", "write such as [leaf0/up] or ['leaf*/down']")
    return value


VersionField = Annotated[Literal[1], BeforeValidator(refuse_boolean)]
ModelField = Annotated[
    str | dict[str, JsonValue],
    Field(description="A shipped name, path.yaml, hf:path/to/config.json, or a mapping with Hugging Face key names."),
]
Steps = Annotated[int, Field(strict=True, gt=0, le=1_000_000)]
"""A hundred times what anybody replays."""


class ClusterSpec(NodeChange):
    """Nodes of one kind on one fabric: a shipped cluster or node, with any of its parts changed in place."""

    name: str | None = Field(default=None, description="A shipped cluster; see `clustersim show clusters`.")
    node: str | NodeChange | None = Field(default=None, description="A shipped node, or one described in full.")
    nodes: Degree | NodeGroups | None = Field(
        default=None, description="Servers; a shipped cluster brings its own number. Or groups: [{node: ..., count: ...}, ...]."
    )
    calibration: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="Measured constants of your own, a file of `clustersim calibrate`; default: the shipped ones."
    )
    links: list[LinkChange] = Field(default=[], description="Links that are not as built.")
    stragglers: list[StragglerSpec] = Field(default=[], description="Ranks that compute slower than they should.")
    clock_spread: Annotated[float, Field(strict=True, ge=0, le=MOST_SPREAD)] | None = Field(
        default=None,
        description="Standard deviation of the clock between accelerators; 0: all alike. Default: that of the calibration.",
    )
    jitter: JitterSpec | None = Field(default=None, description="Variation of computation from step to step, such as '3 %'.")


class JobSpec(Checked):
    """Another job, which repeats its step on its own nodes for the duration of the scenario's."""

    scenario: str | dict[str, JsonValue] = Field(
        description="A shipped name, a path, or a mapping with model, training and strategy; its cluster is not used."
    )
    nodes: Annotated[Degree | Numbers, Field(union_mode="left_to_right")] = Field(
        description="Number of nodes, taken from the last; or a list, such as [8-15] or '1,3,5,7'."
    )
    name: str | None = Field(default=None, pattern=f"^{NAME_PATTERN}$", description="Default: that of its scenario.")


class BackgroundSpec(Checked):
    """A load that shares links with the job, on each of them separately."""

    links: Annotated[list[str], AfterValidator(_check_some)] = Field(
        description="Names of links, with * and ranges: leaf0/up, node[0-3]/nic*/tx."
    )
    load: LoadAmount = Field(description="Largest load: a rate, or a share of each link's bandwidth.")
    flows: Degree = Field(default=1, description="Number of flows: on a full link the load gets the share of that many.")
    name: str | None = Field(default=None, min_length=1, max_length=100, description="Default: background.")
    start: Seconds = Field(default=0.0, description="Start of the first burst.")
    period: Annotated[Seconds, Field(gt=0)] | None = Field(
        default=None, description="Time from burst to burst; default: one burst without end."
    )
    burst: Annotated[Seconds, Field(gt=0)] | None = Field(default=None, description="Duration of a burst; less than the period.")


class AssumptionSpec(Checked):
    """A flag of the run that wrote a resolved scenario."""

    code: str = Field(pattern="^[a-z0-9_]{1,100}$", description="Code of the flag.")
    message: str = Field(max_length=2000, description="The assumption.")


class ScenarioSpec(Checked):
    """A training run to predict."""

    version: VersionField = Field(default=1, description="Version of this format.")
    name: str | None = Field(default=None, pattern=f"^{NAME_PATTERN}$", description="Names the run directory; default: the file's name.")
    model: ModelField
    cluster: ClusterSpec
    training: Training
    strategy: StrategySettings = StrategySettings()
    steps: Steps | None = Field(
        default=None, description="Steps to replay; default: one, or 50 where steps differ (jitter, workers at their own pace)."
    )
    cost: CostSpec | None = None
    reliability: ReliabilitySpec | None = None
    checks: list[str] = Field(default=[], description="Conditions such as 'memory_fraction <= 0.92'; one that is false gives exit code 1.")
    jobs: list[JobSpec] = Field(default=[], description="Further jobs on nodes of the same cluster.")
    background: list[BackgroundSpec] = Field(default=[], description="Loads of others on links.")
    assumed: list[AssumptionSpec] = Field(
        default=[], description="Values that a resolved scenario assumes for the one that it stands for; results say them again."
    )


SCHEMA_ID: Final = "urn:clustersim:schema:1:"
"""Beginning of the names of schemas; they name a version of the format, and no address that could be out of reach."""


def scenario_json_schema() -> dict[str, JsonValue]:
    """Return the JSON Schema of a scenario, for editors."""
    return json_schema(ScenarioSpec, "scenario")


def json_schema(spec: type[BaseModel], name: str) -> dict[str, JsonValue]:
    """Return the JSON Schema of a document with a cluster."""
    schema: dict[str, JsonValue] = spec.model_json_schema()
    properties, parts = schema["properties"], schema["$defs"]
    if isinstance(properties, dict):
        # A string in place of the mapping names a shipped cluster or a file; it is turned into one before the models see it.
        properties["cluster"] = {"anyOf": [{"$ref": "#/$defs/ClusterSpec"}, {"type": "string"}]}
    if isinstance(parts, dict):
        for part in (schema, *parts.values()):
            _describe(part, parts)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"{SCHEMA_ID}{name}", **schema}


def _describe(part: JsonValue, parts: Mapping[str, JsonValue]) -> None:
    """Give each property that is a section the description of that section, if it has none."""
    properties = part.get("properties") if isinstance(part, dict) else None
    for each in properties.values() if isinstance(properties, dict) else ():
        if not isinstance(each, dict) or "description" in each:
            continue
        choices = each.get("anyOf")
        referring = (choice for choice in (each, *(choices if isinstance(choices, list) else ())) if isinstance(choice, dict))
        reference = next((str(choice["$ref"]) for choice in referring if "$ref" in choice), "")
        section = parts.get(reference.rpartition("/")[2])
        if isinstance(section, dict) and "description" in section:
            each["description"] = section["description"]
