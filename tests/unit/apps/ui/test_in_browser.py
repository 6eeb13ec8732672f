"""The page that runs clustersim in a browser: its archive answers scenarios with the packages that it loads, and no others."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from clustersim.apps.run.running import run
from clustersim.apps.ui.in_browser import answer, examples, text_of

ROOT = Path(__file__).parents[4]
ALLOWED = (
    "numpy",
    "pydantic",
    "pydantic_core",
    "quantiphy",
    "ruamel",
    "simpy",
    "annotated_types",
    "typing_extensions",
    "typing_inspection",
)
"""Packages that the page loads, and those that come with them."""
PROGRAM = """
import sys

class Refusing:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in {allowed!r} and top not in sys.stdlib_module_names and not top.startswith("_sysconfigdata"):
            raise ModuleNotFoundError(f"{{name}} is not in the browser", name=name)

sys.meta_path.insert(0, Refusing())
sys.path.insert(0, {archive!r})
from clustersim.apps.ui.in_browser import answer, examples
import json
print(answer(json.loads(examples())["starter"]))
"""


def archive(path: Path) -> Path:
    """Write the archive of the page, and return the folder that it is unpacked into."""
    spec = spec_from_file_location("browser_page", ROOT / "docs" / "_extensions" / "browser_page.py")
    assert spec is not None
    assert spec.loader is not None
    page = module_from_spec(spec)
    spec.loader.exec_module(page)
    page.write_archive(path / "clustersim.zip")
    with zipfile.ZipFile(path / "clustersim.zip") as packed:
        packed.extractall(path / "unpacked")
    return path / "unpacked"


def test_the_archive_needs_the_packages_that_the_page_loads_and_no_others(tmp_path: Path) -> None:
    program = PROGRAM.format(allowed=(*ALLOWED, "clustersim"), archive=str(archive(tmp_path)))

    outcome = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert outcome.returncode == 0, outcome.stderr[-2000:]
    found = json.loads(outcome.stdout)
    assert found["duration_s"] == run("starter").step_time_s
    assert found["figures"][0][0] == "step time"


def test_an_answer_has_a_timeline_and_a_link_that_holds_the_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = json.loads(examples())["1f1b"]

    found = json.loads(answer(text))

    assert len(found["rows"]) == sum(len({s.stream for s in run("1f1b").spans.spans if s.rank_class == place}) for place in range(4))
    assert max(end for row in found["rows"] for _, end, _, _ in row["spans"]) == pytest.approx(found["duration_s"])
    again = json.loads(text_of(found["link"]))["text"]
    assert json.loads(answer(again))["duration_s"] == found["duration_s"]


@pytest.mark.parametrize(
    ("text", "message"),
    [("model: gpt2\n", "scenario.yaml:1:1: cluster: 'cluster' is missing"), ("serving: {}\n", "serving"), ("[", "scenario.yaml")],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)

    assert message in json.loads(answer(text))["error"]


def test_a_damaged_link_is_told() -> None:
    assert "damaged" in json.loads(text_of("#scenario=%%%"))["error"]


def test_the_script_of_the_page_places_spans_by_their_time() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("runs JavaScript")
    rows = [{"name": "stage 0", "spans": [[0.0, 1.0, "forward", "F"]]}, {"name": "stage 1", "spans": [[1.0, 4.0, "dp", "reduce"]]}]
    page = json.dumps(str(ROOT / "docs" / "_browser" / "page.js"))
    program = f"import({page}).then(page => console.log(JSON.stringify(page.bars({json.dumps(rows)}, 4, 800, 16))))"

    found = json.loads(subprocess.run([node, "-e", program], capture_output=True, text=True, check=True).stdout)

    assert [(each["x"], each["width"], each["y"], each["fill"]) for each in found] == [(0, 200, 0, "forward"), (200, 600, 16, "dp")]
    assert found[1]["title"] == "stage 1: reduce, 3000 ms from 1000 ms"
