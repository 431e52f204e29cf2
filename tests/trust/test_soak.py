"""The parts of `scripts/soak`: what differs, gets lost, grows or is left is seen."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from fuzzing import differential, interrupts, mutants
from fuzzing import soak as soak_command
from fuzzing.soak import FIRST_ROUNDS, Findings, children, differing_bits, lost_frames, soak


@pytest.mark.parametrize("module", (differential, interrupts, mutants, soak_command))
def test_help_says_that_a_file_is_written_over(
    module: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        module.main(["--help"])
    assert "to a file, over what is there" in " ".join(capsys.readouterr().out.split())


def test_bits_and_frames_that_are_wrong_count() -> None:
    rng = random.Random(3)
    one = rng.randbytes(50)
    other = bytearray(one)
    other[7] ^= 0b101
    other[49] ^= 0b1000_0000
    assert differing_bits(one, bytes(other)) == 3 and differing_bits(one, one) == 0
    assert differing_bits(one, one[:-2]) == 16
    assert lost_frames([0, 1, 2], 3) == lost_frames([0, 1, 2, 3], 3) == 0
    assert lost_frames([0, 2, 3], 3) == 2 and lost_frames([0], 3) == 2


@pytest.mark.parametrize(
    ("change", "good"),
    [({}, True), ({"lost_frames": 1}, False), ({"differing_bits": 1}, False),
     ({"left": ["process"]}, False), ({"rss_mib": [50.0, 90, 100, 101]}, True),
     ({"rss_mib": [50.0, 90, 100, 103]}, False)],
)  # fmt: skip
def test_findings(change: dict[str, object], good: bool) -> None:
    findings = Findings(rss_mib=[100.0] * FIRST_ROUNDS)
    for name, value in change.items():
        setattr(findings, name, value)
    assert findings.good == good


def test_rounds_with_kills_and_work_that_changes(tmp_path: Path) -> None:
    answers, kept = iter((b"\x00", b"\x01", b"\x03", b"\x02")), []

    def changes(folder: Path) -> bytes:
        answer = next(answers)
        if answer == b"\x02":  # stays open
            kept.append((tmp_path / "file").open("wb"))
        return answer

    def steady(folder: Path) -> bytes:
        return b"the same"

    rounds = soak(1e9, (changes, steady), 1)
    found = []
    for _ in range(FIRST_ROUNDS + 1):
        findings = next(rounds)
        found.append((findings.differing_bits, list(findings.left)))
    kept[0].close()
    opened = ["1 more descriptors than in the first rounds"]
    assert found == [(0, []), (1, []), (3, []), (4, opened)]
    assert findings.rounds == len(findings.rss_mib) == FIRST_ROUNDS + 1
    assert findings.killed and findings.frames > 60 and not findings.lost_frames


def test_processes_that_are_left_are_named() -> None:
    process = subprocess.Popen(["sleep", "60"])
    try:
        assert any("sleep 60" in one for one in children())
    finally:
        process.kill()
        process.wait()
    assert not any("sleep 60" in one for one in children())


def test_commands_of_processes_are_any_bytes() -> None:
    """Arguments need be no text."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", b"\x80\xff"])
    try:
        (said,) = (one for one in children() if "time.sleep(60)" in one)
        assert said.endswith(" \ufffd\ufffd")
    finally:
        process.kill()
        process.wait()
