"""Settings of the software that were left to defaults, and how much another value of each would change the step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, Literal, cast, get_args, get_origin

from clustersim.apps.explain.changing import ChangedRun
from clustersim.apps.run.running import step_metrics
from clustersim.config.build import Built
from clustersim.config.overriding import set_options
from clustersim.config.yaml_text import flat_text
from clustersim.errors import InfeasibleError, ScenarioError
from clustersim.measure.deciding import is_shorter
from clustersim.parallel.needs import idle
from clustersim.parallel.settings import Settings
from clustersim.progress import advanced, phase
from clustersim.report.facts import percent_text

OF_SOFTWARE: Final = (
    "training.attention",
    "training.kernels",
    "training.cuda_graphs",
    "strategy.overlap_tp",
    "strategy.data_parallel.overlap",
    "strategy.sequence_parallel",
    "strategy.dispatch",
    "training.grouped_experts",
    "training.fused_gradient_accumulation",
    "training.gradient_precision",
    "training.fused_loss",
    "training.fp8_amax_group",
    "training.optimizer_kernels",
    "strategy.overlap_p2p",
    "strategy.recompute_stops_early",
)
"""Settings that come with a framework and its version, and that people seldom think of; those first that change most steps most."""
LEAST: Final = 0.01
"""Share of the step from which on a setting decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsaid:
    """One setting that was left to its default."""

    key: str
    value: str
    """Value that was taken."""
    since: str
    """Given setting that keeps it from its usual value; mostly none."""
    other: str
    """Value that changes the step most."""
    brings: str
    """Usual settings that go with the other value, and their values; mostly none."""
    overrides: tuple[str, ...]
    """As ``--set`` takes them."""
    step_time_s: float
    """Duration of a step with the other value."""
    change_fraction: float
    """Relative change of the step; above zero, it is longer with the other value."""
    decided: bool
    """Whether the error bars tell which step is shorter."""

    @property
    def taken(self) -> str:
        """Value in use, with the reason where a given setting is one."""
        return f"{self.value}, since {self.since} is said" if self.since else self.value

    @property
    def instead(self) -> str:
        """Other value, with all that it brings along."""
        return f"{self.other}, which brings {self.brings}" if self.brings else self.other

    @property
    def sentence(self) -> str:
        """Value in use, and the effect of the other one, with its option."""
        by = f"{percent_text(abs(self.change_fraction))} {'longer' if self.change_fraction > 0 else 'shorter'}"
        doubt = "" if self.decided else ", not decided"
        name, then = self.key.rpartition(".")[2], self.instead + (", " if self.brings else " ")
        return f"{name} is taken as {self.taken}; with {then}the step is {by}{doubt}: {set_options(self.overrides)}"


def unsaid(run: ChangedRun, tried: Sequence[tuple[str, str, str]]) -> tuple[Unsaid, ...]:
    """Return the settings that were left to defaults and that decide, each replayed with other values; the largest change first.

    Those that are tried are from :func:`alternatives`.
    """
    base = run.result
    found: dict[str, Unsaid] = {}
    with phase("replay settings"):
        for number, (key, value, other) in enumerate(tried):
            advanced(number, len(tried))
            try:
                overrides = (f"{key}={other}",)
                built = run.built(overrides)
                metrics = step_metrics(built, base.seed, regard=base.metrics.engine.told_apart)
            except (ScenarioError, InfeasibleError):
                continue
            each = Unsaid(
                key=key,
                value=value,
                since=run.kept_from(key),
                other=other,
                brings=", ".join(f"{name.rpartition('.')[2]} {_text(then)}" for name, (_, then) in run.brought(overrides, built).items()),
                overrides=overrides,
                step_time_s=metrics.step_time_s,
                change_fraction=metrics.step_time_s / base.step_time_s - 1.0,
                decided=is_shorter(metrics, base.metrics) != "not decided",
            )
            if abs(each.change_fraction) >= max(LEAST, abs(found[key].change_fraction) if key in found else 0.0):
                found[key] = each
    return tuple(sorted(found.values(), key=lambda each: -abs(each.change_fraction)))


def alternatives(built: Built) -> tuple[tuple[str, str, str], ...]:
    """Return settings that were left to defaults and do something, each with its value and another: the farthest of each come first."""
    unused = {".".join(each.path) for each in idle(built.plan.model, built.plan.training, built.plan.strategy)}
    found: list[list[tuple[str, str, str]]] = []
    for key in OF_SOFTWARE:
        *sections, name = key.split(".")
        written, taken = _section(built.scenario.spec, sections), _section(built.plan, sections)
        if key in unused or written.gives(name):
            continue
        value, values = getattr(taken, name), _values(type(taken).model_fields[name].annotation)
        place = values.index(value) if value in values else 0
        others = sorted((other for other in values if other != value), key=lambda other: -abs(values.index(other) - place))
        found.append([(key, _text(value), _text(other)) for other in others])
    return tuple(each for places in zip_longest(*found) for each in places if each is not None)


def _section(whole: object, names: Sequence[str]) -> Settings:
    for name in names:
        whole = getattr(whole, name)
    assert isinstance(whole, Settings)
    return whole


def _values(annotation: object) -> tuple[bool | str, ...]:
    """Return the values that a setting may have by itself, lists of some left out."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    if get_origin(annotation) is tuple:
        return ()
    found = tuple(value for part in get_args(annotation) for value in _values(part))
    return found or (True, False)


def _text(value: object) -> str:
    return flat_text(cast("tuple[str, ...]", value)) if isinstance(value, tuple) else str(value).lower()
