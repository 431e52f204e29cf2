"""Forged programs end in a trap that says why, in a process that survives them."""

from __future__ import annotations

import subprocess
import sys

from tests.trust.forged import collected

TIME_LIMIT = 120


def test_forged_programs_trap() -> None:
    command = [sys.executable, "-m", "tests.trust.forged"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT)
    outcomes = collected(done.stdout)
    assert done.returncode == 0, f"{list(outcomes)[-1]}: {done.returncode} {done.stderr}"
    assert len(outcomes) > 10
    wrong = {name: pair for name, pair in outcomes.items() if pair[0] != pair[1]}
    assert not wrong
