"""Whatever is fed to the command line: an exit code of the promise, one error, no traceback, nothing written."""

from __future__ import annotations

import json
import os
import random
from itertools import pairwise
from pathlib import Path

import pytest

from tests.property.commands import command, folder_with, is_one_clean_refusal, run
from tests.unit.config.samples import TEXT


def garbage(size: int) -> bytes:
    return random.Random(0).randbytes(size)


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
    "binary": (b"\x7fELF\x02\x01\x01" + bytes(range(256)), "is not text in UTF-8"),
    "binary with a zero": (b"name: a\x00b\n", "is binary, not text"),
    "10 MB of garbage": (garbage(10_000_000), "is larger than 2 MB"),
    "10 MB of printable garbage": (bytes(range(32, 127)) * 110_000, "is larger than 2 MB"),
    "2 MB of garbage": (garbage(1_900_000), "is not text in UTF-8"),
    "2 MB of brackets": (b"[" * 1_900_000, ""),
    "2 MB of keys": (b"".join(b"k%d: 1\n" % number for number in range(190_000)), "too many keys"),
    "aliases that expand without end": (laughs(), ""),
    "duplicate keys": (TEXT.replace("  pp: 2", "  tp: 4").encode(), "key 'tp' is given twice"),
    "an unknown key": (TEXT.replace("micro_batch", "microbatch").encode(), "'microbatch_size'; did you mean 'micro_batch_size'?"),
    "a tag": (b"name: !!python/object/apply:os.system ['touch pwned']\n", "is not understood"),
    "30 000 unknown keys": ((TEXT + "".join(f"  kee{number}: 1\n" for number in range(30_000))).encode(), "unknown field 'kee0'"),
    "half a surrogate pair": (TEXT.replace("name: small", 'name: "\\ud800"').encode(), "holds half a surrogate pair"),
    "half a pair as a key": ((TEXT + '  "\\ud800": 1\n').encode(), "holds half a surrogate pair"),
    "a schedule of breadth without chunks, of one layer a stage": (
        TEXT.replace("pp: 2", "pp: 8\n  schedule: breadth_first").encode(), "breadth_first with 1 chunk per stage is gpipe",
    ),
    "a pipeline of 1e9 stages": (TEXT.replace("pp: 2", "pp: 1000000000").encode(), "at most 2000000"),
    "a pipeline of a million stages": (TEXT.replace("pp: 2", "pp: 1000000").encode(), "8 layers are too few"),
    "1e9 nodes below a leaf": (TEXT.replace("nodes: 2", "nodes: 2\n  fabric: {nodes_per_leaf: 1000000000}").encode(), "at most 2000000"),
    "1e9 metrics": (TEXT.replace("micro_", "loss_metrics: 1000000000\n  micro_").encode(), "at most 100"),
    "a leaf all of whose ports go up": (
        TEXT.replace("nodes: 2", "nodes: 2\n  fabric: {oversubscription: 1.0e-9}").encode(), "at least 0.1",
    ),
    "a bandwidth of 1e300": (TEXT.replace("nodes: 2", "nodes: 2\n  nics: {bandwidth: 1e300 B/s}").encode(), "1e300 B/s is out of range"),
    "a latency of 1e300": (TEXT.replace("nodes: 2", "nodes: 2\n  nics: {latency: 1e300 s}").encode(), "1e300 s is out of range"),
    "1e30 adapters": (TEXT.replace("nodes: 2", f"nodes: 2\n  nics: {{count: {10**30}}}").encode(), "at most 1024"),
    "sequences of 1e30 tokens": (TEXT.replace("micro_", f"seq_length: {10**30}\n  micro_").encode(), "at most 100000000"),
    "a slowdown of 1e300": (
        TEXT.replace("nodes: 2", "nodes: 2\n  stragglers: [{ranks: 0, slowdown: 1.0e+300}]").encode(), "at most 1000000",
    ),
    "experts in no layer": (
        TEXT.replace("  vocab", "  num_experts: 4\n  num_experts_per_tok: 2\n  decoder_sparse_step: 9\n  vocab").encode(),
        "none of the 8 layers",
    ),
}  # fmt: skip


LARGEST = ("2 MB of brackets", "2 MB of keys", "30 000 unknown keys")


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.slow] if kind in LARGEST else []) for kind in BAD_FILES])
def test_a_bad_file_is_refused_in_one_line_and_nothing_is_written(kind: str) -> None:
    raw, message = BAD_FILES[kind]

    outcome = run(raw)

    is_one_clean_refusal(outcome, left=["scenario.yaml"])
    assert outcome.err.startswith("error: scenario.yaml")
    assert message in outcome.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("calibrate", "--accelerator", "h100-sxm5-80g", "-o", "mine.yaml", "--gemm", "zero.csv"), "is a device, not a file"),
        (("run", "gpipe", "-s", "strategy.schedule={here}/zero.csv"), "is a device, not a file"),
        (("run", "zero.yaml"), "is a device, not a file"),
        (("run", "hf.yaml"), "is a device, not a file"),
        (("flows", "pipe.json"), "is a pipe, not a file"),
        (("plot", "pareto", "zero.csv"), "is a device, not a file"),
        (("compare", "x" * 5000, "gpipe"), "File name too long"),
        (("run", "gpipe", "-o", "\ud800"), "holds half a surrogate pair"),
        (("advise", "gpt2", "dgx-h100", "--nodes", str(10**30)), "at most 2000000"),
        (("plan", "gpt2", "dgx-h100", "--nodes", str(10**30)), "at most 2000000"),
    ],
)
def test_a_file_that_never_ends_and_a_number_beyond_all_are_refused_at_once(arguments: tuple[str, ...], message: str) -> None:
    with folder_with(None) as here:
        for name in ("zero.csv", "zero.yaml", "zero.json"):
            Path(name).symlink_to("/dev/zero")
        os.mkfifo("pipe.json")
        Path("hf.yaml").write_text(f"model: hf:zero.json\n{TEXT[TEXT.index('cluster:') :]}", encoding="utf-8")
        before = sorted(path.name for path in here.iterdir())
        outcome = command(*(word.replace("{here}", str(here)) for word in arguments))

    is_one_clean_refusal(outcome, left=before)
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
