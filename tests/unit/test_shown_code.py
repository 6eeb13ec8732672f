"""All code and all commands of README and documentation run, page by page, in the order in which a reader types them.

What a page shows is found by itself. What cannot run here, or would take too long, stands in one of the tables below with the reason.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pytest

from clustersim.apps.study.claims import question_titles, read_question
from clustersim.apps.validate.sources import read_source
from clustersim.cli.app import COMMANDS, main
from clustersim.documents.text import parse_document, read_document
from clustersim.hardware.prices import read_price_list
from tests.shown import KINDS, PAGES, ROOT, Block, blocks_of, commands_of

OUT_OF_REACH: Final = (
    "clustersim plan llama3-70b --tokens 15T --within '60 days' --budget '12 MUSD' --power '5 MW' --accelerators dgx-h100,hgx-h200"
)
BUY: Final = (
    "clustersim buy llama3-70b --tokens 15T --option '64 dgx-h100' --option '48 hgx-h200' --option '32 dgx-b200' --nic 200Gbit/s,400Gbit/s"
)
ENDS: Final[Mapping[str, tuple[int, str]]] = MappingProxyType(
    {
        OUT_OF_REACH: (1, "no cluster of these reaches the goal, and the page says so"),
        "clustersim run llama3-70b-h100-512 --set strategy.tp=6": (2, "shows a mistake"),
    }
)
"""Commands that end otherwise than with 0, and why they are shown."""
PARSED_ONLY: Final[Mapping[str, str]] = MappingProxyType(
    {
        **{f"clustersim study {name}": "tests/golden/test_study_pages.py runs it" for name in question_titles()},
        "clustersim validate horovod-2017 tensorflow-ps-2017": "tests/published runs it",
        "clustersim calibrate --accelerator h100-sxm5-80g --node dgx-h100 --measured measured -o mine.yaml": "needs a GPU",
        "clustersim what-if traces/ --case fast:communication=0.5 --case hidden:overlap=full": "test_trace_records.py reads traces",
        **dict.fromkeys(("clustersim ui", "clustersim ui starter --port 8123"), "serves until Ctrl-C; tests/unit/apps/ui drives the page"),
        "clustersim sweep my-study.yaml --executor dask:tcp://scheduler:8786": "asks a machine that is not there",
        "clustersim plot validation megatron-sc21 korthikanti-2022 zero-bubble fms-fsdp": "seven seconds; make docs draws it",
    }
)
"""Commands whose words and options are checked, and nothing else."""
NOT_RUN: Final[Mapping[str, str]] = MappingProxyType(
    {
        "make demo": "builds an environment",
        "make test": "runs these tests",
        "source .venv/bin/activate": "changes the shell",
        "pip install 'clustersim[ui]'": "asks the package index",
        "from hta.trace_analysis import TraceAnalysis": "a tool of others, in an environment of its own",
        "with torch.profiler.profile(": "needs PyTorch and a GPU",
    }
)
"""Commands of other programs, and blocks of Python that begin so."""
ADDED: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "clustersim run ": ("--no-plots", "pictures are drawn by tests of their own"),
        "clustersim sweep": ("--workers 1", "a process takes longer to start than these points take"),
        "clustersim validate": ("--jobs 1", "a process takes longer to start than these rows take"),
    }
)
"""Options added to all commands with this beginning, unless they are given."""
FEW: Final = "--only tp=8 --only schedule=1f1b --only zero_stage=1 --only recompute=none --most-replays 1"
LIGHTER: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        **{
            f"clustersim validate{options}": ("korthikanti-2022", "a minute for all sources; tests/published runs every row")
            for options in ("", " --quality A", " --json", " --plot all.png", " --jobs 4", " --fail-over '8 %'")
        },
        "clustersim plan llama3-70b dgx-h100 --nodes 64 -s training.global_batch_size=1024": (f"{FEW} --only pp=4", "half a minute"),
        "clustersim plan my-scenario.yaml": (FEW, "eight seconds"),
        OUT_OF_REACH: (
            "--only tp=8 --only pp=4 --only cp=1 --only schedule=1f1b --only micro_batch_size=1 --only zero_stage=1 --only recompute=none"
            " --only placement=tp-cp-ep-dp-pp --most-replays 1",
            "two minutes",
        ),
        "clustersim sweep llama3-70b-layouts": ("--dry-run", "72 points"),
        "clustersim sweep my-study.yaml --where 'memory_fraction <= 0.9' --format parquet": ("--dry-run", "72 points"),
        "clustersim run deepseek-v3-2048-h800": ("--dry-run", "five seconds"),
        "clustersim run llama3-405b-16k-cost -s 'reliability.component_mtbf={}' -s 'reliability.node_mtbf=4 years'": ("--dry-run", "10 s"),
        "clustersim plan mixtral-8x22b dgx-h100 --nodes 16": (f"{FEW} --only pp=4 --only ep=1", "a minute"),
        "clustersim plan llama3-8b dgx-h100 --tokens 15T --within '90 days'": (FEW, "a minute"),
        "clustersim plan hf:config.json dgx-a100-40g --nodes 2": ("--only tp=1 --only pp=1 --most-replays 1", "ten seconds"),
        BUY: ("--only tp=8 --only pp=1 --only cp=1 --only recompute=none --only zero_stage=3 --only micro_batch_size=1", "two minutes"),
    }
)
"""Commands that take long, and what is added so that less is done."""
GIVEN: Final[Mapping[str, Mapping[str, str | None]]] = MappingProxyType(
    {
        "README.md": {
            "config.json": "tests/unit/hf-config.json",
            "all_reduce.txt": "tests/unit/apps/calibrate/all_reduce-2x8-a100.txt",
            "products.csv": "tests/unit/apps/calibrate/products-a100.csv",
            "job.sh": "tests/unit/apps/importing/files/megatron-llama3-8b.args.txt",
        },
        "docs/how-to/advise.md": {"my-scenario.yaml": None},
        "docs/how-to/calibrate.md": {"all_reduce-2x8-a100.txt": "tests/unit/apps/calibrate/all_reduce-2x8-a100.txt"},
        "docs/how-to/compare-runs.md": {
            **dict.fromkeys(("baseline.yaml", "candidate.yaml", "my-layout.yaml", "another.yaml")),
            "megatron.log": "tests/unit/apps/importing/files/megatron-v100.log",
        },
        "docs/how-to/cost.md": dict.fromkeys(("rented.yaml", "bought.yaml")),
        "docs/how-to/explain.md": {"my-scenario.yaml": None},
        "docs/how-to/import.md": {
            "llama3_70b.toml": "tests/unit/apps/importing/files/torchtitan-llama3-70b.toml",
            "7B.yml": "tests/unit/apps/importing/files/neox-llama2-7b.yml",
            "train_config.yml": "tests/unit/apps/importing/files/neox-train.yml",
            "megatron.log": "tests/unit/apps/importing/files/megatron-v100.log",
            "serve.sh": "tests/unit/apps/importing/files/vllm-bench.sh",
            "deploy.yaml": "tests/unit/apps/importing/files/kubernetes-vllm.yaml",
            "topo.xml": "tests/unit/apps/importing/files/nccl-p4d.xml",
            "job.sh": "tests/unit/apps/importing/files/megatron-llama3-8b.args.txt",
            "ibnetdiscover.out": "tests/unit/apps/importing/files/ibnetdiscover.out",
        },
        "docs/how-to/own-model.md": {"path/to/config.json": "tests/unit/hf-config.json"},
        "docs/how-to/plan.md": {"my-scenario.yaml": None},
        "docs/how-to/plots.md": {"sweep.csv": "docs/reference/gallery-sweep.csv"},
        "docs/how-to/traces.md": {
            "rank0.json.gz": "tests/unit/apps/compare/files/rank0.json.gz",
            "rank1.json.gz": "tests/unit/apps/compare/files/rank1.json.gz",
            "trace-ST.parquet": "tests/published/stragglers/trace-ST.parquet",
        },
        "docs/how-to/sweep.md": {"my-study.yaml": "scenarios/studies/llama3-70b-layouts.yaml"},
        "docs/reference/cli.md": {"scenario.yaml": None},
        "docs/reference/gallery.md": {"gallery-sweep.csv": "docs/reference/gallery-sweep.csv"},
    }
)
"""Files that a page takes for granted, and what stands for them: a file of this checkout, or what ``clustersim init`` writes."""
FILES: Final[Mapping[str, Callable[[Path], object] | str]] = MappingProxyType(
    {
        "name: doubling": read_question,
        "name: my-contract": read_price_list,
        "source_id: my-timings": read_source,
        "steps: [": "names of kernels; tests/unit/apps/compare/test_traces.py reads such",
        "title: My adapter": "a profile, which ships with the package; tests/unit/hardware reads all of them",
        'sources:\n  - title: "nccl': "shows the form of what calibrate has written",
        "table:\n  file: my-timings.csv": "a part of a published source; tests/unit/apps/validate/test_sources.py reads such",
        "hidden: {strategy.recompute": "a part of a published source; tests/unit/apps/validate/test_sources.py reads such",
    }
)
"""YAML that is no part of a scenario, by words of it: what reads such a file, or why none does."""
BASE: Final = """
version: 1
name: base
model: llama3-8b
cluster: {node: dgx-h100, nodes: 64}
training: {global_batch_size: 1024, seq_length: 8192, precision: fp16, tokens: 15T}
strategy: {zero_stage: 3}
cost: {gpu_hour: 2.50 USD, power_price: 0.08 USD/kWh, carbon_intensity: 0.38 kg/kWh}
reliability: {node_mtbf: 1 year, restart: 8 min, checkpoint: {bandwidth: 40 GB/s}}
"""
"""Scenario into which shown parts are put."""
TABLES: Final = MappingProxyType({"ENDS": ENDS, "PARSED_ONLY": PARSED_ONLY, "NOT_RUN": NOT_RUN, "LIGHTER": LIGHTER, "ADDED": ADDED})

SHOWN: Final = MappingProxyType({path.relative_to(ROOT).as_posix(): blocks_of(path) for path in PAGES})
CODE: Final = [page for page, blocks in SHOWN.items() if any(block.kind in {"commands", "python", "yaml"} for block in blocks)]
INLINE: Final = re.compile(r"`clustersim ([a-z][^`]+)`")
PLACEHOLDER: Final = re.compile(r"\b[A-Z]{4,}\b|\.\.\.|\|")


def beginning(table: Mapping[str, object], text: str) -> str | None:
    """Return the entry of a table with which a text begins."""
    return next((known for known in table if text.startswith(known)), None)


def words_to_run(command: str) -> list[str]:
    """Return the words of a command after the program, with what makes it lighter."""
    words = shlex.split(os.path.expandvars(command))
    for known, (options, _) in ADDED.items():
        if command.startswith(known) and shlex.split(options)[0] not in words:
            words += shlex.split(options)
    return [*words[1:], *shlex.split(LIGHTER[command][0] if command in LIGHTER else "")]


def parse(words: list[str]) -> None:
    """Check the name of a command, its options and how many words it takes; raises a usage error."""
    name, *rest = words
    COMMANDS[name].load(name).make_context(name, rest)


def read_yaml(block: Block) -> None:
    """Lay out a scenario, or a part of one within BASE; read any other file by what reads it."""
    reader = next((reader for words, reader in FILES.items() if words in block.text), None)
    file = Path("shown.yaml")
    file.write_text(block.text, encoding="utf-8")
    if isinstance(reader, str):
        return
    if reader is not None:
        named = re.match(r"\w+: ([\w-]+)", block.text)
        assert named is not None
        reader(file.rename(f"{named[1]}.yaml"))
        return
    part = read_document(file).data
    assert isinstance(part, dict)
    if "version" not in part:
        base = parse_document(BASE, "base").data
        assert isinstance(base, dict)
        file.write_text(json.dumps(base | part), encoding="utf-8")
    assert main(["run", str(file), "--dry-run", "--quiet"]) == 0, str(block)


def run_command(block: Block, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Run a command as a shell would; an end that is not expected is an error that says what was printed."""
    if command in NOT_RUN:
        return
    assert command.startswith("clustersim "), f"{block}: name `{command}` in NOT_RUN, with the reason, or write its block as text"
    if command in PARSED_ONLY:
        parse(shlex.split(command)[1:])
        return
    words = words_to_run(command)
    redirected = None
    if ">" in words:
        at = words.index(">")
        redirected = Path(words[at + 1])
        del words[at : at + 2]
    code = main(words)
    printed = capsys.readouterr()
    assert code == ENDS.get(command, (0, ""))[0], f"{block}: {command} ends with {code}:\n{printed.out[-2000:]}{printed.err}"
    if redirected is not None:
        redirected.write_text(printed.out, encoding="utf-8")


def lay_out_what_is_given(page: str) -> None:
    """Write the files that a page takes for granted into this folder."""
    for name, source in GIVEN.get(page, {}).items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        if source is None:
            assert main(["init", Path(name).stem]) == 0
        else:
            shutil.copyfile(ROOT / source, name)


@pytest.mark.slow
@pytest.mark.parametrize("page", CODE)
def test_code_and_commands_of_a_page_run_in_its_order(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    lay_out_what_is_given(page)
    names: dict[str, object] = {}

    for block in SHOWN[page]:
        if block.kind == "python" and beginning(NOT_RUN, block.text) is None:
            exec(compile(block.text, str(block), "exec"), names)
        elif block.kind == "yaml":
            read_yaml(block)
        elif block.kind == "commands":
            for command in commands_of(block):
                run_command(block, command, capsys)


def test_every_block_is_of_a_kind_that_is_known() -> None:
    kinds = {block.kind: str(block) for blocks in SHOWN.values() for block in blocks if not block.kind.startswith("{")}

    assert set(kinds) - set(KINDS.values()) == set(), kinds


def test_commands_are_not_hidden_in_directives() -> None:
    hidden = [
        str(block) for blocks in SHOWN.values() for block in blocks if re.match(r"\{(code|code-block|code-cell|sourcecode)\}", block.kind)
    ]

    assert hidden == []


@pytest.mark.parametrize("name", TABLES)
def test_no_exception_is_named_that_no_page_needs(name: str) -> None:
    shown = [command for blocks in SHOWN.values() for block in blocks if block.kind == "commands" for command in commands_of(block)]
    begun = [*shown, *(block.text for blocks in SHOWN.values() for block in blocks if block.kind == "python")] if name != "ADDED" else shown

    needed = {
        known for known in TABLES[name] if any(each.startswith(known) if name in {"NOT_RUN", "ADDED"} else each == known for each in begun)
    }

    assert set(TABLES[name]) - needed == set()


@pytest.mark.parametrize("page", GIVEN)
def test_no_file_is_given_that_a_page_does_not_name(page: str) -> None:
    code = "".join(block.text for block in SHOWN[page] if block.kind in {"commands", "python", "yaml"})

    assert [name for name in GIVEN[page] if name not in code] == []


def test_no_reader_is_named_that_no_page_needs() -> None:
    shown = "".join(block.text for blocks in SHOWN.values() for block in blocks if block.kind == "yaml")

    assert [words for words in FILES if words not in shown] == []


@pytest.mark.parametrize(
    ("page", "command"),
    [
        (path.name, command)
        for path in PAGES
        for command in dict.fromkeys(INLINE.findall(path.read_text(encoding="utf-8")))
        if not PLACEHOLDER.search(command) and not command.split()[-1].startswith("-")
    ],
)
def test_commands_within_sentences_are_well_formed(page: str, command: str) -> None:
    words = shlex.split(command)

    if words[0] == "show":
        assert main(words) == 0
    elif len(words) > 1:
        parse(words)
    else:
        assert words[0] in COMMANDS
