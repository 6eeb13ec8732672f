"""Whatever is changed in a file of a framework, it is imported or refused with one clear error, and nothing is run or read beside it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.apps.importing.entries import ImportOptions
from clustersim.apps.importing.import_report import document, lines
from clustersim.apps.importing.importing import import_files
from clustersim.errors import ClustersimError

FILES: Final = [path for path in sorted((Path(__file__).parents[1] / "unit/apps/importing/files").iterdir()) if path.suffix != ".md"]
RAW: Final = {path.name: path.read_bytes() for path in FILES}
SPLICED: Final = (
    *(b"0", b"-1", b"1e400", b"nan", b"99999999999999999999999", b"null", b"[]", b"{}", b'"', b"'", b"${a}", b"${.x}", b"\\ud800", b"\xff"),
    *(
        b"$(touch pwned)",
        b"`touch pwned`",
        b"eval $X\n",
        b"case x in\n",
        b"<<E\n",
        b"if ",
        b"(",
        b"/etc/passwd",
        b"hf:/etc/passwd",
        b"!include /etc/passwd",
    ),
    *(b"$((2**99))", b"([0]*3+[1]*999999)", b"Et*9999999|(tt|)*99999999L", b"!!python/object:os.system", b"&a [*a]", b"\x00", b"--", b"="),
)


OURS: Final = (str(Path(__file__).parents[2]), sys.prefix, sys.base_prefix)
ACTS: Final = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "socket.connect", "os.remove", "os.mkdir")
named: list[str] = []
"""File that an import may read; empty while none runs."""
done: list[str] = []
"""Acts of imports beyond that, and beyond our own files."""


def watch(event: str, arguments: tuple[object, ...]) -> None:
    path = arguments[0] if arguments else None
    if named and event in ACTS:
        done.append(f"{event} {arguments}")
    elif named and event == "open" and isinstance(path, str) and not str(Path(path).absolute()).startswith((*OURS, *named)):
        done.append(f"open {path}")


sys.addaudithook(watch)


@st.composite
def changed(draw: st.DrawFn) -> bytes:
    """Return a sample after a few changes."""
    raw = RAW[draw(st.sampled_from(sorted(RAW)))]
    for _ in range(draw(st.integers(1, 5))):
        at = draw(st.integers(0, len(raw)))
        raw = raw[:at] + draw(st.sampled_from((*SPLICED, b""))) + raw[at + draw(st.sampled_from((0, 0, 1, 5, 80))) :]
    return raw


@given(changed(), st.sampled_from((None, "llama3-8b")))
@settings(max_examples=75, deadline=None)
def test_a_changed_file_is_imported_or_refused(raw: bytes, model: str | None) -> None:
    asked = ImportOptions(cluster="dgx-h100", nodes=4, model=model, overrides=("training.seq_length=2048",))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "job"
        path.write_bytes(raw)
        named[:] = [str(path)]
        try:
            found = import_files([str(path)], asked)
        except ClustersimError:
            return
        finally:
            named.clear()
            acts = [*done]
            done.clear()
            assert acts == []
        assert json.dumps(document(found), allow_nan=False)
        assert "\n".join(lines(found)).encode()
