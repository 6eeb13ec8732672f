"""The ``reliability`` section of a scenario."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictBool, model_validator

from clustersim.hardware.profile_schema import Checked
from clustersim.units.fields import MOST_GPUS, Bytes, BytesPerSecond, NonNegativeInt, Seconds, mistake

PositiveSeconds = Annotated[Seconds, Field(gt=0)]


class ComponentsSpec(Checked):
    """Mean times between failures of single parts; their rates add up."""

    accelerator: PositiveSeconds | None = Field(default=None, description="Of one accelerator; its node is taken out.")
    host: PositiveSeconds | None = Field(default=None, description="Of one host: processors, memory, drives, power; its node is taken out.")
    nic: PositiveSeconds | None = Field(default=None, description="Of one adapter; its node is taken out.")
    cable: PositiveSeconds | None = Field(
        default=None, description="Of the way of one adapter into the fabric: cable and its share of switches; nodes stay."
    )
    software: PositiveSeconds | None = Field(default=None, description="Of the job as a whole: what ends it and breaks no node.")


class CheckpointSpec(Checked):
    """Mode, size and times of a checkpoint."""

    mode: Literal["sync", "async"] = Field(
        default="sync", description="Training waits until it is written, or only until it is copied to host memory."
    )
    size: Annotated[Bytes, Field(gt=0)] | None = Field(
        default=None, description="Of all of it; default: weights, master copy and optimizer state of the model."
    )
    bandwidth: Annotated[BytesPerSecond, Field(gt=0)] | None = Field(
        default=None, description="Of the storage, all nodes together; default: what the NVMe drives of the nodes can write."
    )
    stall: Seconds | None = Field(
        default=None, description="How long training waits at each; default: for the write, or with async for the copy over PCIe."
    )


class ReliabilitySpec(Checked):
    """Failure rates, checkpoints, and recovery of a job."""

    node_mtbf: PositiveSeconds | None = Field(default=None, description="Mean time between failures of one node, whatever their cause.")
    component_mtbf: ComponentsSpec | None = Field(default=None, description="The same by part; beside node_mtbf, all rates add up.")
    checkpoint_every: Literal["auto"] | PositiveSeconds = Field(
        default="auto", description="Training between two checkpoints; auto: the best interval of the closed form."
    )
    checkpoint: CheckpointSpec = CheckpointSpec()
    detection: Seconds = Field(default=0.0, description="Until a failure is noticed, if restart does not count from the failure on.")
    restart: Seconds | None = Field(default=None, description="From then until the first step, reading the checkpoint included.")
    repair: Seconds | None = Field(default=None, description="Until a node that failed can be used again.")
    spares: Annotated[NonNegativeInt, Field(le=MOST_GPUS)] | None = Field(
        default=None, description="Nodes that stand by; default: none where repair is given, else always one more."
    )
    shrink: StrictBool = Field(default=False, description="Without a spare the job goes on with fewer data-parallel replicas.")
    replays: Annotated[int, Field(strict=True, ge=4, le=10_000)] = Field(
        default=32, description="Of the whole training, each with failures of its own."
    )

    @model_validator(mode="after")
    def _check_repair(self) -> ReliabilitySpec:
        if self.repair is None and (self.spares is not None or self.shrink):
            because = "spares are used up" if self.spares is not None else "a job that shrinks grows again"
            raise mistake(f"{because} as nodes are repaired, and 'repair' is missing", "add 'repair: 1 day'")
        return self
