"""Stored points of a sweep, also after a crash."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from clustersim.apps.study.axis import canonical
from clustersim.apps.study.point import Base, PointOutcome, override_of
from clustersim.apps.study.store import POINTS, header_of, opened, replace_file
from clustersim.errors import ScenarioError
from clustersim.measure.error_bars import ErrorBar
from tests.unit.apps.study.factories import make_base

GOOD = PointOutcome(
    status="ok",
    scenario_hash="12345678",
    figures={"step_time_s": 0.1, "mfu": 1 / 3, "memory.fits": True, "gpus": 8},
    bar=ErrorBar(least_fraction=0.9, most_fraction=1.2, ratio_most_fraction=1.1, machine="0123abcd"),
)
BAD = PointOutcome(status="infeasible", reason="strategy.tp: does not divide – ü")


def key(number: int) -> str:
    return canonical({"strategy.tp": number})


def test_what_is_kept_is_there_when_the_store_is_opened_again(tmp_path: Path) -> None:
    with opened(tmp_path / "new" / "folder", make_base()) as store:
        store.keep(key(1), PointOutcome(status="failed", reason="lost"))
        store.keep(key(1), GOOD)
        store.keep(key(2), BAD)

    with opened(tmp_path / "new" / "folder", make_base()) as again:
        assert again.found == {key(1): GOOD, key(2): BAD}
        assert [type(value) for value in again.found[key(1)].figures.values()] == [float, float, bool, int]


def test_a_line_is_written_at_once(tmp_path: Path) -> None:
    with opened(tmp_path, make_base()) as store:
        store.keep(key(1), GOOD)
        assert len((tmp_path / POINTS).read_text(encoding="utf-8").splitlines()) == 2


@pytest.mark.parametrize("left", [1, 20, 60])
def test_what_a_crash_leaves_of_a_line_is_cut_off(tmp_path: Path, left: int) -> None:
    with opened(tmp_path, make_base()) as store:
        store.keep(key(1), GOOD)
        store.keep(key(2), GOOD)
    path = tmp_path / POINTS
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]) + lines[2][:left])

    with opened(tmp_path, make_base()) as again:
        assert list(again.found) == [key(1)]
        again.keep(key(2), BAD)

    with opened(tmp_path, make_base()) as last:
        assert last.found == {key(1): GOOD, key(2): BAD}


def test_a_crash_in_the_first_line_begins_anew(tmp_path: Path) -> None:
    (tmp_path / POINTS).write_bytes(b'{"schema_ver')

    with opened(tmp_path, make_base()) as store:
        assert store.found == {}
        store.keep(key(1), GOOD)

    with opened(tmp_path, make_base()) as again:
        assert list(again.found) == [key(1)]


@pytest.mark.parametrize("raw", [b"my only copy", b"my only copy\n", b'{"a": 1}\n{"b":', b"\0" * 50, b"[]\n", b"point,status\n1,ok\n"])
def test_a_file_of_somebody_else_is_refused_and_left_as_it_is(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / POINTS).write_bytes(raw)

    with pytest.raises(ScenarioError, match=r"is not (the beginning|a line) of a sweep"), opened(tmp_path, make_base()):
        pass

    assert (tmp_path / POINTS).read_bytes() == raw


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine", encoding="utf-8")
    (tmp_path / "lock").symlink_to(tmp_path / "precious")

    with pytest.raises(ScenarioError, match="leads elsewhere"), opened(tmp_path, make_base()):
        pass

    assert (tmp_path / "precious").read_text(encoding="utf-8") == "mine"


def test_it_does_not_matter_in_which_order_points_finished(tmp_path: Path) -> None:
    for name, order in (("one", (1, 2, 3)), ("other", (3, 1, 2))):
        with opened(tmp_path / name, make_base()) as store:
            for number in order:
                store.keep(key(number), GOOD)
            store.arrange([key(2), key(1)])

    assert (tmp_path / "one" / POINTS).read_bytes() == (tmp_path / "other" / POINTS).read_bytes()
    points = [json.loads(line)["point"] for line in (tmp_path / "one" / POINTS).read_text(encoding="utf-8").splitlines()[1:]]
    assert points == [{"strategy.tp": 2}, {"strategy.tp": 1}, {"strategy.tp": 3}]


def test_two_sweeps_do_not_write_into_one_store(tmp_path: Path) -> None:
    with opened(tmp_path, make_base()), pytest.raises(ScenarioError) as caught, opened(tmp_path, make_base()):
        pass

    assert caught.value.message == f"another sweep (process {os.getpid()}) writes into {tmp_path} now"
    assert caught.value.hint == "wait until it has ended, or choose another folder with --out"

    with opened(tmp_path, make_base()):
        pass


@pytest.mark.parametrize(
    ("now", "before", "message"),
    [
        ('"clustersim": "', '"clustersim": "0.0.', "was written by clustersim 0.0."),
        ('"schema_version": 1', '"schema_version": 0', "is of schema version 0, and this is version 1"),
    ],
)
def test_a_store_of_another_version_is_refused_and_left_alone(tmp_path: Path, now: str, before: str, message: str) -> None:
    with opened(tmp_path, make_base()) as store:
        store.keep(key(1), GOOD)
    path = tmp_path / POINTS
    old = path.read_text(encoding="utf-8").replace(now, before)
    path.write_text(old, encoding="utf-8")

    with pytest.raises(ScenarioError) as caught, opened(tmp_path, make_base()):
        pass

    assert message in caught.value.message
    assert caught.value.hint == "choose another folder with --out, or remove this one"
    assert path.read_text(encoding="utf-8") == old


@pytest.mark.parametrize(
    "other",
    [
        make_base(seed=1),
        make_base(model="gpt2-xl"),
        Base(source=make_base().source, changes=(override_of("strategy.tp", 2),)),
    ],
)
def test_a_store_of_another_scenario_is_refused(tmp_path: Path, other: Base) -> None:
    with opened(tmp_path, make_base()):
        pass

    with pytest.raises(ScenarioError, match="belongs to another scenario"), opened(tmp_path, other):
        pass


def test_a_file_that_the_scenario_names_belongs_to_it(tmp_path: Path) -> None:
    source = make_base(model="mine.yaml").source
    base = Base(source=type(source)(document=source.document, text="", folder=tmp_path))
    before = header_of(base)["scenario"]

    (tmp_path / "mine.yaml").write_text("hidden_size: 8", encoding="utf-8")
    with_file = header_of(base)["scenario"]
    (tmp_path / "mine.yaml").write_text("hidden_size: 16", encoding="utf-8")

    assert len({str(each) for each in (before, with_file, header_of(base)["scenario"])}) == 3


@pytest.mark.parametrize("text", ["{}\n", "nonsense\n", '{"point": {}, "status": "done"}\n'])
def test_a_line_that_is_none_has_its_number(tmp_path: Path, text: str) -> None:
    with opened(tmp_path, make_base()):
        pass
    with (tmp_path / POINTS).open("a", encoding="utf-8") as stream:
        stream.write(text)

    with pytest.raises(ScenarioError, match="is not a line of a sweep") as caught, opened(tmp_path, make_base()):
        pass

    assert caught.value.place is not None
    assert caught.value.place.line == 2


def test_a_full_disk_is_told_and_costs_nothing_that_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    room = [40]

    def nearly_full(handle: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = write(handle, data[: room[0]])
        room[0] -= taken
        return taken

    with opened(tmp_path, make_base()) as store:
        store.keep(key(1), GOOD)
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", nearly_full)
            with pytest.raises(ScenarioError) as caught:
                store.keep(key(2), GOOD)

    assert caught.value.message == f"cannot write {tmp_path / POINTS}: No space left on device"
    assert caught.value.hint == "make room; what is finished is kept, and the same command goes on"
    with opened(tmp_path, make_base()) as again:
        assert list(again.found) == [key(1)]


def test_a_file_that_cannot_be_written_whole_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").write_bytes(b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ScenarioError, match="No space left on device"):
        replace_file(tmp_path / "x", b"new")

    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("x", b"old")]


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with (
        pytest.raises(ScenarioError, match=r"cannot write .*file/inside: Not a directory"),
        opened(tmp_path / "file" / "inside", make_base()),
    ):
        pass
