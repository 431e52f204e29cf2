"""Cached properties keep no child of a fork waiting."""

from __future__ import annotations

import ast
import os
import signal
import threading
from pathlib import Path

import pytest

from tvm_npu.sim.lazy import cached_property

ROOT = Path(__file__).parents[2]
LEFT = {"tvm_npu/relax/door.py", "sim/lazy.py"}


class Slow:
    def __init__(self, begun: threading.Event, over: threading.Event) -> None:
        self.begun, self.over, self.count = begun, over, 0

    @cached_property
    def value(self) -> int:
        self.begun.set()
        self.over.wait()
        self.count += 1
        return 7


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_does_not_wait_for_a_thread_that_it_does_not_have() -> None:
    begun, over, free = threading.Event(), threading.Event(), threading.Event()
    free.set()
    slow, other = Slow(begun, over), Slow(threading.Event(), free)
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    begun.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        os._exit(0 if other.value == 7 else 1)
    status = os.waitpid(child, 0)[1]
    over.set()
    thread.join()
    assert status == 0
    assert (slow.value, slow.count) == (7, 1)


def test_all_cached_properties_are_these() -> None:
    found = set()
    for folder in ("sim", "codegen", "runtime", "tvm_npu"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.ImportFrom) and node.module == "functools":
                    if "cached_property" in {name.name for name in node.names}:
                        found.add(str(path.relative_to(ROOT)))
    assert found <= LEFT
