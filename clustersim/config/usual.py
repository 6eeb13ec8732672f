"""Usual values of settings that a scenario leaves out: what software does by default with a precision, sharding or model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from pydantic import BaseModel

from clustersim.config.overriding import set_options
from clustersim.config.yaml_text import flat_text
from clustersim.notices import Flag
from clustersim.parallel.settings import Settings
from clustersim.parallel.step_settings import Training
from clustersim.parallel.training_plan import SHARDS_PARAMETERS, StrategySettings

M = TypeVar("M", bound=BaseModel)

Value = bool | int | float | str | tuple[str, ...]

KERNELS: Final = "training.kernels"
LAUNCH_OVERHEAD: Final = "training.launch_overhead"
"""Said with a flag of its own: nothing but a step that waits for its host depends on it."""

SCORED_FRACTION: Final = 0.15
"""Tokens of a sequence that an encoder predicts [1]_.

References
----------
.. [1] J. Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", NAACL 2019, section 3.1.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """Facts of a run that tell which software it comes with."""

    transformer: bool
    """Whether the model is one, and no list of layers."""
    preset: bool
    """Whether a scenario names a framework by its preset."""
    precision: str
    scaling: str
    """Scales of operands in fp8; empty in other precisions."""
    zero_stage: int
    alone: bool
    """Whether there is one accelerator."""
    sequence_parallel: bool
    """Whether it is on where tensor parallelism is."""
    recompute: str
    cp: int
    schedule: str
    causal: bool
    experts: bool
    dispatch: str | None
    """Way in which tokens travel to their experts, where a scenario says it."""
    seq_length: int
    recent: bool
    """Whether the accelerator has products in fp8. On those without, Megatron-LM ran before FlashAttention; on others fp16 is a choice."""
    scaled_formats: Collection[str]
    """Formats of the accelerator in which a block of numbers shares a scale."""
    rack: bool
    """Whether links between accelerators join nodes."""
    blocking_launches: bool
    """Whether the host waits for each kernel, which no graph lets it do."""
    attention: Collection[str]
    """Generations of fused attention with measured constants on the accelerator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usual:
    """Values of settings that software of one kind has."""

    software: str
    holds: Callable[[Circumstances], bool]
    values: Mapping[str, Value | Callable[[Circumstances], Value]]
    """By dotted key."""


def _shards_parameters(run: Circumstances) -> bool:
    return run.zero_stage == SHARDS_PARAMETERS


def _of_today(run: Circumstances) -> bool:
    today = run.precision in ("bf16", "fp8") or (run.precision == "fp16" and run.recent)
    return today and run.causal and not (run.alone or run.preset or _shards_parameters(run))


def _recent(run: Circumstances) -> bool:
    return run.recent and _of_today(run)


def _experts(run: Circumstances) -> bool:
    return _recent(run) and run.experts


def _captures_experts(run: Circumstances) -> bool:
    # Recipes of Megatron-Bridge that capture graphs are in fp8, and send tokens by its flex dispatcher.
    return _experts(run) and run.precision == "fp8" and run.dispatch != "all_to_all"


def _old_fp16(run: Circumstances) -> bool:
    return run.precision == "fp16" and not run.recent


def _of_2021(run: Circumstances) -> bool:
    # What is recomputed selectively runs on Megatron-LM of 2022, where sequence parallelism is too.
    return _old_fp16(run) and run.causal and run.recompute != "selective" and not _shards_parameters(run)


def _old_attention(run: Circumstances) -> Value:
    # Context parallelism divides fused attention alone.
    return "flash" if run.cp > 1 else "unfused"


IMAGES: Final = Usual(
    software="PyTorch, not compiled",
    holds=lambda run: not run.preset,
    values={KERNELS: "eager", "training.optimizer": "momentum"},
)
"""For lists of layers."""

USUAL: Final = (
    Usual(
        software="an encoder, as BERT is trained",
        holds=lambda run: not run.causal,
        values={
            "training.scored_tokens": lambda run: max(1, round(SCORED_FRACTION * run.seq_length)),
            KERNELS: "eager",
            "training.fused_gradient_accumulation": False,
            "training.attention": _old_attention,
            "training.vocabulary_multiple": 8,
        },
    ),
    Usual(
        software="an encoder in mixed precision, as PyTorch casts it",
        holds=lambda run: not run.causal and run.precision in ("fp16", "bf16"),
        values={"training.elementwise_precision": "fp32"},
    ),
    Usual(
        software="fused attention takes 16 bits, and came after runs in fp16",
        holds=lambda run: run.precision in ("fp32", "tf32") or _old_fp16(run),
        values={"training.attention": _old_attention},
    ),
    Usual(
        software="fp16, as Megatron-LM of 2021",
        holds=_of_2021,
        values={
            "training.gradient_precision": "same",
            "training.fused_gradient_accumulation": False,
            "training.vocabulary_multiple": 128,
            "strategy.sequence_parallel": False,
            "strategy.overlap_tp": "none",
            "strategy.data_parallel.overlap": False,
        },
    ),
    Usual(
        software="interleaved stages in fp16, as Megatron-LM of 2021",
        holds=lambda run: _of_2021(run) and run.schedule == "interleaved_1f1b",
        values={"strategy.overlap_p2p": False},
    ),
    Usual(
        software="fp8 with sharded parameters, as torchao",
        holds=lambda run: _shards_parameters(run) and run.precision == "fp8",
        values={KERNELS: "fused", "training.fp8_scaling": lambda run: "tensor" if run.scaling == "delayed" else run.scaling},
    ),
    Usual(
        software="sharded parameters, as PyTorch's FSDP",
        holds=_shards_parameters,
        values={
            KERNELS: "eager",
            "training.fused_gradient_accumulation": False,
            "training.attention": lambda run: "flash_2" if "flash_2" in run.attention else "flash",
            "strategy.overlap_tp": "none",
            "strategy.recompute_stops_early": lambda run: run.recompute == "full",
        },
    ),
    Usual(
        software="recipes with Transformer Engine",
        holds=lambda run: run.sequence_parallel and (_recent(run) or (run.precision == "fp8" and not _shards_parameters(run))),
        values={"strategy.overlap_tp": "gemm_chunks"},
    ),
    Usual(
        software="experts, as recipes of Megatron-Bridge",
        holds=_experts,
        values={"strategy.dispatch": "per_node"},
    ),
    Usual(
        software="experts in fp8 without MXFP8, as recipes of Megatron-Bridge",
        holds=lambda run: _experts(run) and run.precision == "fp8" and not run.scaled_formats,
        values={"training.fp8_scaling": "tensor"},
    ),
    Usual(
        software="experts in MXFP8 on a rack, as recipes of Megatron-Bridge since 26.06",
        holds=lambda run: _captures_experts(run) and run.scaling == "mx" and run.rack,
        values={"training.cuda_graphs": lambda run: not run.blocking_launches, "training.grouped_experts": "fused"},
    ),
    Usual(
        software="experts in fp8 where there is NVFP4, as recipes of Megatron-Bridge",
        holds=lambda run: _captures_experts(run) and "nvfp4" in run.scaled_formats and not run.blocking_launches,
        values={"training.cuda_graphs": ("attention", "router")},
    ),
    Usual(
        software="Megatron Core",
        holds=_of_today,
        values={LAUNCH_OVERHEAD: 1.7},
    ),
)
"""For transformers. The first rule with a key applies, otherwise its default. docs/reference/defaults.md has reasons and sources."""


ALL_LAYOUTS: Final = "usual settings are the same in all layouts"
AS_IN_TABLE: Final = "to run a layout with zero 3 as here, in the software of all layouts, add"
_BY_DEFAULT: Final = "by default"
NOT_SAID: Final = "not said, and taken as usual: "
USUAL_SETTINGS: Final = "usual_settings"
"""Code of the flag on settings left at usual values."""
ASSUMED_LAUNCH: Final = "assumed_launch_overhead"
"""Code of the flag on the time of the host."""
ASSUMED_KERNELS: Final = Flag(code="assumed_kernels", message="no kernels are given: fused ones are assumed")
"""Flag of a run of which neither its preset nor its scenario says the kernels."""


def usual_settings(run: Circumstances) -> dict[str, tuple[Value, str]]:
    """Return the usual value of each dotted key that has one in a run, and the software that has it so."""
    found: dict[str, tuple[Value, str]] = {}
    for each in USUAL if run.transformer else (IMAGES,):
        if each.holds(run):
            for key, value in each.values.items():
                found.setdefault(key, (value(run) if callable(value) else value, each.software))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class OneSoftware:
    """Usual settings of a search, which compares layouts of one software."""

    usual: Mapping[str, tuple[Value, str]]
    """By dotted key, with the software."""
    held: Mapping[str, Value]
    """Values of those of them whose usual value would depend on the layout."""
    sharded: Mapping[str, Value]
    """The same where parameters are sharded, as far as they differ."""

    def flags(self, unsaid: Collection[str]) -> tuple[Flag, ...]:
        """Return the notices on settings that nobody gave, and on how to ask for those of PyTorch's FSDP."""
        others = {key: value for key, value in self.sharded.items() if key in unsaid}
        keys = [key for key, (_, software) in self.usual.items() if key in unsaid and (key in others or software != _BY_DEFAULT)]
        found = usual_flags(self.usual, keys)
        if KERNELS not in others:
            return found
        asks, holds = (
            set_options(f"{key}={flat_text(value)}" for key, value in values.items())
            for values in (others, {key: self.usual[key][0] for key in others})
        )
        lines = (
            f"{ALL_LAYOUTS}; for those of PyTorch's FSDP {asks} (for a framework -s strategy.preset=NAME)",
            f"{AS_IN_TABLE} {holds} (alone it gets the usual settings of PyTorch's FSDP)",
        )
        return (*found, *(Flag(code=USUAL_SETTINGS, message=line) for line in lines))


def one_software(run: Circumstances) -> OneSoftware:
    """Return the usual settings of all layouts of a search: those of the preset, or of unsharded parameters."""
    plain = usual_settings(replace(run, zero_stage=run.zero_stage if run.preset else 0))
    others = [usual_settings(replace(run, zero_stage=0)), usual_settings(replace(run, zero_stage=SHARDS_PARAMETERS, recompute="full"))]
    keys = dict.fromkeys(key for other in others for key in {**plain, **other} if plain.get(key) != other.get(key))
    usual = {**plain, **{key: (value, _BY_DEFAULT) for key in keys if key not in plain and (value := _default(key)) is not None}}
    others_sharded = usual_settings(replace(run, zero_stage=SHARDS_PARAMETERS))
    sharded = {key: others_sharded[key][0] if key in others_sharded else _default(key) for key in keys}
    return OneSoftware(
        usual=usual,
        held={key: usual[key][0] for key in keys if key in usual},
        sharded={key: value for key, value in sharded.items() if key in usual and value not in (None, usual[key][0])},
    )


def _default(key: str) -> Value | None:
    """Return the default of a setting; None where it follows from model and machine."""
    section, *names = key.split(".")
    value: object = (Training if section == "training" else StrategySettings).model_construct()
    for name in names:
        value = getattr(value, name)
    assert value is None or isinstance(value, bool | int | float | str)
    return value


def completed_as_usual(settings: M, usual: Mapping[str, Value]) -> tuple[M, tuple[str, ...]]:
    """Return settings with the usual values of dotted keys that were left out, and the keys that are no defaults."""
    brought: list[str] = []
    for key, value in usual.items():
        *sections, name = key.split(".")
        parts: list[BaseModel] = [settings]
        for section in sections:
            parts.append(getattr(parts[-1], section))
        section = parts[-1]
        assert isinstance(section, Settings)
        if section.gives(name):
            continue
        if value != type(section).model_fields[name].default:
            brought.append(key)
        changed: BaseModel = section.changed(**{name: value})
        for part, below in zip(reversed(parts[:-1]), reversed(sections), strict=True):
            changed = part.model_copy(update={below: changed})
        assert isinstance(changed, type(settings))
        settings = changed
    return settings, tuple(brought)


def usual_flags(usual: Mapping[str, tuple[Value, str]], keys: Iterable[str]) -> tuple[Flag, ...]:
    """Return the notices on settings left out and taken at their usual values."""
    by_software: dict[str, list[str]] = {}
    flags: list[Flag] = []
    for key in keys:
        value, software = usual[key]
        if key == LAUNCH_OVERHEAD:
            effect = f"the host takes {value} times as long to issue a kernel as was measured, which moves only steps that wait for it"
            flags.append(Flag(code=ASSUMED_LAUNCH, message=f"{NOT_SAID}launch_overhead {value} ({software}): {effect}"))
            continue
        by_software.setdefault(software, []).append(f"{key.partition('.')[2]} {flat_text(value)}")
    said = [f"{', '.join(values)} ({software})" for software, values in by_software.items()]
    if said:
        flags.insert(0, Flag(code=USUAL_SETTINGS, message=f"{NOT_SAID}{'; '.join(said)}"))
    return tuple(flags)
