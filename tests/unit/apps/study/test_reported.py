"""Tables of studies."""

from __future__ import annotations

from clustersim.apps.study.reported import ReportTable


def test_a_table_gives_its_rows_by_the_names_of_its_columns() -> None:
    table = ReportTable(name="some", header=("a", "b"), rows=((1, None), (2.5, "x")))

    assert table.records() == [{"a": 1, "b": None}, {"a": 2.5, "b": "x"}]
