"""The page asked over its address, as its script asks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clustersim.apps.ui.controls import controls, values_of

if TYPE_CHECKING:
    from flask.testing import FlaskClient
    from werkzeug.test import TestResponse

BASE: dict[str, Any] = {
    "model": "gpt2",
    "cluster": {"node": "dgx-h100", "nodes": 1},
    "training": {"global_batch_size": 16, "micro_batch_size": 2},
    "strategy": {"zero_stage": 1},
}
PICK = "load"
HEADERS = {"Host": "127.0.0.1"}


@dataclass
class Visitor:
    """Asks as the script of the page does."""

    client: FlaskClient

    def ask(self, output: str, changed: str, **held: Any) -> TestResponse:
        """Ask for what changes an output, with what the page holds: by the names of its parts, with underscores."""
        known = self.client.get("/_dash-dependencies", headers=HEADERS).json
        assert isinstance(known, list)
        asked = next(each for each in known if output in each["output"] and not each.get("clientside_function"))
        body = {
            "output": asked["output"],
            "outputs": outputs_of(asked["output"]),
            "inputs": [part_of(part, held) for part in asked["inputs"]],
            "state": [part_of(part, held) for part in asked["state"]],
            "changedPropIds": [changed],
        }
        return self.client.post("/_dash-update-component", headers=HEADERS, json=body)

    def told(self, output: str, changed: str, **held: Any) -> dict[str, Any]:
        """Return what the page is told to change."""
        answer = self.ask(output, changed, **held)
        assert answer.status_code == 200
        return json.loads(answer.text)["response"]

    def shows(self, base: object, **texts: str) -> dict[str, Any]:
        """Return what the page shows of a scenario, with some controls changed."""
        shown = dict(zip((control.name.replace("-", "_") for control in controls()), values_of(base), strict=True))  # pyright: ignore[reportArgumentType]
        return self.told("figures.children", "base.data", base=base, **{**shown, **texts})

    def loads(self, changed: str, **held: Any) -> dict[str, Any]:
        return self.told("base.data", changed, **held)


def outputs_of(text: str) -> object:
    several = [dict(zip(("id", "property"), each.rsplit(".", 1), strict=True)) for each in text.strip(".").split("...")]
    return several if text.startswith("..") else several[0]


def part_of(part: dict[str, str], held: dict[str, Any]) -> object:
    if part["id"].startswith("{"):
        return [
            {"id": {"type": PICK, "index": place}, "property": part["property"], "value": value}
            for place, value in enumerate(held.get("picked", []))
        ]
    return {**part, "value": held.get(part["id"].replace("-", "_"))}


def texts_in(found: object) -> str:
    """Return all text of components."""
    if isinstance(found, list):
        return " ".join(map(texts_in, found))
    if isinstance(found, dict):
        return texts_in(found["props"].get("children")) if "props" in found else ""
    return "" if found is None else str(found)


def picked(place: int) -> str:
    return json.dumps({"index": place, "type": PICK}, separators=(",", ":")) + ".n_clicks"
