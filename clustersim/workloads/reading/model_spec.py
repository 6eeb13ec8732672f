"""Find and read a model: a shipped name, a file, a Hugging Face configuration, or a mapping in the scenario itself.

A description with ``layers`` is a list of them; any other is a transformer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from clustersim.documents.check import validate_document, validate_part
from clustersim.documents.files import data_names, data_path
from clustersim.documents.near_names import choices_hint, did_you_mean
from clustersim.documents.text import Data, Document, plain_document, read_document
from clustersim.errors import ScenarioError
from clustersim.workloads.model import Model
from clustersim.workloads.reading.hf_config import (
    TRANSFORMERS_ONLY,
    Flags,
    ModelDocument,
    ModelReading,
    config_fields,
    own_fields,
    read_config,
    require,
)
from clustersim.workloads.reading.hub_names import hub_model
from clustersim.workloads.reading.model_families import model_families, refused_types
from clustersim.workloads.reading.model_fields import (
    ModelSpec,
    agrees_with_published,
    build_model,
    is_gated,
    published_text,
    traits_assumed,
)
from clustersim.workloads.reading.model_lists import LayeredSpec
from clustersim.workloads.transformer import Transformer

HUB_PREFIX: Final = "hf:"
_NOT_HERE: Final = "only files on this machine are read: download the model's config.json and write 'hf:path/to/config.json'"
MEASURED_SPEED: Final = "measured_speed"
"""Code of the flag of a model whose computation was measured."""
_YAML: Final = (".yaml", ".yml")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model, and what was assumed about it."""

    model: Model
    flags: Flags
    """Pairs of code and message."""
    spec: ModelSpec | LayeredSpec


def model_names() -> tuple[str, ...]:
    """Return the names of the shipped models in alphabetical order."""
    return data_names("scenarios", "models")


def load_model(reference: Data | Mapping[str, Data], *, document: Document | None = None) -> LoadedModel:
    """Return the model that a scenario names or describes.

    Parameters
    ----------
    reference
        A shipped name, a name on the Hugging Face Hub, the path of a YAML file, ``hf:`` and the path of a ``config.json`` or of its
        directory, or a mapping.
        A relative path counts from the scenario's directory, then from the current one.
    document
        The document whose ``model`` the reference is, for messages and relative paths.

    Raises
    ------
    ScenarioError
        When there is no such model, or its description cannot be used.

    Examples
    --------
    >>> load_model("llama3-8b").model.n_layers
    32
    """
    if isinstance(reference, Mapping):
        data = dict(reference)
        origin = ModelDocument(document=document, at=("model",)) if document else ModelDocument(document=plain_document(data, "model"))
        return _from_own(data, origin, default_name="model")
    origin = ModelDocument(document=document or plain_document({}, "model"), at=("model",) if document else ())
    if not isinstance(reference, str) or not reference.strip():
        raise origin.error(f"{reference!r} is not a model", hint="write a shipped name, a path, 'hf:path/to/config.json' or a mapping")
    named = reference.removeprefix(HUB_PREFIX).strip()
    on_hub = hub_model(named) if _found(named, origin) is None else None
    if on_hub is None and reference.startswith(HUB_PREFIX):
        return _from_hub(_find(named, origin, missing=_NOT_HERE))
    if on_hub is None and (reference.endswith(_YAML) or "/" in reference):
        found = read_document(_find(reference, origin))
        return _from_own(found.data, ModelDocument(document=found), default_name=Path(reference).stem)
    shipped = _load_shipped(on_hub or reference)
    if shipped is None:
        hint = f"write {HUB_PREFIX}{reference}" if reference.endswith(".json") else choices_hint(reference, model_names())
        raise origin.error(f"there is no model '{reference}'", hint=hint)
    return shipped


@lru_cache(maxsize=64)
def _load_shipped(name: str) -> LoadedModel | None:
    """Return a shipped model; None where there is none of that name."""
    if name not in model_names():
        return None
    document = read_document(data_path("scenarios", "models", f"{name}.yaml"))
    return _from_own(document.data, ModelDocument(document=document), default_name=name)


def _find(text: str, origin: ModelDocument, *, missing: str | None = None) -> Path:
    found = _found(text, origin)
    if found is None or not text:
        raise origin.error(f"there is no file '{text}'", hint=missing or _nearby(Path(text)))
    return found


def _found(text: str, origin: ModelDocument) -> Path | None:
    path = Path(text)
    try:
        return next((candidate for candidate in (Path(origin.document.name).parent / path, path) if candidate.exists()), None)
    except (OSError, ValueError):
        return None


def _nearby(path: Path) -> str:
    names = sorted(file.name for file in path.parent.glob("*")) if "\0" not in str(path) else []
    return did_you_mean(path.name, names) or "give the path of a YAML file, or the name of a shipped model"


def _from_own(data: Mapping[str, Data], origin: ModelDocument, *, default_name: str) -> LoadedModel:
    if "layers" in data:
        return _from_list(data, origin, default_name)
    reading = own_fields(data, origin, tuple(ModelSpec.model_fields))
    kind = reading.fields.get("model_type")
    if kind is not None:
        defaults = dict(_defaults(kind, origin))
        return _finish(ModelReading(fields=defaults | reading.fields, written=reading.written), origin, default_name)
    activation = reading.fields.get("hidden_act")
    fields = dict(reading.fields)
    if isinstance(activation, str):
        fields.setdefault("gated_mlp", is_gated(activation))
    assumed = traits_assumed(fields)
    flags = (("model_assumed", f"no model_type is given: taken as Llama-like, with {', '.join(assumed)}"),) if assumed else ()
    return _finish(ModelReading(fields=fields, written=reading.written, flags=flags), origin, default_name)


def _with_layers_of(name: str, data: Mapping[str, Data], origin: ModelDocument) -> Mapping[str, Data]:
    """Return the description of the shipped model that ``layers`` names, with what stands beside it on top."""
    base = _load_shipped(name)
    if base is None:
        raise origin.error(f"there is no model '{name}'", key="layers", hint=choices_hint(name, model_names()))
    if not isinstance(base.spec, LayeredSpec):
        raise origin.error(f"{base.model.name} is a transformer", key="layers", hint="name a model of layers, such as resnet-50")
    own = {key: value for key, value in data.items() if key != "layers"}
    return {"name": base.model.name, **base.spec.model_dump(mode="json", exclude_unset=True), **own}


def _from_list(data: Mapping[str, Data], origin: ModelDocument, default_name: str) -> LoadedModel:
    if isinstance(data["layers"], str):
        data = _with_layers_of(data["layers"], data, origin)
    try:
        spec = validate_part(LayeredSpec, data, origin.document, origin.at)
        model = spec.build(spec.name or default_name)
    except ScenarioError as error:
        raise error if error.place else origin.located(error, {}) from error
    count, published = model.n_parameters, spec.published_parameters
    flags = [] if published in (None, count) else [_miscounted(count, f"{published:,}")]
    if spec.samples_per_s is not None:
        speed = f"{spec.samples_per_s:g} samples/s"
        flags.append(
            (MEASURED_SPEED, f"computation takes as long as was measured on one accelerator alone, {speed}; kernels are not timed")
        )
    return LoadedModel(model=model, flags=tuple(flags), spec=spec)


def _defaults(kind: Data, origin: ModelDocument) -> Mapping[str, Data]:
    if str(kind) in model_families():
        return model_families()[str(kind)].defaults
    reason = refused_types().get(str(kind))
    if reason is not None:
        raise origin.error(f"'{kind}' is {reason}", key="model_type", hint=TRANSFORMERS_ONLY)
    raise origin.error(f"model_type '{kind}' is not known", key="model_type", hint=choices_hint(str(kind), model_families()))


def _from_hub(path: Path) -> LoadedModel:
    document = read_config(path)
    origin = ModelDocument(document=document)
    listed = document.data.get("_name_or_path")
    name = listed.rstrip("/").rpartition("/")[2] if isinstance(listed, str) else ""
    return _finish(config_fields(origin, document.data), origin, name or Path(document.name).resolve().parent.name)


def _finish(reading: ModelReading, origin: ModelDocument, default_name: str) -> LoadedModel:
    require(reading.fields, origin)
    try:
        spec = validate_document(ModelSpec, Document(name=origin.document.name, data=reading.fields))
        model = build_model(spec, spec.name or default_name)
    except ScenarioError as error:
        raise origin.located(error, reading.written) from error
    return LoadedModel(model=model, flags=reading.flags + _approximations(spec, model), spec=spec)


def _approximations(spec: ModelSpec, model: Transformer) -> Flags:
    flags = [("left_out", spec.left_out)] if spec.left_out else []
    if model.linear is not None:
        timed = "layers with a state are timed as the matrix products of their chunks"
        flags.append(("uncalibrated_layers", f"{timed}; no measurement of such a layer was compared with it"))
    if spec.parallel_residual:
        flags.append(("parallel_residual", "attention and MLP, parallel in this model, are simulated one after the other"))
    if not agrees_with_published(spec, model):
        flags.append(_miscounted(model.n_published, published_text(spec)))
    return tuple(flags)


def _miscounted(count: int, published: str | None) -> tuple[str, str]:
    return "parameter_count", f"{count:,} parameters are counted, but {published} are published"
