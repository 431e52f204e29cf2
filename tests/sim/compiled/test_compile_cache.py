"""The cache on disk of compiled functions sees every change, and no leftover can hurt."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[3]
FILES = {
    "numbers.py": "SCALE = 10\nTABLE = (1, 2, 3)\n",
    "kinds.py": (
        "from enum import IntEnum\n"
        "from typing import NamedTuple\n"
        "class Mode(IntEnum):\n    SUM = 1\n    LAST = 2\n"
        "class Task(NamedTuple):\n    first: int\n    second: int\n"
    ),
    "small.py": (
        "from tvm_npu.sim.compiled import device\n"
        "from pkg import numbers\n"
        "@device\ndef scaled(x):\n    return x * numbers.SCALE + numbers.TABLE[2]\n"
    ),
    "middle.py": (
        "from tvm_npu.sim.compiled import device\n"
        "from pkg.small import scaled\n"
        "from pkg.kinds import Mode\n"
        "MODE = int(Mode.LAST)\n"
        "@device\ndef both(task):\n"
        "    return scaled(task.first) + 100 * task.second + 1000 * MODE\n"
    ),
    "kernel.py": (
        "from tvm_npu.sim.compiled import entry\n"
        "from pkg.middle import both\n"
        "@entry\ndef run(task):\n    return both(task)\n"
    ),
}
PROGRAM = (
    "import resource\n"
    "from pkg.kernel import run\n"
    "from pkg.kinds import Task\n"
    "if LARGEST_FILE is not None:\n"
    "    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))\n"
    "print(run(Task(1, 2)), sum(run.stats.cache_hits.values()))\n"
)


class Package:
    """A package with compiled code over five files, and its cache."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "pkg").mkdir()
        (folder / "pkg" / "__init__.py").write_text("")
        for name, text in FILES.items():
            (folder / "pkg" / name).write_text(text)

    def change(self, name: str, old: str, new: str) -> None:
        path = self.folder / "pkg" / name
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    def run(self) -> tuple[int, bool]:
        """(what the compiled function returns, whether it came from the cache), in a process."""
        value, hits = self.started().stdout.split()
        return int(value), hits == "1"

    def started(
        self, largest_file: int | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        paths = os.pathsep.join((str(self.folder), str(ROOT)))
        environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
        environment.pop("NUMBA_CACHE_DIR", None)
        environment |= variables
        result = subprocess.run(
            [sys.executable, "-c", f"LARGEST_FILE = {largest_file}\n{PROGRAM}"],
            env=environment, capture_output=True, text=True, timeout=PATIENCE_S,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        return result

    def cached_files(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "pkg" / "__pycache__").iterdir())


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Package:
    package = Package(tmp_path_factory.mktemp("compiled"))
    assert package.run() == (2213, False)
    return package


def test_changes_far_away_are_seen_and_what_is_cached_is_used(compiled: Package) -> None:
    assert compiled.run() == (2213, True)
    for name, old, new, value in (
        ("numbers.py", "SCALE = 10", "SCALE = 20", 2223),
        ("numbers.py", "(1, 2, 3)", "(1, 2, 4)", 2224),
        ("small.py", "x * numbers.SCALE +", "x * numbers.SCALE -", 2216),
        ("kinds.py", "LAST = 2", "LAST = 3", 3216),
        ("kinds.py", "    first: int\n    second: int", "    second: int\n    first: int", 3136),
        ("kernel.py", "return both(task)", "\n    return -both(task)", -3136),
    ):
        compiled.change(name, old, new)
        assert compiled.run() == (value, False), (name, new)
    compiled.change("small.py", "def scaled(x):", "def scaled(x):\n    '''Only words.'''")
    assert compiled.run() == (-3136, True)


def test_old_files_go(compiled: Package) -> None:
    """Code at another line of its module, and names that had a digest in them."""
    compiled.change("kernel.py", "@entry", "\n\n@entry")
    folder = compiled.folder / "pkg" / "__pycache__"
    version = f"py{sys.version_info[0]}{sys.version_info[1]}"
    for name in (f"kernel.run_0123456789abcdef-4.{version}.nbi",
                 f"kernel.run_0123456789abcdef-4.{version}.1.nbc",
                 f"kernel.run-1.{version}.7.nbc"):  # fmt: skip
        (folder / name).write_bytes(b"old")
    (folder / f"kernel.runner-1.{version}.nbi").write_bytes(b"another function")
    compiled.change("numbers.py", "(1, 2, ", "(1, 0, ")
    compiled.run()
    assert len(compiled.cached_files()) == 3, compiled.cached_files()
    assert f"kernel.runner-1.{version}.nbi" in compiled.cached_files()


def test_leftovers_of_classes_that_moved_are_a_miss(compiled: Package) -> None:
    value, _ = compiled.run()
    compiled.change("kinds.py", "class Task(", "class Job(")
    compiled.change("kinds.py", "class Job", "class Other:\n    pass\n\nclass Job")
    (compiled.folder / "pkg" / "kinds.py").open("a").write("Task = Job\n")
    assert compiled.run() == (value, False)
    assert compiled.run() == (value, True)


@pytest.mark.parametrize(
    ("suffix", "content"),
    [("nbi", b""), ("nbi", b"no pickle"), ("nbc", b"\x80\x05cno_such_module\nThing\n.")],
)
def test_broken_files_are_a_miss(compiled: Package, suffix: str, content: bytes) -> None:
    value, _ = compiled.run()
    for path in (compiled.folder / "pkg" / "__pycache__").glob(f"kernel.run-*.{suffix}"):
        path.write_bytes(content)
    assert compiled.run() == (value, False)
    assert compiled.run() == (value, True)


@pytest.mark.parametrize("largest_file", [0, 3000])
def test_a_full_disk_costs_the_cache_alone(tmp_path: Path, largest_file: int) -> None:
    """With room for the index and none for machine code, the old code must not take its place."""
    package = Package(tmp_path)
    assert package.run() == (2213, False)
    index, code = sorted((tmp_path / "pkg" / "__pycache__").glob("kernel.run*"),
                         key=lambda path: path.stat().st_size)  # fmt: skip
    assert index.stat().st_size < 3000 < code.stat().st_size
    package.change("numbers.py", "SCALE = 10", "SCALE = 30")
    result = package.started(largest_file)
    assert result.stdout.split() == ["2233", "0"] and result.stderr == ""
    assert package.run() == (2233, False)
    assert package.run() == (2233, True)
    assert len(package.cached_files()) == 2, package.cached_files()


AFTER_LOADING = """
import sys
from pkg.kernel import run
from pkg.kinds import Task
first = run(Task(1, 2))
print(first, sum(run.stats.cache_hits.values()), 'numba.np.arraymath' in sys.modules)
from tvm_npu.sim.compiled import entry
FACTOR = int(sys.argv[1])
@entry
def times(task):
    return FACTOR * run(task)
print(times(Task(1, 2)), len(times.stats.cache_misses))
"""


def test_loading_needs_no_compiler_and_loaded_code_can_be_called_by_new_code(
    tmp_path: Path,
) -> None:
    Package(tmp_path)
    (tmp_path / "again.py").write_text(AFTER_LOADING)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}
    environment["NUMBA_CACHE_DIR"] = str(tmp_path / "cache")
    said = []
    for factor in ("2", "3"):
        result = subprocess.run(
            [sys.executable, str(tmp_path / "again.py"), factor],
            env=environment, capture_output=True, text=True, timeout=PATIENCE_S,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        said.append(result.stdout.split())
    assert said == [["2213", "0", "True", "4426", "1"], ["2213", "1", "False", "6639", "1"]]


def test_without_a_folder_that_can_be_written(tmp_path: Path) -> None:
    """A read-only installation and home; root may write everywhere, so there are no folders."""
    package = Package(tmp_path)
    (tmp_path / "pkg" / "__pycache__").write_text("")
    result = package.started(HOME="/proc/nowhere", XDG_CACHE_HOME="/proc/nowhere")
    assert result.stdout.split() == ["2213", "0"]
    assert result.stderr.count("no folder for machine code can be written") == 1
