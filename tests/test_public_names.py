"""What `dir` shows of the packages is the public API: typed, documented, and in docs/usage.md."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

import tvm_npu
import tvm_npu.runtime
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[1]


def check(package: types.ModuleType) -> None:
    shown = dir(package)
    assert shown == sorted(set(package.__all__))
    assert not [name for name in shown if name.startswith("_")]
    for name in shown:
        value = getattr(package, name)
        assert inspect.getdoc(value), f"{package.__name__}.{name} has no docstring"
        if inspect.isroutine(value):
            signature = inspect.signature(value)
            untyped = [p.name for p in signature.parameters.values() if p.annotation is p.empty]
            assert not untyped and signature.return_annotation is not signature.empty, name
        else:
            assert inspect.isclass(value) or inspect.ismodule(value), name


def test_public_names_of_tvm_npu() -> None:
    pytest.importorskip("tvm", reason="the relay extra is not installed")
    check(tvm_npu)


def test_public_names_of_the_relay_door() -> None:
    pytest.importorskip("tvm", reason="the relay extra is not installed")
    import tvm_npu.relay

    check(tvm_npu.relay)
    assert {"partition_for_npu", "explain", "region_programs"} <= set(dir(tvm_npu.relay))


def test_public_names_of_the_runtime() -> None:
    check(tvm_npu.runtime)
    assert "statistics" in dir(tvm_npu.runtime)


def test_usage_lists_the_public_names() -> None:
    page = (ROOT / "docs" / "usage.md").read_text("utf-8")
    section = page.split("## Public names")[1].split("\n## ")[0]
    listed = re.findall(r"^\| `tvm_npu\.(\w+)", section, re.MULTILINE)
    assert sorted(listed) == sorted(tvm_npu.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'tvm_npu' has no attribute 'sesion'"):
        tvm_npu.sesion  # noqa: B018


def test_importing_tvm_npu_loads_nothing() -> None:
    program = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "import tvm_npu\n"
        "dir(tvm_npu)\n"
        "print(*sorted(name.split('.')[0] for name in set(sys.modules) - before))\n"
    )
    result = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n" + program],
        capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    loaded = set(result.stdout.split())
    assert loaded - set(sys.stdlib_module_names) == {"tvm_npu"}
