from __future__ import annotations

import importlib
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from tvm_npu import tvm_environment
from tvm_npu.errors import DoorError
from tvm_npu.runtime import lean_tvm, tvm_registry

onnx = pytest.importorskip("onnx", reason="the relay extra is not installed")


def test_tuning_logs_are_not_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOPHUB_LOCATION", raising=False)
    tvm_environment.prepare()
    assert os.environ["TOPHUB_LOCATION"] == "NONE"
    monkeypatch.setenv("TOPHUB_LOCATION", "AUTO")
    tvm_environment.prepare()
    assert os.environ["TOPHUB_LOCATION"] == "AUTO"


def test_without_relay_the_door_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tvm_environment, "door_name", lambda: "relax")
    with pytest.raises(
        DoorError, match=r"needs TVM 0.19.*tvm_npu.relax.*pip install '\.\[relay\]'"
    ):
        tvm_environment.prepare()
    monkeypatch.setattr(tvm_environment, "find_spec", lambda name: None)
    with pytest.raises(
        DoorError, match=r"tvm_npu.relay needs TVM 0.19: .*pip install '\.\[relay\]'"
    ):
        tvm_environment.prepare()


@pytest.fixture()
def onnx_without_mapping(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delitem(sys.modules, "onnx.mapping", raising=False)
    monkeypatch.delattr(onnx, "mapping", raising=False)
    monkeypatch.setattr(tvm_environment.importlib.metadata, "version", lambda name: "1.23.2")
    yield
    sys.modules.pop("onnx.mapping", None)


def test_onnx_mapping_comes_back(onnx_without_mapping: Any) -> None:
    tvm_environment.restore_onnx_mapping()
    table = importlib.import_module("onnx.mapping").TENSOR_TYPE_TO_NP_TYPE
    names = {"FLOAT": "float32", "INT64": "int64", "UINT8": "uint8", "BOOL": "bool"}
    for kind, name in names.items():
        assert table[getattr(onnx.TensorProto, kind)].name == name
    again = sys.modules["onnx.mapping"]
    tvm_environment.restore_onnx_mapping()
    assert sys.modules["onnx.mapping"] is again


def test_an_onnx_that_has_its_mapping_is_left_alone(
    onnx_without_mapping: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tvm_environment.importlib.metadata, "version", lambda name: "1.18.0")
    tvm_environment.restore_onnx_mapping()
    assert "onnx.mapping" not in sys.modules


def test_xgboost_can_be_imported_after_tvm() -> None:
    pytest.importorskip("xgboost")
    program = (
        "import sys\n"
        "from tvm_npu.runtime.lean_tvm import import_tvm\n"
        "assert import_tvm() is import_tvm()\n"
        "assert 'tvm' in sys.modules and 'xgboost' not in sys.modules\n"
        "import xgboost\n"
        "assert xgboost.__version__\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_an_xgboost_that_was_there_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    there = types.ModuleType("xgboost")
    monkeypatch.setitem(sys.modules, "xgboost", there)
    with lean_tvm._not_found(("xgboost", "no_such_package")):
        assert sys.modules["xgboost"] is there
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("no_such_package.part")
    assert sys.modules["xgboost"] is there and "no_such_package" not in sys.modules


NAMES_SEEN = """
import sys, types
{how}
import tvm
from tvm._ffi import registry
assert type(registry._LIB).__module__ == 'ctypes'
assert registry.list_global_func_names.__module__ == registry.__name__
assert not any(type(finder).__module__.startswith('tvm_npu') for finder in sys.meta_path)
made = {{
    f'{{module}}.{{name}}'
    for module, content in list(sys.modules.items())
    if module.startswith('tvm.') and isinstance(content, types.ModuleType)
    for name, value in vars(content).items()
    if getattr(value, 'is_global', False)
}}
print(len(made), *sorted(made))
"""


def test_a_lean_tvm_has_every_function_of_tvm() -> None:
    pytest.importorskip("tvm")
    lean = "from tvm_npu.runtime.lean_tvm import import_tvm; import_tvm()"
    plain = "sys.modules['xgboost'] = None"
    found = []
    for how in (lean, plain):
        program = NAMES_SEEN.format(how=how)
        result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        found.append(result.stdout.split())
    assert int(found[0][0]) > 2000
    assert found[0] == found[1]


def test_functions_registered_while_tvm_is_imported_are_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("tvm")
    tvm = lean_tvm.import_tvm()
    registry = importlib.import_module("tvm._ffi.registry")
    asked = []
    listed = registry.list_global_func_names
    monkeypatch.setattr(registry, "list_global_func_names", lambda: asked.append(1) or listed())
    library = registry._LIB
    names = tvm_registry._Names(registry)
    try:
        before = set(registry.list_global_func_names())
        tvm.register_func("tvm_npu.test.listed", lambda: None, override=True)
        with pytest.raises(tvm.TVMError, match="already registered"):
            tvm.register_func("tvm_npu.test.listed", lambda: None)
        after = registry.list_global_func_names()
    finally:
        names.restore()
        registry.remove_global_func("tvm_npu.test.listed")
    assert set(after) - before == {"tvm_npu.test.listed"}
    assert len(after) == len(set(after))
    assert asked == [1]
    assert registry._LIB is library


def test_a_home_in_which_nothing_can_be_made(tmp_path: Path) -> None:
    """TVM makes a folder there when it is imported."""
    pytest.importorskip("tvm")
    (tmp_path / "home").write_text("a file: no folder can be made in it")
    program = (
        "import os\n"
        "from tvm_npu.runtime.lean_tvm import TEST_DATA, import_tvm\n"
        "assert import_tvm().__version__ and TEST_DATA not in os.environ\n"
    )
    environment = {**os.environ, "HOME": str(tmp_path / "home")}
    environment.pop("TEST_DATA_ROOT_PATH", None)
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)


@pytest.mark.parametrize(
    ("modules", "default"),
    [("tvm, tvm_npu.runtime", "1000"), ("tvm_npu.runtime, tvm", "1000"), ("tvm_npu.runtime", "")],
)
@pytest.mark.parametrize("own", ["", "70"])
def test_how_often_idle_threads_of_the_pool_give_their_core_away(
    modules: str, default: str, own: str
) -> None:
    """Asked where TVM asks."""
    pytest.importorskip("tvm")
    program = (
        f"import ctypes, {modules}\n"
        "variable = ctypes.CDLL(None).getenv\n"
        "variable.restype = ctypes.c_char_p\n"
        "print((variable(b'TVM_THREAD_POOL_SPIN_COUNT') or b'').decode())\n"
    )
    environment = {**os.environ, "TVM_THREAD_POOL_SPIN_COUNT": own}
    if not own:
        del environment["TVM_THREAD_POOL_SPIN_COUNT"]
    said = subprocess.run(
        [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True
    ).stdout
    assert said.strip() == (own or default)
