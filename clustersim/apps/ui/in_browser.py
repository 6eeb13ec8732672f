"""One scenario answered inside a browser, under Pyodide: text in, a JSON text out; needs what ``clustersim.run`` needs and no more."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Final

from clustersim.apps.run.result import Result
from clustersim.apps.run.running import run_scenario
from clustersim.apps.serve.serving_result import ServingResult
from clustersim.apps.ui.link import document_of, link_of
from clustersim.config.load import read_source
from clustersim.config.yaml_text import yaml_text
from clustersim.documents.files import data_names, data_path
from clustersim.documents.text import parse_document
from clustersim.errors import ClustersimError
from clustersim.report.facts import headline
from clustersim.report.palette import DIMENSION_COLOURS, HOST, KIND_COLOURS

MOST_SPANS: Final = 20_000
"""Spans of the timeline that a page draws; later ones are left out."""


def examples() -> str:
    """Return name and text of each shipped training scenario, as JSON."""
    paths = {name: data_path("scenarios", "examples", f"{name}.yaml") for name in data_names("scenarios", "examples")}
    found = {name: path.read_text(encoding="utf-8") for name, path in paths.items()}
    return json.dumps({name: text for name, text in found.items() if "\nserving:" not in text})


def text_of(link: str) -> str:
    """Return the scenario of a link, as JSON: ``text``, or ``error``."""
    try:
        return json.dumps({"text": yaml_text(document_of(link))})
    except ClustersimError as error:
        return json.dumps({"error": str(error)})


def answer(text: str) -> str:
    """Return the result of a scenario, as JSON: ``figures``, ``flags``, ``rows`` of the timeline and ``link``; or ``error``."""
    path = Path("scenario.yaml")
    path.write_text(text, encoding="utf-8")
    try:
        result = run_scenario(read_source(path), ())
        link = link_of(parse_document(text, path.name).data)
    except ClustersimError as error:
        return json.dumps({"error": str(error)})
    if isinstance(result, ServingResult):
        return json.dumps({"error": "this page answers training scenarios; run a serving one with: clustersim run"})
    memory = result.metrics.memory
    figures = [*headline(result.metrics), ("memory of a rank", "fits" if memory.fits else "does not fit")]
    return json.dumps(
        {
            "figures": figures,
            "flags": [flag.message for flag in result.flags],
            "duration_s": result.spans.step_time_s,
            "rows": _rows(result),
            "link": link,
        }
    )


def _rows(result: Result) -> list[dict[str, object]]:
    """Return a row for each stream of each rank class, with start, end, colour and name of its spans in the first step."""
    rows: dict[tuple[int, str], list[tuple[float, float, str, str]]] = {}
    for span in islice((span for span in result.spans.spans if span.step == 0), MOST_SPANS):
        row = rows.setdefault((span.rank_class, span.stream), [])
        row.append((span.start_s, span.end_s, DIMENSION_COLOURS.get(span.dimension) or KIND_COLOURS.get(span.kind, HOST), span.name))
    classes = result.spans.rank_classes
    return [{"name": f"{classes[place].name} {stream}", "spans": spans} for (place, stream), spans in sorted(rows.items())]
