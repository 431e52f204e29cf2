"""scripts/typecheck: whose cache mypy gets; what stands in its place writes down what it finds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

SCRIPTS = Path(__file__).parents[1] / "scripts"
MYPY = """#!/bin/sh
[ "$1" = - ] && exec "$REAL" -
cache=$4
echo "begin $(ls "$cache" | grep -c half)" >>log
[ -e "$cache/tree/tvm_npu/sim/one.py" ] || echo "no tree" >>log
sleep "${SLOW:-0}"
touch "$cache/half"
[ -z "$DIES" ] || kill -9 $$
echo end >>log
echo "$cache/tree/tvm_npu/sim/one.py:1: error: wrong"
echo "$cache/tree/studies/two.py:2: error: wrong"
exit 1
"""
LINES = "sim/one.py:1: error: wrong\nstudies/two.py:2: error: wrong\n"


class Checkout:
    """A small one, with a Python whose mypy is ours."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("tvm_npu", "codegen", "runtime", "sim", "scripts/studies", "scripts/fuzzing"):
            (folder / name).mkdir(parents=True)
        (folder / "sim" / "one.py").touch()
        (folder / "tvm_npu" / "cli").mkdir()
        for name in ("typecheck", "environment.sh"):
            shutil.copy(SCRIPTS / name, folder / "scripts")
        self.python = folder / "python"
        self.python.write_text(MYPY)
        self.python.chmod(0o755)

    def start(self, **variables: str) -> subprocess.Popen[str]:
        given = {"PYTHON": str(self.python), "REAL": sys.executable, **variables}
        return subprocess.Popen(
            [self.folder / "scripts" / "typecheck"], stdout=subprocess.PIPE, text=True,
            stderr=subprocess.DEVNULL, env={**os.environ, **given},
        )  # fmt: skip

    def run(self, **variables: str) -> tuple[int, str]:
        running = self.start(**variables)
        said, _ = running.communicate(timeout=PATIENCE_S)
        return running.returncode, said

    def log(self) -> Iterator[str]:
        """Lines since it was last asked for."""
        path = self.folder / "log"
        yield from path.read_text().splitlines()
        path.unlink()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_what_a_run_kept_is_there_for_the_next(checkout: Checkout) -> None:
    assert checkout.run() == (1, LINES) == checkout.run()
    assert list(checkout.log()) == ["begin 0", "end", "begin 1", "end"]


def test_what_a_run_left_that_was_killed_is_dropped(checkout: Checkout) -> None:
    assert checkout.run(DIES="yes")[0] == 128 + 9
    assert checkout.run() == (1, LINES)
    assert list(checkout.log()) == ["begin 0", "begin 0", "end"]


def test_one_run_at_a_time(checkout: Checkout) -> None:
    pytest.importorskip("fcntl")
    if shutil.which("flock") is None:
        pytest.skip("there is no flock")
    running = [checkout.start(SLOW="0.5") for _ in range(2)]
    assert [one.communicate(timeout=PATIENCE_S)[0] for one in running] == [LINES] * 2
    assert list(checkout.log()) == ["begin 0", "end", "begin 1", "end"]


def test_other_packages_have_another_cache(checkout: Checkout, tmp_path: Path) -> None:
    checkout.run()
    package = tmp_path / "more" / "something-1.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: something\nVersion: 1.0\n")
    for _ in range(2):
        checkout.run(PYTHONPATH=str(tmp_path / "more"))
    assert list(checkout.log()) == ["begin 0", "end", "begin 0", "end", "begin 1", "end"]
    kept = [path for path in (tmp_path / ".mypy_cache").iterdir() if path.is_dir()]
    assert len(kept) == 1, "the old one is gone"
