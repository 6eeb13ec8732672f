"""Accelerators, hosts, adapters and switches of one's own: as a mapping in a scenario, or as a file beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, Generic, TypeVar

from clustersim.documents.check import validate_part
from clustersim.documents.form import keys_of
from clustersim.documents.near_names import choices_hint, did_you_mean
from clustersim.documents.text import Data, Document, read_document
from clustersim.errors import ScenarioError
from clustersim.hardware.catalog import (
    build_accelerator,
    build_part,
    load_accelerator,
    load_host,
    load_nic,
    load_switch,
    named,
    profile_names,
    profile_path,
)
from clustersim.hardware.models import Accelerator, Host, Nic, Switch
from clustersim.hardware.profile_schema import AcceleratorFigures, Checked, HostFigures, NicFigures, SwitchFigures
from clustersim.hardware.provenance import SCENARIO
from clustersim.hardware.source import Source

F = TypeVar("F", bound=Checked)
P = TypeVar("P", Accelerator, Host, Nic, Switch)
Asked = str | Mapping[str, Data]
"""Name of a shipped part, path of a file that ends in ``.yaml``, or the figures themselves."""

BASE: Final = "base"
"""Key of the shipped part that others start from."""
_ABOUT: Final = ("name", "title", "sources")
"""Keys of a profile that are no figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[F, P]):
    """One kind of part."""

    folder: str
    """Folder of the shipped profiles."""
    singular: str
    example: str
    """A recent shipped one to start from."""
    load: Callable[[str], P]
    figures: type[F]
    build: Callable[[F, str, tuple[Source, ...]], P]
    uses: Mapping[str, str]
    """Use of each figure that must be given."""
    keys: Mapping[str, str]
    """Attribute of the part that each key sets, but for rates by precision."""
    optional: Mapping[str, str] = field(default_factory=dict[str, str])
    """Use of figures that are often wanted beside them."""
    defaults: Mapping[str, Data] = field(default_factory=dict[str, Data])
    """Values of the other figures that shipped profiles must give."""
    refined: Mapping[str, str] = field(default_factory=dict[str, str])
    """Figures that are more exact forms of others, by those: they do not outlive a new value of these."""


ACCELERATOR: Final = Kind(
    folder="accelerators",
    singular="accelerator",
    example="b200-sxm",
    load=load_accelerator,
    figures=AcceleratorFigures,
    build=build_accelerator,
    uses={
        "peak_flops": "rate of matrix products, by precision, and MFU",
        "memory": "what fits",
        "memory_bandwidth": "kernels bound by memory",
        "pcie": "offload, and the way to adapters, {bandwidth: ...}",
        "multiprocessors": "waves of tiles, and what collectives take from computation",
    },
    optional={
        "scale_up": "links between accelerators of a node, {bandwidth: ...}",
        "generation": "constants of a calibrated one, such as blackwell; borrowed without it",
        "scaled_formats": "fp8 with scales of blocks (mx), and 4 bits (nvfp4)",
        "power": "the TDP, for energy and cost",
    },
    defaults={"vendor": "other", "generation": "own"},
    keys={
        **{key: name for key, name in keys_of(Accelerator).items() if key in ("name", *AcceleratorFigures.model_fields)},
        "scale_up.bandwidth": "scale_up_bandwidth_bytes_per_s",
        "scale_up.links": "scale_up_links",
        "pcie.bandwidth": "pcie_bandwidth_bytes_per_s",
    },
    refined={"memory": "reported_memory"},
)
HOST: Final = Kind(
    folder="hosts",
    singular="host",
    example="dgx-b200",
    load=load_host,
    figures=HostFigures,
    build=partial(build_part, Host),
    uses={
        "sockets": "paths between adapters",
        "memory": "offload to the host",
        "memory_bandwidth": "the optimizer on the host, parameter servers",
        "socket_bandwidth": "paths between sockets",
    },
    optional={"storage_bandwidth": "offload to NVMe, with storage_write_bandwidth"},
    keys=keys_of(Host),
)
NIC: Final = Kind(
    folder="nics",
    singular="nic",
    example="cx7-ndr",
    load=load_nic,
    figures=NicFigures,
    build=partial(build_part, Nic),
    uses={"bandwidth": "collectives and sends between nodes", "latency": "each of their rounds"},
    keys=keys_of(Nic),
)
SWITCH: Final = Kind(
    folder="switches",
    singular="switch",
    example="qm9700-ndr",
    load=load_switch,
    figures=SwitchFigures,
    build=partial(build_part, Switch),
    uses={"ports": "how many leaves and spines there are", "port_bandwidth": "links of the fabric", "latency": "each hop"},
    keys=keys_of(Switch),
)


def part_of(kind: Kind[F, P], asked: Asked, document: Document, path: tuple[str | int, ...]) -> P:
    """Return a shipped part, that of a file, or that of a mapping.

    Parameters
    ----------
    asked
        As the scenario has it.
    document, path
        Where that stands. Paths of files count from the folder of the document.
    """
    if not isinstance(asked, str):
        return _own(kind, asked, document, path)
    if not asked.endswith(".yaml"):
        return named(kind.load, asked, document, path)
    written = read_beside(asked, document, path)
    figures = {key: value for key, value in written.data.items() if key not in ("title", "sources")}
    return _own(kind, {"name": Path(asked).stem, **figures}, written, ())


def read_beside(name: str, document: Document, path: tuple[str | int, ...]) -> Document:
    """Return the file that a document names at some path; it counts from the folder of the document.

    Raises
    ------
    ScenarioError
        When it cannot be read.
    """
    try:
        return read_document(Path(document.name).parent / name)
    except ScenarioError as error:
        if error.place is not None and error.place.line is not None:
            raise
        field = ".".join(str(each) for each in path)
        raise ScenarioError(f"{name}: {error.message}", field=field, hint=error.hint, place=document.place(path)) from error


def _own(kind: Kind[F, P], given: Mapping[str, Data], document: Document, path: tuple[str | int, ...]) -> P:
    base = given.get(BASE)
    shipped = profile_names(kind.folder)
    if base is not None and not (isinstance(base, str) and base in shipped):
        raise _mistake(f"there is no {kind.singular} '{base}' to start from", (*path, BASE), document, choices_hint(str(base), shipped))
    name = given.get("name", f"own-{base or kind.singular}")
    if not isinstance(name, str) or name in shipped:
        hint = "write another name; the shipped figures stay with the shipped name"
        raise _mistake(f"'{name}' is the name of a shipped {kind.singular}", (*path, "name"), document, hint)
    own = {key: value for key, value in given.items() if key not in (BASE, "name")}
    figures: dict[str, Data] = {**kind.defaults, **(_figures(kind, base) if base else {})}
    figures = {key: value for key, value in figures.items() if not any(kind.refined.get(new) == key for new in own)} | own
    missing, optional = ([f"{key} ({use})" for key, use in uses.items() if key not in own] for uses in (kind.uses, kind.optional))
    if missing and base is None:
        fields = tuple(kind.figures.model_fields)
        unknown = {key: f"'{key}'{_meant(key, fields)}" for key in own if key not in fields}
        extra = f"has unknown fields {', '.join(unknown.values())} and " if unknown else ""
        message = f"{name} {extra}lacks {', '.join(missing)}"
        hint = f"add what is lacking, or start from a shipped one with 'base: {kind.example}'"
        at = (*path, next(iter(unknown))) if unknown else path
        raise _mistake(message, at, document, hint + (f"; optional: {', '.join(optional)}" if optional else ""))
    checked = validate_part(kind.figures, figures, document, path)
    source = Source(title="Given in the scenario", url=SCENARIO, accessed="", covers=tuple(sorted(own)))
    built = kind.build(checked, name, (source,))
    return replace(built, sources=(*kind.load(base).sources, source)) if base else built


def _meant(key: str, fields: Sequence[str]) -> str:
    near = did_you_mean(key, fields)
    return f" ({near})" if near else ""


def _figures(kind: Kind[F, P], name: str) -> dict[str, Data]:
    data = read_document(profile_path(kind.folder, name)).data
    return {key: value for key, value in data.items() if key not in _ABOUT}


def _mistake(message: str, path: tuple[str | int, ...], document: Document, hint: str) -> ScenarioError:
    field = ".".join(str(each) for each in path) or None
    return ScenarioError(message, field=field, hint=hint, place=document.place(path))
