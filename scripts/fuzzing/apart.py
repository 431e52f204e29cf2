"""Outcomes found in a child process with limits, for cases that may hang or take all memory."""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import sys

from fuzzing.targets import Target, outcome
from fuzzing.worker import MEMORY_BYTES


def outcome_apart(target: Target, data: bytes, cpu_seconds: float) -> str:
    """As `outcome`; ``bad crash`` when the child ended, ``bad hang`` after its time."""
    sys.stdout.flush()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        os.write(write, outcome(target, data).encode()[:4096])
        os._exit(0)
    os.close(write)
    with open(read, "rb") as answer:
        found = answer.read().decode("utf-8", "replace")
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        hang = os.WTERMSIG(status) == signal.SIGPROF
        return "bad hang" if hang else f"bad crash, signal {os.WTERMSIG(status)}"
    return found or f"bad crash, exit code {os.WEXITSTATUS(status)}"
