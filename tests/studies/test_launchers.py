"""The launchers: what they install, what they run, and that it starts in any folder."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from studies.harness.command import make_parser

ROOT = Path(__file__).parents[2]
LAUNCHERS = sorted(
    path.name
    for path in (ROOT / "scripts").iterdir()
    if path.name.startswith(("bench_", "reproduce_", "conformance"))
)
EXTRAS = {"bench_learned": "relay learn", "conformance": "relay conformance",
          "bench_vs_tvm": "relay compare", "bench_int8": "relay conformance",
          "bench_sweep": "relay sweep dask", "bench_report": "relay report"}  # fmt: skip


def folder_of(launcher: str) -> str:
    text = (ROOT / "scripts" / launcher).read_text()
    (found,) = re.findall(r'^study (\w+) "[\w ]+" "\$@"$', text, re.M)
    return str(found)


def test_there_is_a_launcher_for_every_study() -> None:
    folders = {path.parent.name for path in (ROOT / "scripts" / "studies").glob("*/study.py")}
    assert {folder_of(launcher) for launcher in LAUNCHERS} == folders - {"harness"}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_help(launcher: str) -> None:
    pytest.importorskip("onnx", reason="the relay extra is not installed")
    study = importlib.import_module(f"studies.{folder_of(launcher)}.study").STUDY
    assert study.name == launcher
    text = make_parser(study).format_help()
    assert "--json FILE" in text and "--restart" in text and "exit codes" in text
    assert ("--plot FILE" in text) == study.draws


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """A copy whose environment installs nothing, and whose Python shows its arguments."""
    copy = tmp_path / "copy of it" / "scripts"
    copy.mkdir(parents=True)
    for name in (*LAUNCHERS, "environment.sh", "study.py"):
        shutil.copy(ROOT / "scripts" / name, copy / name)
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nfor one in "$@"; do echo "$one"; done\n')
    python.chmod(0o755)
    with (copy / "environment.sh").open("a") as file:
        file.write('\nensure_environment() { echo "extras: $*"; }\n')
        file.write(f"VENV_PYTHON={python}\n")
    return copy


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize(
    ("arguments", "plots"),
    [
        (["--models", "a b", "--json", "plot"], False),
        (["--planners", "x"], False),
        (["--json", "x", "--plot", "x y.png"], True),
        (["--plot=x.png"], True),
        (["--plo", "x.png"], True),
    ],
)
def test_extras_and_arguments(
    scripts: Path, launcher: str, arguments: list[str], plots: bool
) -> None:
    done = subprocess.run(
        [scripts / launcher, *arguments], cwd="/", capture_output=True, text=True, check=True
    )
    extras = EXTRAS.get(launcher, "relay") + (" plot" if plots else "")
    assert done.stdout.splitlines() == [
        f"extras: {extras}", "-W", "ignore", str(scripts / "study.py"), folder_of(launcher),
        *arguments,
    ]  # fmt: skip


def test_it_starts_in_any_folder(tmp_path: Path) -> None:
    """Also where other things are called as the studies and the product are."""
    for name in ("studies", "tvm_npu", "harness"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('not this one')")
    command = [sys.executable, str(ROOT / "scripts" / "study.py"), "eplanner", "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "reproduce_eplanner" in done.stdout and "--setups" in done.stdout
