"""Tutorials do what they say: every block runs, in order and in a folder of its own, and prints
what the page shows behind it (``...`` stands for anything)."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tvm.relay", exc_type=ImportError)
from tvm_npu.cli import main  # noqa: E402
from tvm_npu.runtime import clear_sessions  # noqa: E402

pytestmark = [
    pytest.mark.relay,
    pytest.mark.filterwarnings("ignore"),
]
ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
BLOCK = re.compile(r"^```(python|sh|toml|text)(?: title=\"([\w./-]+)\")?\n(.*?)^```$", re.M | re.S)
"""Blocks of other kinds (``console``, ``py``) are not run."""


def printed(kind: str, text: str, names: dict[str, Any]) -> str:
    """What a block of Python, or the commands of a block of shell, write to both streams."""
    written = io.StringIO()
    with contextlib.redirect_stdout(written), contextlib.redirect_stderr(written):
        if kind == "python":
            exec(compile(text, "block", "exec"), names)
            return written.getvalue()
        for line in text.replace("\\\n", " ").splitlines():
            program, *arguments = shlex.split(line, comments=True)
            assert program == "tvm-npu", line
            assert main(arguments) == 0, f"{line}\n{written.getvalue()}"
    return written.getvalue()


def stripped(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines()) + "\n"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clear_sessions()  # of other tests in this process
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "tvm_npu").symlink_to(ROOT / "tvm_npu")
    names: dict[str, Any] = {"__name__": "__main__"}
    output, shown = "", 0
    blocks = BLOCK.findall(page.read_text("utf-8"))
    for kind, title, text in blocks:
        if kind == "toml":
            Path(title).write_text(text)
        elif kind == "text":
            shown += 1
            same = doctest.OutputChecker().check_output(
                stripped(text), stripped(output), doctest.ELLIPSIS
            )
            assert same, f"{page.name} shows\n{text}\nand this was printed:\n{output}"
        else:
            output = printed(kind, text, names)
    assert shown, f"{page.name} shows nothing that it prints"
