"""Wheel and editable install: everything under tvm_npu, usable away from the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[1]
FOLDERS = {
    "tvm_npu": "tvm_npu",
    "codegen": "tvm_npu/codegen",
    "runtime": "tvm_npu/runtime",
    "sim": "tvm_npu/sim",
}
PACKAGING = (
    "pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md",
)  # fmt: skip
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
OFFLINE = ("--no-index", "--no-deps", "--no-build-isolation")
IMPORTS = """
import importlib.metadata
import importlib.util
import tvm_npu.codegen.errors
from tvm_npu.sim.machine_file import load_machine, machine_names
assert machine_names() and load_machine("nmp-4x8").core_count == 32
assert importlib.metadata.version("tvm-npu") == tvm_npu.__version__
for name in ("codegen", "runtime", "sim"):
    assert importlib.util.find_spec(name) is None, name
print(tvm_npu.codegen.errors.__file__)
"""


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    inherited = {name: os.environ[name] for name in os.environ if name != "PYTHONPATH"}
    result = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert result.returncode == 0, f"{command}:\n{result.stdout}\n{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what packaging reads, so that building leaves no traces in the checkout."""
    copy = tmp_path_factory.mktemp("checkout")
    ignore = shutil.ignore_patterns("__pycache__", ".*")
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, copy / folder, ignore=ignore)
    for name in PACKAGING:
        shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("wheel")
    run(*PIP, "wheel", *OFFLINE, "--wheel-dir", target, ".", cwd=checkout)
    (built,) = target.glob("*.whl")
    return built


@pytest.fixture()
def python(tmp_path: Path) -> Path:
    """A fresh environment that sees this one's libraries, but not its tvm-npu."""
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", cwd=tmp_path)
    executable = tmp_path / "venv" / "bin" / "python"
    site = run(executable, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))",
               cwd=tmp_path).strip()  # fmt: skip
    libraries = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    # Plain .pth lines add folders without running their .pth files, so an editable install of
    # tvm-npu over there stays invisible.
    Path(site, "libraries.pth").write_text("\n".join(sorted(libraries)) + "\n")
    return executable


def package_files(checkout: Path) -> dict[str, Path]:
    """{name in the wheel: file in the checkout} of everything that must be installed."""
    return {
        f"{package}/{path.relative_to(checkout / folder).as_posix()}": path
        for folder, package in FOLDERS.items()
        for path in (checkout / folder).rglob("*")
        if path.is_file()
    }


def test_wheel_holds_the_package_and_nothing_else(wheel: Path, checkout: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        packaged = {name for name in names if ".dist-info/" not in name}
        for name, path in package_files(checkout).items():
            assert name in packaged, f"{path} is not in the wheel: see package-data, __init__.py"
            assert archive.read(name) == path.read_bytes()
        (entry_points,) = (n for n in names if n.endswith("dist-info/entry_points.txt"))
        assert "tvm-npu = tvm_npu.cli:main" in archive.read(entry_points).decode()
    assert packaged == set(package_files(checkout))
    assert not [name for name in packaged if not name.startswith("tvm_npu/")]
    foreign = ("studies/", "tests/", "brute_force", "reproduce", "bench_")
    assert not [name for name in packaged if any(word in name for word in foreign)]
    assert {f"{package}/py.typed" for package in FOLDERS.values()} <= packaged
    assert wheel.name.endswith("-py3-none-any.whl")


def test_wheel_carries_the_license(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (license_file,) = (n for n in names if n.endswith(".dist-info/licenses/LICENSE"))
        assert archive.read(license_file) == (ROOT / "LICENSE").read_bytes()
        (metadata,) = (n for n in names if n.endswith(".dist-info/METADATA"))
        assert "\nLicense-Expression: Apache-2.0\n" in archive.read(metadata).decode()


def test_wheel_works_away_from_the_checkout(wheel: Path, python: Path, tmp_path: Path) -> None:
    run(*PIP, "--python", python, "install", *OFFLINE[:2], wheel, cwd=tmp_path)
    where = run(python, "-c", IMPORTS, cwd=tmp_path).strip()
    assert where.startswith(str(tmp_path / "venv"))
    assert where.endswith("tvm_npu/codegen/errors.py")
    assert (tmp_path / "venv" / "bin" / "tvm-npu").is_file()


def test_editable_install_works_away_from_the_checkout(
    checkout: Path, python: Path, tmp_path: Path
) -> None:
    run(*PIP, "--python", python, "install", *OFFLINE, "-e", checkout, cwd=tmp_path)
    where = run(python, "-c", IMPORTS, cwd=tmp_path).strip()
    assert where == str(checkout / "codegen" / "errors.py")


def test_checkout_root_shadows_an_installed_package(
    wheel: Path, checkout: Path, python: Path, tmp_path: Path
) -> None:
    run(*PIP, "--python", python, "install", *OFFLINE[:2], wheel, cwd=tmp_path)
    program = "import tvm_npu.codegen.errors as errors; print(errors.__file__)"
    assert run(python, "-c", program, cwd=checkout).strip() == str(
        checkout / "codegen" / "errors.py"
    )


def test_source_distribution_builds_the_same_wheel(
    wheel: Path, checkout: Path, tmp_path: Path
) -> None:
    program = "import setuptools.build_meta as b; print(b.build_sdist('sdist'))"
    run(sys.executable, "-c", program, cwd=checkout)
    (archive,) = (checkout / "sdist").glob("*.tar.gz")
    with tarfile.open(archive) as content:
        top_level = {name.split("/", 1)[1] for name in content.getnames() if name.count("/") == 1}
    assert {"LICENSE", "CHANGELOG.md", "README.md"} <= top_level
    run(*PIP, "wheel", *OFFLINE, "--wheel-dir", tmp_path, archive, cwd=tmp_path)
    (rebuilt,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(rebuilt) as two:
        assert sorted(one.namelist()) == sorted(two.namelist())
