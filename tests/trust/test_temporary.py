"""Temporary folders do not outlive their process, whatever ends it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tvm_npu.door import program_section
from tvm_npu.temporary import temporary_folder

ROOT = Path(__file__).parents[2]
PROGRAMS = {
    "a folder": """
from tvm_npu.temporary import TemporaryFolder
folder = TemporaryFolder("tvm-npu-test-")
""",
    "with a fork that lives on": """
import os
from tvm_npu.temporary import TemporaryFolder
folder = TemporaryFolder("tvm-npu-test-")
if os.fork() == 0:
    time.sleep(2)
    os._exit(0)
""",
    "a program of a library": """
from tvm_npu.door.program_section import section_code, written
section_code("symbol", written([bytes(100)]))
""",
}
END = "print('ready', flush=True)\ntime.sleep(60)\n"


def gone(folder: Path) -> bool:
    for _ in range(100):
        if not list(folder.iterdir()):
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_killed_process_leaves_no_folder(tmp_path: Path, name: str) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", "import time\n" + PROGRAMS[name] + END],
        cwd=ROOT, env={**os.environ, "TMPDIR": str(tmp_path)}, stdout=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    assert program.stdout is not None and program.stdout.readline() == b"ready\n"
    assert len(list(tmp_path.iterdir())) == 1
    os.killpg(program.pid, signal.SIGKILL) if name == "a folder" else program.kill()
    program.wait()
    assert gone(tmp_path)


def test_closing_waits_for_nobody_who_holds_the_pipe() -> None:
    begun = time.monotonic()
    with temporary_folder("tvm-npu-test-") as folder:
        child = os.fork()
        if child == 0:
            time.sleep(20)
            os._exit(0)
        (folder / "file").write_text("x")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert not folder.exists() and time.monotonic() - begun < 10


def test_programs_go_on_where_their_folder_was_tidied_away() -> None:
    program_section._folder.cache_clear()  # programs of other tests stay
    first = program_section.written([b"one"])
    assert first.path.read_bytes() == b"one"
    shutil.rmtree(first.path.parent)
    last = program_section.written([b"two"])
    assert last.path.read_bytes() == b"two" and last.path.parent != first.path.parent
