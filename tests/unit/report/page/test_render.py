"""A page is one file that asks for nothing else."""

from __future__ import annotations

import base64
import re

import pytest

from clustersim.errors import ScenarioError
from clustersim.report.page import content as rendering
from clustersim.report.page.content import HeadlineFigure, Image, InteractiveChart, Page, PageSection, render
from clustersim.report.text_tables import TextTable

PAGE = Page(
    title="a <b> & c",
    finding="it is found",
    sections=(
        PageSection(
            name="one",
            heading="First",
            figures=(HeadlineFigure(name="step time", value="2 s", note="80 %: 1.8 to 2.4 s"), HeadlineFigure(name="MFU", value="40 %")),
            lines=("one for all, -s a.b='2.50 USD', or for each, -s 'c={d: 1}' -s e=f,g, or none (-s h=...)",),
            images=(Image(title="a picture of <x>", data=b"<svg/>", kind="svg"),),
            tables=(TextTable("rows", ("name", ">size"), (("a", "1 GB"), ("b", "2 kB"))),),
            text="version: 1\n# <script>\n",
            text_name="scenario.yaml",
        ),
    ),
)
CHART = InteractiveChart(name="t", title="what ranks do", data=[{"x": [1], "text": ["</script>"]}], layout={"height": 200})


def test_what_users_write_is_never_markup() -> None:
    text = render(PAGE)

    assert "<title>a &lt;b&gt; &amp; c</title>" in text
    assert "# &lt;script&gt;" in text
    assert 'alt="a picture of &lt;x&gt;"' in text


@pytest.mark.parametrize(
    "part",
    [
        '<div><dt>step time</dt><dd>2 s</dd><dd class="note">80 %: 1.8 to 2.4 s</dd></div>',
        "<div><dt>MFU</dt><dd>40 %</dd></div>",
        f'src="data:image/svg+xml;base64,{base64.b64encode(b"<svg/>").decode()}"',
        '<td class="number" data-sort="1000000000.0">1 GB</td>',
        '<a href="#one">First</a>',
        '<section id="one" aria-labelledby="one-heading">',
        '<html lang="en">',
    ],
)
def test_notes_pictures_sorted_numbers_and_named_sections_are_in_a_page_without_the_library_of_charts(part: str) -> None:
    text = render(PAGE)

    assert part in text
    assert len(text) < 20_000


def test_settings_in_a_line_are_code_and_the_words_around_them_are_not() -> None:
    found = re.findall(r"<code>(.*?)</code>", render(PAGE))

    assert found == ["-s a.b=&#39;2.50 USD&#39;", "-s &#39;c={d: 1}&#39;", "-s e=f,g", "-s h=..."]


def test_nothing_is_asked_of_a_network() -> None:
    text = render(Page(title="t", finding="f", sections=(PageSection(name="s", heading="S", charts=(CHART,)), *PAGE.sections)))
    own = text.replace(rendering.plotly_library(), "")

    assert re.findall(r"(?:src|href)=\"(?!data:|#)[^\"]*\"", own) == []
    assert "default-src &#39;none&#39;" in own or "default-src 'none'" in own
    assert len(text.encode()) < rendering.LARGEST_BYTES


def test_data_of_charts_cannot_end_their_script() -> None:
    text = render(Page(title="t", finding="f", sections=(PageSection(name="s", heading="S", charts=(CHART,)),)))

    assert '"text":["\\u003c/script>"]' in text


def test_without_the_extra_charts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "has_plotly", lambda: False)

    with pytest.raises(ScenarioError, match="plotly is not installed; pip install 'clustersim\\[html\\]', or ask for --static"):
        render(Page(title="t", finding="f", sections=(PageSection(name="s", heading="S", charts=(CHART,)),)))
