from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from clustersim.documents.files import data_path
from clustersim.documents.text import Data, Document, read_document
from clustersim.errors import ScenarioError
from clustersim.hardware.catalog import load_accelerator, load_cluster, load_node, profile_names
from clustersim.hardware.models import Accelerator
from clustersim.hardware.profile_schema import AcceleratorSpec, ClusterProfileSpec, HostSpec, NicSpec, NodeSpec, Spec, SwitchSpec
from clustersim.hardware.provenance import SCENARIO, UNSEEN, check_sources, remembered_fields
from clustersim.hardware.source import Source

MODELS: dict[str, type[Spec]] = {
    "accelerators": AcceleratorSpec,
    "hosts": HostSpec,
    "nics": NicSpec,
    "switches": SwitchSpec,
    "nodes": NodeSpec,
    "clusters": ClusterProfileSpec,
}
FILES = [path for kind in MODELS for path in sorted((data_path("hardware_profiles") / kind).glob("*.yaml"))]


def identity(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def covers_of(document: Document) -> Iterator[tuple[int, str]]:
    sources = document.data["sources"]
    assert isinstance(sources, list)
    for index, source in enumerate(sources):
        assert isinstance(source, dict)
        covers = source["covers"]
        assert isinstance(covers, list)
        yield from ((index, str(cover)) for cover in covers)


def without(document: Document, cover: str) -> Document:
    """Return the document with one field struck from all its sources."""
    sources = document.data["sources"]
    assert isinstance(sources, list)
    kept: list[Data] = []
    for source in sources:
        assert isinstance(source, dict)
        covers = source["covers"]
        assert isinstance(covers, list)
        left = [item for item in covers if item != cover]
        if left:
            kept.append({**source, "covers": left})
    return document.with_value(("sources",), kept)


def check(document: Document, kind: str) -> None:
    check_sources(MODELS[kind].model_validate(document.data), document)


@pytest.mark.parametrize("path", FILES, ids=identity)
def test_every_number_has_a_source_and_striking_any_cover_makes_the_profile_fail_and_names_the_field(path: Path) -> None:
    document = read_document(path)
    check(document, path.parent.name)
    sources = document.data["sources"]
    assert isinstance(sources, list)
    for source in sources:
        assert isinstance(source, dict)
        # A source that is no address says what is known.
        assert str(source["url"]).startswith("http") or source["note"]

    for _, cover in covers_of(document):
        changed = without(document, cover)
        if not changed.data["sources"]:
            continue
        with pytest.raises(ScenarioError, match="no source covers") as caught:
            check(changed, path.parent.name)
        assert caught.value.field is not None
        assert caught.value.field == cover or caught.value.field.startswith(f"{cover}.")
        assert caught.value.place is not None
        assert caught.value.place.line is not None


def test_a_cover_that_names_no_number_is_refused_with_the_nearest() -> None:
    document = read_document(data_path("hardware_profiles") / "nics" / "cx7-ndr.yaml")
    sources = document.data["sources"]
    assert isinstance(sources, list)
    first = sources[0]
    assert isinstance(first, dict)

    with pytest.raises(ScenarioError, match="'latencie' is not a field with a number") as caught:
        check(document.with_value(("sources",), [{**first, "covers": ["bandwidth", "latency", "latencie"]}, *sources[1:]]), "nics")

    assert caught.value.field == "sources.0.covers"
    assert caught.value.hint == "did you mean 'latency'?"


def test_a_nested_field_may_be_covered_alone() -> None:
    document = read_document(data_path("hardware_profiles") / "accelerators" / "a800-sxm4-80g.yaml")

    with pytest.raises(ScenarioError) as caught:
        check(without(document, "scale_up.links"), "accelerators")

    assert caught.value.field == "scale_up.links"


def accelerator_with(*sources: Source) -> Accelerator:
    return replace(load_accelerator("h100-sxm5-80g"), sources=sources)


def source(url: str, *covers: str) -> Source:
    return Source(title="T", url=url, accessed="2026-11-20", covers=covers, note="N")


def test_remembered_and_assumed_figures_are_named() -> None:
    accelerator = accelerator_with(
        source("memory", "power"), source("assumed", "pcie"), source("derived", "memory"), source("https://x", "scale_up")
    )

    assert remembered_fields(accelerator) == ("h100-sxm5-80g.power", "h100-sxm5-80g.pcie")


def test_a_figure_that_the_user_gave_is_no_longer_remembered() -> None:
    accelerator = accelerator_with(source("memory", "power", "scale_up.links", "scale_up_more"), source(SCENARIO, "power", "scale_up"))

    assert remembered_fields(accelerator) == ("h100-sxm5-80g.scale_up_more",)


def test_a_node_names_the_remembered_figures_of_its_parts() -> None:
    node = load_node("oci-bm-gpu-h100")

    fields = remembered_fields(node)

    assert "oci-bm-gpu-h100.nics.count" in fields
    assert "oci-h100.memory" in fields
    assert "cx7-roce-200g.bandwidth" in fields
    assert "tomahawk3-200g.latency" in fields
    assert len(fields) == len(set(fields))


def test_a_cluster_does_not_name_the_reference_fabric_that_it_replaces() -> None:
    fields = remembered_fields(load_cluster("selene-a100"))

    assert "selene-a100.fabric.nodes_per_leaf" in fields
    assert "dgx-a100-80g.fabric.nodes_per_leaf" not in fields


@pytest.mark.parametrize("name", ["dgx-h100", "dgx-a100-80g", "dgx-a100-40g", "hgx-h200"])
def test_the_accelerators_and_adapters_that_matter_most_rest_on_seen_figures(name: str) -> None:
    node = load_node(name)

    assert remembered_fields(node.accelerator) == ()
    assert remembered_fields(node.nic) == ()


def test_the_words_for_unseen_figures_are_those_that_profiles_use() -> None:
    used = {item.url for name in profile_names("nodes") for item in load_node(name).sources}
    used |= {item.url for name in profile_names("accelerators") for item in load_accelerator(name).sources}

    assert set(UNSEEN) <= used
