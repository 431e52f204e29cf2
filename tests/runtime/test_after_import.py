"""What waits for modules: the packed function waits for TVM."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

from tests.patience import PATIENCE_S
from tvm_npu.runtime.after_import import AfterImport, when_imported

ROOT = Path(__file__).parents[2]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "waited_for.py").write_text("VALUE = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delitem(sys.modules, "waited_for", raising=False)
    return "waited_for"


def test_an_action_waits_once(module: str) -> None:
    seen: list[ModuleType] = []
    before = list(sys.meta_path)
    when_imported(module, seen.append)
    assert importlib.util.find_spec(module) is not None
    assert importlib.util.find_spec("no_such_module_at_all") is None
    assert seen == [] and module not in sys.modules
    loaded = importlib.import_module(module)
    assert seen == [loaded] and loaded.VALUE == 7
    assert sys.meta_path == before
    assert type(loaded.__loader__) is SourceFileLoader
    assert loaded.__spec__ is not None and loaded.__spec__.loader is loaded.__loader__
    importlib.reload(loaded)
    assert seen == [loaded]
    when_imported(module, seen.append)
    assert seen == [loaded, loaded]


def test_waiting_can_stop_and_goes_on_after_a_failure(module: str, tmp_path: Path) -> None:
    seen: list[ModuleType] = []
    waiting = AfterImport(module, seen.append)
    waiting.wait()
    good = (tmp_path / "waited_for.py").read_text()
    (tmp_path / "waited_for.py").write_text("raise ValueError('broken, and longer')\n")
    with pytest.raises(ValueError, match="broken"):
        importlib.import_module(module)
    assert seen == []
    (tmp_path / "waited_for.py").write_text(good)
    importlib.invalidate_caches()
    loaded = importlib.import_module(module)
    assert seen == [loaded]
    other = AfterImport(module, seen.append)
    other.wait()
    other.stop()
    other.stop()
    del sys.modules[module]
    importlib.import_module(module)
    assert seen == [loaded]


def test_several_actions_wait_for_one_module(module: str) -> None:
    seen: list[tuple[int, ModuleType]] = []
    before = list(sys.meta_path)
    for number in range(3):
        when_imported(module, lambda loaded, number=number: seen.append((number, loaded)))
    loaded = importlib.import_module(module)
    assert seen == [(0, loaded), (1, loaded), (2, loaded)]
    assert sys.meta_path == before
    assert type(loaded.__loader__) is SourceFileLoader


@pytest.mark.relay
@pytest.mark.parametrize("order", ["import tvm_npu.runtime, tvm", "import tvm, tvm_npu.runtime"])
def test_tvm_has_the_packed_function_in_either_order(order: str) -> None:
    pytest.importorskip("tvm")
    program = (
        "import sys\n"
        "import tvm_npu.sim.machine_file\n"
        f"{order.partition(',')[0]}\n"
        f"assert ('tvm' in sys.modules) == {order.startswith('import tvm,')}\n"
        f"{order}\n"
        "print(tvm.get_global_func('tvm_npu.run') is not None)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert result.returncode == 0 and "True" in result.stdout, result.stderr
