"""Every number of a profile stands under a source, or the profile does not load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from clustersim.documents.form import attribute_of
from clustersim.documents.near_names import choices_hint
from clustersim.documents.text import Document, is_mapping, is_sequence
from clustersim.errors import ScenarioError
from clustersim.hardware.models import Accelerator, ClusterProfile, Host, Nic, Node, Switch
from clustersim.hardware.profile_schema import Spec

UNSEEN: Final = ("memory", "assumed")
"""Words instead of an address for figures without a source that was seen."""
SCENARIO: Final = "scenario"
"""The address of a figure that the user gave."""

Profile = Accelerator | Host | Nic | Switch | Node | ClusterProfile
Path = tuple[str, ...]


def check_sources(spec: Spec, document: Document) -> None:
    """Refuse a profile with a number that no source covers, or a source that covers nothing.

    Raises
    ------
    ScenarioError
        Naming the field, at its place in the file.
    """
    fields = dict.fromkeys(_numbers(spec, document.data))
    covered = [tuple(cover.split(".")) for source in spec.sources for cover in source.covers]
    for field in fields:
        if not any(field[: len(cover)] == cover for cover in covered):
            name = ".".join(field)
            raise ScenarioError(
                f"no source covers '{name}'",
                field=name,
                hint="add it to 'covers' of the source it is from",
                place=document.place(field, key=True),
            )
    _check_covers(spec, document, list(fields))


def remembered_fields(profile: Profile, *, fabric: bool = True) -> tuple[str, ...]:
    """Return the figures of a profile, and of the profiles it is made of, that were only remembered or assumed.

    Each as ``profile.field``; figures that the user replaced are left out.

    Parameters
    ----------
    fabric
        False for a node whose reference fabric is not used.
    """
    return tuple(dict.fromkeys(_remembered(profile, fabric=fabric)))


def _remembered(profile: Profile, *, fabric: bool = True) -> Iterator[str]:
    given = [cover for source in profile.sources if source.url == SCENARIO for cover in source.covers]
    for source in profile.sources:
        if source.url in UNSEEN:
            covers = [cover for cover in source.covers if fabric or not is_within(cover, "fabric")]
            yield from (f"{profile.name}.{cover}" for cover in covers if not any(is_within(cover, field) for field in given))
    yield from _remembered_parts(profile, fabric=fabric)


def _remembered_parts(profile: Profile, *, fabric: bool) -> Iterator[str]:
    if isinstance(profile, ClusterProfile):
        # The cluster's own fabric takes the place of the reference fabric of its nodes.
        yield from _remembered(profile.node, fabric=False)
    elif isinstance(profile, Node):
        for part in (profile.accelerator, profile.host, profile.nic):
            yield from _remembered(part)
    if isinstance(profile, Node | ClusterProfile) and fabric:
        yield from _remembered(profile.fabric.leaf)
        yield from _remembered(profile.fabric.spine)


def is_within(field: str, parent: str) -> bool:
    """Return whether a dotted field is another one, or a part of it."""
    return field == parent or field.startswith(f"{parent}.")


def _check_covers(spec: Spec, document: Document, fields: Sequence[Path]) -> None:
    known = list(dict.fromkeys(".".join(field[:depth]) for field in fields for depth in range(1, len(field) + 1)))
    for index, source in enumerate(spec.sources):
        for position, cover in enumerate(source.covers):
            if cover not in known:
                raise ScenarioError(
                    f"'{cover}' is not a field with a number",
                    field=f"sources.{index}.covers",
                    hint=choices_hint(cover, known),
                    place=document.place(("sources", index, "covers", position)),
                )


def _numbers(value: object, data: object, path: Path = ()) -> Iterator[Path]:
    """Yield the paths of all numbers that a profile states itself; defaults are ours and not facts."""
    if is_mapping(data):
        for key, item in ((str(key), item) for key, item in data.items()):
            if key != "sources":
                part = value.get(key) if is_mapping(value) else getattr(value, attribute_of(value, key) or key)
                yield from _numbers(part, item, (*path, key))
    elif is_sequence(value):
        # The rows of a table stand under one source.
        if is_sequence(data) and any(True for part, item in zip(value, data, strict=True) for _ in _numbers(part, item)):
            yield path
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path
