"""Ctrl-C ends commands that Python cannot reach, and commands whose libraries misread it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tvm_npu.cli.interrupts import Interrupts

SCRIPT = """
import hashlib, sys, tempfile
from tvm_npu.cli import entry, main

class Module:
    DESCRIPTION = EXAMPLES = ""
    def add_arguments(parser): pass
    def run(args, terminal):
        folder = tempfile.TemporaryDirectory()
        print("ready", flush=True)
        {work}
        return 0

entry.command_module = lambda name: Module
sys.argv = ["tvm-npu", "machines"]
sys.exit(main())
"""
DEAF = 'hashlib.pbkdf2_hmac("sha256", b"", b"", (1 << 31) - 1)'
MISREADING = """
        try:
            while True: pass
        except KeyboardInterrupt:
            raise RuntimeError("TVMError: no attributed span") from None"""
SWALLOWING = """
        try:
            while True: pass
        except BaseException:
            pass"""


def used_ticks(process: subprocess.Popen[str]) -> int:
    """Of CPU time."""
    words = Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2].split()
    return int(words[11]) + int(words[12])


def wait_for_work(process: subprocess.Popen[str]) -> None:
    """What comes behind the word "ready" takes CPU time."""
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    before = used_ticks(process)
    while used_ticks(process) < before + 5 and process.poll() is None:
        time.sleep(0.01)


@pytest.mark.parametrize("work", [DEAF, MISREADING, SWALLOWING], ids=["deaf", "misread", "lost"])
def test_an_interrupt_ends_what_does_not_hear_it(work: str, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(work=work)], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
        env={"TMPDIR": str(tmp_path), "PATH": ""},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    wait_for_work(process)
    assert list(tmp_path.iterdir())
    sent = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, said) == (130, "tvm-npu machines: interrupted\n")
    assert list(tmp_path.iterdir()) == []
    assert time.monotonic() - sent < 10  # one second, where nothing else runs


LEAVING = """
        import ctypes, threading, time
        libc = ctypes.CDLL(None)
        getattr(libc, "__cxa_atexit")(libc.pause, None, None)  # a destructor that never ends
        threading.Thread(target=lambda: (time.sleep(0.2), print("joined"))).start()"""


def test_a_command_ends_whatever_its_libraries_do_at_the_end(tmp_path: Path) -> None:
    """TVM 0.19 waited for its threads, for minutes on a busy machine; Ctrl-C was ignored there."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(work=LEAVING)], capture_output=True, text=True,
        cwd=Path(__file__).parents[2], env={"TMPDIR": str(tmp_path), "PATH": ""},
        timeout=PATIENCE_S,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "ready\njoined\n", "")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_ends_the_process_where_tvm_would_lose_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What ctypes gives TVM then is any number: 0 makes it go on with a result that is none."""
    tvm = pytest.importorskip("tvm", reason="neither the relay nor the relax extra is installed")
    ended = []
    monkeypatch.setattr(Interrupts, "_end", lambda self: ended.append(True))

    def interrupt(*_: object) -> None:
        with pytest.raises(KeyboardInterrupt):
            Interrupts(to_the_end=False)._interrupt(signal.SIGINT, sys._getframe())

    interrupt()
    assert not ended
    tvm.runtime.convert(interrupt)()
    assert bool(ended) == (find_spec("tvm.relay") is not None)
