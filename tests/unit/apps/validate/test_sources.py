"""Files of published measurements: their form, and what is said about mistakes in them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from clustersim.apps.validate.sources import PublishedSource, read_source, source_names
from clustersim.config.load import load_scenario
from clustersim.documents.check import value_at
from clustersim.documents.text import merged
from clustersim.errors import Place, ScenarioError
from tests.unit.apps.samples import TEXT, refusal, write


def test_a_row_is_put_on_top_of_what_all_rows_share(tmp_path: Path) -> None:
    source = read_source(write(tmp_path))

    first, second = source.scenario(0), source.scenario(1)

    assert first["training"] == {"global_batch_size": 32, "precision": "bf16"}
    assert second["training"] == {"global_batch_size": 64, "precision": "bf16"}
    assert second["strategy"] == {"tp": 4, "pp": 2}
    assert (first["name"], second["name"]) == ("one", "two")


def test_quantities_are_read_with_their_units(tmp_path: Path) -> None:
    first, second = read_source(write(tmp_path)).spec.rows

    assert first.measured.step_time == pytest.approx(0.1, rel=1e-12)
    assert (second.measured.step_time, second.measured.hardware_rate) == (0.2, 1e12)


def test_merging_changes_neither_mapping() -> None:
    below, above = {"a": {"b": 1}, "list": [1, 2]}, {"a": {"c": 2}, "list": [3]}

    assert merged(below, above) == {"a": {"b": 1, "c": 2}, "list": [3]}
    assert (below, above) == ({"a": {"b": 1}, "list": [1, 2]}, {"a": {"c": 2}, "list": [3]})


@pytest.mark.parametrize(("key", "value"), [("a.b", 1), ("a", {"b": 1}), ("a.c", None), ("a.b.c", None), ("x", None)])
def test_a_value_is_found_by_its_dotted_key(key: str, value: object) -> None:
    assert value_at({"a": {"b": 1}}, key.split(".")) == value


@pytest.mark.parametrize(
    ("old", "new", "field", "message", "hint"),
    [
        (
            "step_time: 100 ms",
            "step_time: 0.1",
            "rows.0.measured.step_time",
            "0.1 has no unit",
            "write it with a unit, such as '0.1 us', '0.1 s', '0.1 h' or '0.1 years'",
        ),
        ("step_time: 100 ms", "step_time: 0 s", "rows.0.measured.step_time", "is out of range", "more than 0"),
        ("step_time: 100 ms", "steptime: 1 s", "rows.0.measured.steptime", "unknown field 'steptime'", "did you mean 'step_time'?"),
        ("quality: A", "quality: C", "rows.0.quality", "'C' is not one of A, B", ""),
        ("    quality: A\n", "", "rows.0.quality", "'quality' is missing", "add 'quality: ...'"),
        ("id: two", "id: one", "rows.1.id", "'one' is the id of row 0 already", "give each row its own"),
        ("title: A", "titel: A", "titel", "unknown field 'titel'", "did you mean 'title'?"),
        ("https://example.org/paper", "paper.pdf", "urls.0", "paper.pdf", ""),
        ("urls: [https://example.org/paper]", "urls: []", "urls", "a list", ""),
        (
            "  training.precision:",
            "  training.precison:",
            "conventions",
            "no row sets 'training.precison'",
            "did you mean 'training.precision'?",
        ),
        ("retrieved: 2026-11-21", "retrieved: yesterday", "retrieved", "'yesterday'", ""),
        ("source_id: small", "source_id: large", "source_id", "'large' is not the name of the file", "write 'small'"),
        ("tp: 4}", "tp: 4}\n  - 3", "rows.2", "3 is not a mapping", ""),
    ],
)
def test_a_mistake_in_the_form_is_told_with_its_place(tmp_path: Path, old: str, new: str, field: str, message: str, hint: str) -> None:
    assert old in TEXT

    error = refusal(tmp_path, TEXT.replace(old, new, 1))

    assert error.field == field
    assert message in error.message
    assert hint in (error.hint or "")
    assert error.place is not None
    assert error.place.line is not None


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    head = TEXT.partition("rows:")[0].replace("  training.precision: as stated\n", "").replace("conventions:\n", "")

    assert refusal(tmp_path, f"{head}rows: []\n").field == "rows"


@pytest.mark.parametrize("text", ["", "[1, 2]", "a: [", "a: 1\na: 2\n"])
def test_what_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    assert isinstance(refusal(tmp_path, text), ScenarioError)


def test_the_shipped_sources_are_in_alphabetical_order() -> None:
    names = source_names()

    assert list(names) == sorted(names)
    assert {"megatron-sc21", "korthikanti-2022"} <= set(names)


@pytest.mark.parametrize(
    ("field", "told", "line"),
    [
        ("strategy.tp", "rows.1.scenario.strategy.tp", "      strategy: {tp: 4}"),
        ("strategy.pp", "common.strategy.pp", "  strategy: {tp: 2, pp: 2}"),
        ("cluster.name", "rows.1.scenario.cluster.name", "      training: {global_batch_size: 64}"),
    ],
    ids=["in the row", "in what all rows share", "nowhere"],
)
def test_an_error_is_placed_where_its_value_is_written_or_at_the_row(tmp_path: Path, field: str, told: str, line: str) -> None:
    error = read_source(write(tmp_path)).located(ScenarioError("wrong", field=field, hint="right"), 1)

    assert (error.message, error.field, error.hint) == ("wrong", told, "right")
    assert error.place is not None
    assert error.place.text == line


def test_an_error_in_another_file_keeps_its_place(tmp_path: Path) -> None:
    elsewhere = ScenarioError("wrong", place=Place(file="model.yaml", line=3))

    assert read_source(write(tmp_path)).located(elsewhere, 0) is elsewhere


@cache
def shipped() -> tuple[PublishedSource, ...]:
    return tuple(map(read_source, source_names()))


def test_every_row_of_a_shipped_source_is_a_scenario() -> None:
    for source in shipped():
        for index, row in enumerate(source.spec.rows):
            assert load_scenario(source.scenario(index)).name == row.id


OF_IMAGES = ("horovod-2017", "nvidia-dle-resnet50", "tensorflow-ps-2017")


def test_every_row_of_a_shipped_source_leaves_nothing_of_its_layout_to_defaults() -> None:
    keys = [
        "model",
        "cluster.nodes",
        "training.global_batch_size",
        "training.micro_batch_size",
        "training.seq_length",
        "training.precision",
    ]
    keys += [f"strategy.{key}" for key in ("dp", "tp", "pp", "sequence_parallel", "schedule", "virtual_stages", "zero_stage", "recompute")]

    missing = [
        f"{row.id}: {key}"
        for source in shipped()
        for index, row in enumerate(source.spec.rows)
        for key in keys
        # Images have no length, and giving one is refused.
        if not any(f"{key}.".startswith(f"{hidden}.") for hidden in row.hidden)
        and value_at(source.scenario(index), key.split(".")) is None
        and (key != "training.seq_length" or source.spec.source_id not in OF_IMAGES)
    ]

    assert missing == []


def test_a_shipped_row_of_quality_a_assumes_nothing_and_one_of_quality_b_says_what() -> None:
    assert [row.id for source in shipped() for row in source.spec.rows if (row.quality == "A") != (row.assumed == [])] == []


def test_numerics_and_kernels_of_a_shipped_source_have_a_reason() -> None:
    keys = [f"training.{key}" for key in ("precision", "attention", "gradient_precision", "fused_gradient_accumulation", "kernels")]

    for source in shipped():
        set_by_all = [key for key in keys if value_at(source.spec.common, key.split(".")) is not None]
        assert [key for key in set_by_all if key not in source.spec.conventions] == [], source.spec.source_id


def test_no_shipped_row_stands_in_two_sources() -> None:
    ids = [row.id for source in shipped() for row in source.spec.rows]

    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    ("measured", "message", "hint"),
    [
        ("{mfu: 0.4}", "nothing says how long a step took", "give one of step_time, samples_per_s, tokens_per_s_per_gpu"),
        ("{step_time: 1 s, samples_per_s: 3 samples/s}", "step_time and samples_per_s say the same twice", "keep what the source measured"),
    ],
)
def test_a_row_says_once_how_long_a_step_took(tmp_path: Path, measured: str, message: str, hint: str) -> None:
    error = refusal(tmp_path, TEXT.replace("{step_time: 100 ms}", measured))

    assert (error.message, error.hint) == (message, hint)


TABLE = """\
table:
  file: small.csv
  table: timings.csv
  quality: B
  assumed: [one sequence in a micro-batch]
"""
CSV = """\
id,row,measured.step_time,training.global_batch_size,strategy.tp,model.name
three,line 1,250 ms,64,4,tiny
four,line 2,0.5 s,128,2,tiny
"""


def tabled(folder: Path, lines: str = CSV, text: str = TEXT) -> Path:
    (folder / "small.csv").write_text(lines, encoding="utf-8")
    return write(folder, text + TABLE)


def test_a_table_adds_a_row_for_each_of_its_lines(tmp_path: Path) -> None:
    source = read_source(tabled(tmp_path))
    third = source.spec.rows[2]

    assert [row.id for row in source.spec.rows] == ["one", "two", "three", "four"]
    assert (third.source.table, third.source.row, third.quality) == ("timings.csv", "line 1", "B")
    assert third.measured.step_time == pytest.approx(0.25, rel=1e-12)
    assert third.assumed == ["one sequence in a micro-batch"]
    assert source.scenario(2)["strategy"] == {"tp": 4, "pp": 2}
    assert value_at(source.scenario(2), ["model", "name"]) == "tiny"
    assert value_at(source.scenario(3), ["training", "global_batch_size"]) == 128


def test_a_table_alone_is_enough(tmp_path: Path) -> None:
    head = TEXT[: TEXT.index("rows:")]

    assert len(read_source(tabled(tmp_path, text=head)).spec.rows) == 2


def test_an_empty_cell_of_a_table_leaves_its_key_out_and_truth_is_read(tmp_path: Path) -> None:
    lines = "id,row,measured.step_time,strategy.tp,strategy.sequence_parallel\nthree,1,1 s,,false\nfour,2,1 s,4,\n"
    third, fourth = read_source(tabled(tmp_path, lines)).spec.rows[2:]

    assert (third.scenario, fourth.scenario) == ({"strategy": {"sequence_parallel": False}}, {"strategy": {"tp": 4}})


@pytest.mark.parametrize("part", ["conventions: {strategy.tp: as stated, strategy.tq: why}", "fitted: [strategy.tp, strategy.tq]"])
def test_a_key_that_no_row_sets_is_refused_after_its_table_is_read(tmp_path: Path, part: str) -> None:
    text = TEXT.replace("conventions:\n  training.precision: as stated\n", f"{part}\n")

    with pytest.raises(ScenarioError, match=r"no row sets 'strategy\.tq'") as caught:
        read_source(tabled(tmp_path, text=text))

    assert caught.value.place is not None


def test_a_table_that_is_not_there_is_named(tmp_path: Path) -> None:
    error = refusal(tmp_path, TEXT + TABLE)

    assert "cannot read 'small.csv'" in error.message


def test_a_mistake_in_a_table_says_in_which_line_it_is(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as caught:
        read_source(tabled(tmp_path, CSV.replace("250 ms", "250")))

    assert caught.value.field == "lines.1.measured.step_time"


def test_an_id_may_not_stand_in_the_file_and_in_its_table(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="'one' is the id of row 0 already"):
        read_source(tabled(tmp_path, CSV.replace("three", "one")))


def test_a_run_that_did_not_fit_has_a_scenario_and_no_time(tmp_path: Path) -> None:
    misfit = "out_of_memory:\n  - id: huge\n    source: {table: table 3, row: last}\n    scenario: {training: {global_batch_size: 128}}\n"
    source = read_source(write(tmp_path, TEXT + misfit))

    assert len(source.spec.rows) == 2
    assert source.misfit(0)["name"] == "huge"
    assert value_at(source.misfit(0), ["training", "global_batch_size"]) == 128
    assert value_at(source.misfit(0), ["strategy", "pp"]) == 2
