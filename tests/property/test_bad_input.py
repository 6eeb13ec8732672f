"""Whatever is fed to the command line: an exit code of the promise, one error, no traceback, nothing written."""

from __future__ import annotations

import io
import json
import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.cli.app import main
from clustersim.documents.spots import Data
from clustersim.scenario.schema import ClusterSpec, DataParallelSpec, ScenarioSpec, StrategySpec, TrainingSpec
from clustersim.scenario.yaml_text import yaml_text
from tests.unit.scenario.samples import MODEL, TEXT, small

FEW = settings(max_examples=60, deadline=None)
MANY = settings(max_examples=250, deadline=None)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended, what it wrote to the terminal, and which files it left."""

    code: int
    out: str
    err: str
    left: list[str]


@contextmanager
def folder_with(raw: bytes | None) -> Iterator[Path]:
    """Work in a new folder that holds at most the scenario."""
    with tempfile.TemporaryDirectory() as name, chdir(name):
        if raw is not None:
            Path("scenario.yaml").write_bytes(raw)
        yield Path(name)


def command(*arguments: str) -> Outcome:
    """Run a command in the working folder."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(arguments)
    left = sorted(path.relative_to(Path.cwd()).as_posix() for path in Path.cwd().rglob("*"))
    return Outcome(code=code, out=out.getvalue(), err=err.getvalue(), left=left)


def run(raw: bytes | str, *arguments: str) -> Outcome:
    """Run a scenario of these bytes."""
    with folder_with(raw.encode() if isinstance(raw, str) else raw):
        return command("run", "scenario.yaml", "--no-plots", *arguments)


def is_one_clean_refusal(outcome: Outcome, left: list[str]) -> None:
    assert outcome.code == 2, outcome.err
    assert outcome.out == ""
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("error: ") == 1
    assert "Traceback" not in outcome.err
    assert len(outcome.err.splitlines()) in {1, 3}, "one line, or that line and the source with its caret"
    assert len(outcome.err) < 2000
    assert outcome.left == left


def garbage(size: int) -> bytes:
    return random.Random(0).randbytes(size)


def printable_garbage(size: int) -> bytes:
    return bytes(random.Random(0).choices(range(32, 127), k=size))


def laughs() -> bytes:
    """Nine lists, each of nine times the one before."""
    names = [chr(ord("a") + number) for number in range(10)]
    lines = [f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]" for before, name in pairwise(names)]
    return "\n".join(["a: &a [x, x, x, x, x, x, x, x, x]", *lines]).encode()


BAD_FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "only a comment": (b"# nothing\n", "is empty"),
    "not YAML": (b"name: [1, 2\ncluster: }", "is not YAML"),
    "a list": (b"- a\n- b\n", "is not a mapping"),
    "a word": (b"hello", "is not a mapping"),
    "binary": (b"\x7fELF\x02\x01\x01" + bytes(range(256)), "is not text in UTF-8"),
    "binary with a zero": (b"name: a\x00b\n", "is binary, not text"),
    "UTF-16": (TEXT.encode("utf-16"), "is not text in UTF-8"),
    "10 MB of garbage": (garbage(10_000_000), "is larger than 2 MB"),
    "10 MB of printable garbage": (printable_garbage(10_000_000), "is larger than 2 MB"),
    "2 MB of garbage": (garbage(1_900_000), "is not text in UTF-8"),
    "2 MB of brackets": (b"[" * 1_900_000, ""),
    "2 MB of keys": (b"".join(b"k%d: 1\n" % number for number in range(190_000)), "too many keys"),
    "aliases that expand without end": (laughs(), ""),
    "duplicate keys": (TEXT.replace("  pp: 2", "  tp: 4").encode(), "key 'tp' is given twice"),
    "an unknown key": (TEXT.replace("micro_batch", "microbatch").encode(), "'microbatch_size'; did you mean 'micro_batch_size'?"),
    "an unknown section": (TEXT.replace("strategy:", "parallelism:").encode(), "unknown field 'parallelism'"),
    "a wrong unit": ((TEXT + "  data_parallel: {bucket: 25 Gbit/s}\n").encode(), "'25 Gbit/s' is not a size"),
    "a bare number": ((TEXT + "  data_parallel: {bucket: 25}\n").encode(), "25 has no unit"),
    "a negative number": (TEXT.replace("global_batch_size: 32", "global_batch_size: -32").encode(), "-32 is out of range"),
    "a negative quantity": ((TEXT + "  data_parallel: {bucket: -25 MB}\n").encode(), "-25 MB is negative"),
    "NaN": (TEXT.replace("global_batch_size: 32", "global_batch_size: .nan").encode(), ".nan is not a finite number"),
    "infinity": (TEXT.replace("nodes: 2", "nodes: .inf").encode(), ".inf is not a finite number"),
    "a quantity that is not a number": ((TEXT + "  data_parallel: {bucket: nan GB}\n").encode(), "'nan GB' is not a size"),
    "zero nodes": (TEXT.replace("nodes: 2", "nodes: 0").encode(), "cluster.nodes: 0 is out of range"),
    "zero GPUs": (TEXT.replace("nodes: 2", "nodes: 2\n  accelerators_per_node: 0").encode(), "accelerators_per_node: 0 is out of range"),
    "layers that do not divide": (TEXT.replace("pp: 2", "pp: 3").encode(), "8 layers do not divide evenly into 3 stages"),
    "heads that do not divide": (TEXT.replace("tp: 2", "tp: 6").encode(), "6 does not divide 8 attention heads"),
    "degrees that do not fit": ((TEXT + "  dp: 3\n").encode(), "tp*pp*cp*dp = 12 does not match 16 GPUs; dp: auto gives 4"),
    "a batch that does not divide": (TEXT.replace("size: 32", "size: 33").encode(), "33 is not a multiple of"),
    "an unknown model": (f"model: gpt-5\n{TEXT[TEXT.index('cluster:'):]}".encode(), "there is no model 'gpt-5'"),
    "a model without a size": (TEXT.replace("  hidden_size: 512\n", "").encode(), "hidden_size"),
    "a tag": (b"name: !!python/object/apply:os.system ['touch pwned']\n", "is not understood"),
    "experts of a model without any": ((TEXT + "  ep: 2\n").encode(), "has no experts"),
}  # fmt: skip


@pytest.mark.parametrize("kind", list(BAD_FILES))
def test_a_bad_file_is_refused_in_one_line_and_nothing_is_written(kind: str) -> None:
    raw, message = BAD_FILES[kind]

    outcome = run(raw)

    is_one_clean_refusal(outcome, left=["scenario.yaml"])
    assert outcome.err.startswith("error: scenario.yaml")
    assert message in outcome.err


def test_a_directory_is_refused() -> None:
    with folder_with(None):
        Path("scenario.yaml").mkdir()

        outcome = command("run", "scenario.yaml")

    is_one_clean_refusal(outcome, left=["scenario.yaml"])
    assert "is a directory, not a file" in outcome.err


def test_a_missing_file_is_refused_with_the_nearest_name() -> None:
    with folder_with(TEXT.encode()):
        outcome = command("run", "scenari.yaml")

    is_one_clean_refusal(outcome, left=["scenario.yaml"])
    assert "did you mean 'scenario.yaml'?" in outcome.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_refused() -> None:
    with folder_with(TEXT.encode()):
        Path("scenario.yaml").chmod(0)
        outcome = command("run", "scenario.yaml")

    is_one_clean_refusal(outcome, left=["scenario.yaml"])


@pytest.mark.parametrize(
    "arguments", [("run", "bad\x00name.yaml"), ("run", "x" * 5000 + ".yaml"), ("show", "nodes", "\x00"), ("init", "\x00")]
)
def test_a_name_that_no_file_can_have_is_refused(arguments: tuple[str, ...]) -> None:
    with folder_with(None):
        outcome = command(*arguments)

    assert (outcome.code, outcome.out, outcome.left) == (2, "", [])
    assert outcome.err.startswith("error: ")


HF = {
    "model_type": "llama",
    "num_hidden_layers": 8,
    "hidden_size": 512,
    "num_attention_heads": 8,
    "intermediate_size": 1024,
    "vocab_size": 1000,
}
BAD_CONFIGS = {
    "without hidden_size": (json.dumps({key: value for key, value in HF.items() if key != "hidden_size"}), "hidden_size"),
    "not JSON": ("{", ""),
    "empty": ("", ""),
    "a list": ("[]", ""),
    "a negative size": (json.dumps(HF | {"hidden_size": -512}), "-512 is out of range"),
    "a size as text": (json.dumps(HF | {"hidden_size": "512"}), "'512' is not a whole number"),
    "heads that do not divide": (json.dumps(HF | {"num_attention_heads": 7}), "7"),
    "deeply nested": ("[" * 100_000, ""),
    "NaN": (json.dumps(HF | {"hidden_size": float("nan")}), ""),
    "an unknown type": (json.dumps(HF | {"model_type": "mamba"}), "mamba"),
}


@pytest.mark.parametrize("kind", list(BAD_CONFIGS))
def test_a_bad_hugging_face_configuration_is_refused(kind: str) -> None:
    text, message = BAD_CONFIGS[kind]
    with folder_with(f"model: hf:config.json\n{TEXT[TEXT.index('cluster:') :]}".encode()):
        Path("config.json").write_text(text, encoding="utf-8")

        outcome = command("run", "scenario.yaml")

    is_one_clean_refusal(outcome, left=["config.json", "scenario.yaml"])
    assert message in outcome.err


def ends_well(outcome: Outcome) -> None:
    """The command was done, or refused what it was given; it did not break."""
    assert outcome.code in {0, 1, 2}, outcome.err
    assert "Traceback" not in outcome.err
    if outcome.code == 2:
        is_one_clean_refusal(outcome, left=["scenario.yaml"])


@given(st.binary(max_size=400))
@FEW
def test_garbage_is_refused(raw: bytes) -> None:
    is_one_clean_refusal(run(raw), left=["scenario.yaml"])


@given(st.text(alphabet=st.sampled_from("abc01 :-[]{}#&*!|>'\"%@`?,\n\t\r\\.~<=é\u2028"), max_size=60))
@MANY
def test_text_made_of_yaml_signs_is_refused(text: str) -> None:
    is_one_clean_refusal(run(text), left=["scenario.yaml"])


@st.composite
def edited(draw: st.DrawFn) -> str:
    """Return a good scenario after a few slips of the hand."""
    text = TEXT
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        n_removed = draw(st.integers(0, 12))
        added = draw(st.text(alphabet=st.sampled_from("atp012: -\n[]{}#.xe'"), max_size=6))
        text = text[:at] + added + text[at + n_removed :]
    return text


@given(edited())
@MANY
def test_a_scenario_with_slips_runs_or_is_refused(text: str) -> None:
    ends_well(run(text, "--dry-run"))


SECTIONS = {
    "": ScenarioSpec,
    "cluster.": ClusterSpec,
    "training.": TrainingSpec,
    "strategy.": StrategySpec,
    "strategy.data_parallel.": DataParallelSpec,
}
KEYS = [f"{prefix}{name}" for prefix, model in SECTIONS.items() for name in model.model_fields] + [f"model.{key}" for key in MODEL]
NUMBERS: list[Data] = [0, -1, 1, 2, 3, 7, 8, 64, 1000, 999_983, 10**9, 10**30, -(10**30), 0.5, 1e308, 5e-324, True, False, None]
WORDS: list[Data] = [
    "",
    "x",
    "auto",
    "none",
    "1f1b",
    "gpipe",
    "naive",
    "interleaved_1f1b",
    "full",
    "fp8",
    "fp32",
    "é",
    "hf:x",
    "../x",
    "a" * 5000,
]
QUANTITIES: list[Data] = ["0 B", "5 GB", "1e300 EB", "1 us", "100 years", "9e99999 GB", "50%"]
SHIPPED: list[Data] = ["superpod-h100", "dgx1-v100-16g", "gb200-nvl72", "gpt2", {"name": "superpod-h100"}]
NESTED: list[Data] = [[], {}, [1], [[]], {"a": 1}, {"count": 1}, ["mfu > 0"], ["mfu > 1e999"]]
VALUES = NUMBERS + WORDS + QUANTITIES + SHIPPED + NESTED


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """Return a good scenario in which some values are others."""
    data = small()
    for key in draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=3)):
        *way, last = key.split(".")
        here: Data = data
        for part in way:
            below = here.setdefault(part, {})
            here = below if isinstance(below, dict) else {}
        here[last] = deepcopy(draw(st.sampled_from(VALUES)))
    return yaml_text(data)


@given(mutated())
@settings(max_examples=500, deadline=None)
def test_a_scenario_with_other_values_is_built_or_refused(text: str) -> None:
    ends_well(run(text, "--dry-run"))


@given(mutated())
@FEW
def test_a_scenario_with_other_values_runs_or_is_refused(text: str) -> None:
    ends_well(run(text))


@given(st.sampled_from(KEYS), st.text(max_size=20))
@FEW
def test_anything_given_to_set_is_taken_or_refused(key: str, value: str) -> None:
    with folder_with(TEXT.encode()):
        outcome = command("run", "scenario.yaml", "--dry-run", "-s", f"{key}={value}")

    assert outcome.code in {0, 2}, outcome.err
    assert "Traceback" not in outcome.err
    assert outcome.left == ["scenario.yaml"]


@given(
    st.lists(
        st.one_of(st.sampled_from(["run", "show", "--json", "-s", "-o", "--seed", "--dry-run", "nodes", "--", "-"]), st.text(max_size=8)),
        max_size=5,
    )
)
@FEW
def test_any_command_line_ends_with_a_code_of_the_promise(words: list[str]) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(b""), encoding="utf-8")
    with folder_with(None), pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", stdin)
        outcome = command(*(word for word in words if word not in {"--install-completion", "--show-completion"}))

    assert outcome.code in {0, 1, 2}, outcome.err
    assert "Traceback" not in outcome.err
