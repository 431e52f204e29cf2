"""From a partitioned module to values: executors, exported libraries, batches, threads."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm.relay", exc_type=ImportError)
import tvm  # noqa: E402
from tvm import relay  # noqa: E402
from tvm.contrib import graph_executor  # noqa: E402
from tvm.relay.backend import Executor, Runtime  # noqa: E402
from tvm.runtime.vm import VirtualMachine  # noqa: E402

from tests.relay.relay_cases import randoms, small_cnn, stock  # noqa: E402
from tvm_npu import runtime  # noqa: E402
from tvm_npu.codegen.errors import ProgramError  # noqa: E402
from tvm_npu.codegen.fixed_point import dequantize_tensor, quantize_tensor  # noqa: E402
from tvm_npu.codegen.passes.fuse import fuse  # noqa: E402
from tvm_npu.codegen.passes.quantize import Ranges, quantize  # noqa: E402
from tvm_npu.codegen.program.format import Program  # noqa: E402
from tvm_npu.codegen.reference import run_fixed  # noqa: E402
from tvm_npu.door.region import OPTIONS, RANGES  # noqa: E402
from tvm_npu.errors import ImportRegionError  # noqa: E402
from tvm_npu.relay import import_region, partition_for_npu, region_functions  # noqa: E402
from tvm_npu.relay.codegen import compile_region  # noqa: E402
from tvm_npu.sim.machine_file import load_machine  # noqa: E402

pytestmark = pytest.mark.relay

TARGET = "npu/nmp-4x8"
X = randoms(1, 1, 3, 12, 12)
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def partitioned() -> Any:
    return partition_for_npu(small_cnn(with_lrn=True), calibration=X)


@pytest.fixture(scope="module")
def built(partitioned: Any) -> Any:
    with tvm.transform.PassContext(opt_level=3):
        return relay.build(partitioned, target=TARGET)


def run(library: Any, x: Any) -> Any:
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.set_input("x", x)
    executor.run()
    return executor.get_output(0).numpy()


@pytest.fixture(scope="module")
def answer(built: Any) -> Any:
    return run(built, X)


def test_close_to_stock_tvm(answer: Any) -> None:
    (want,) = stock(small_cnn(with_lrn=True), [X], opt_level=1)
    assert np.abs(answer - want).max() < 1e-3


def test_int8_is_coarser_but_right() -> None:
    mod = small_cnn()
    (want,) = stock(mod, [X], opt_level=1)
    (got,) = stock(partition_for_npu(mod, calibration=X, precision="int8"), [X], TARGET)
    assert 1e-5 < np.abs(got - want).max() < 0.1


@pytest.mark.parametrize("precision", ["int16", "int8"])
def test_region_equals_the_fixed_reference_to_the_bit(precision: str) -> None:
    calibration = randoms(1, 2, 3, 12, 12)
    mod = partition_for_npu(small_cnn(batch=2), calibration=calibration, precision=precision)
    (symbol, function), *_ = region_functions(mod).items()
    ranges = Ranges.from_json(str(function.attrs[RANGES]))
    requantization = load_machine("nmp-4x8").requantization(precision)  # type: ignore[arg-type]
    fixed = quantize(fuse(import_region(function)), ranges, precision, requantization)
    x = randoms(5, 2, 3, 12, 12)
    name, size = fixed.inputs[0], fixed.element_bytes
    tensors = run_fixed(fixed, {name: quantize_tensor(x, fixed.q_points[name], size)})
    want = dequantize_tensor(tensors[fixed.outputs[0]], fixed.q_points[fixed.outputs[0]])
    body = relay.Call(mod.get_global_var(symbol), [mod["main"].params[0]])
    mod["main"] = relay.Function(mod["main"].params, body)
    (got,) = stock(mod, [x], TARGET)
    np.testing.assert_array_equal(got, want)


def test_relay_vm(partitioned: Any, answer: Any) -> None:
    with tvm.transform.PassContext(opt_level=3):
        executable = relay.vm.compile(partitioned, target=TARGET)
    code, library = executable.save()
    loaded = tvm.runtime.vm.Executable.load_exec(code, library)
    machine = VirtualMachine(loaded, tvm.cpu())
    np.testing.assert_array_equal(machine.invoke("main", tvm.nd.array(X)).numpy(), answer)


def test_aot_executor(partitioned: Any, answer: Any, tmp_path: Path) -> None:
    executor = Executor("aot", {"interface-api": "packed", "unpacked-api": False})
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(partitioned, target=TARGET, executor=executor, runtime=Runtime("cpp"))
    library.export_library(str(tmp_path / "aot.so"))
    loaded = tvm.runtime.load_module(str(tmp_path / "aot.so"))
    aot = tvm.runtime.executor.AotModule(loaded["default"](tvm.cpu()))
    aot.set_input("x", X)
    aot.run()
    np.testing.assert_array_equal(aot.get_output(0).numpy(), answer)


FRESH = """
import sys
import numpy as np
import tvm_npu.runtime
import tvm
from tvm.contrib import graph_executor
library = tvm.runtime.load_module(sys.argv[1])
executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
executor.set_input("x", np.load(sys.argv[2]))
executor.run()
np.save(sys.argv[3], executor.get_output(0).numpy())
assert "tvm_npu.relay" not in sys.modules
print(" ".join(tvm_npu.runtime.sessions()))
"""


def test_exported_library_in_a_fresh_process(built: Any, answer: Any, tmp_path: Path) -> None:
    built.export_library(str(tmp_path / "model.so"))
    np.save(tmp_path / "x.npy", X)
    files = [str(tmp_path / name) for name in ("model.so", "x.npy", "y.npy")]
    done = subprocess.run(
        [sys.executable, "-c", FRESH, *files], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["tvmgen_default_npu_main_0", "tvmgen_default_npu_main_1"]
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), answer)


def test_weights_are_not_kept_twice(built: Any) -> None:
    assert not [name for name in built.get_params() if "npu" in name]


def test_json_round_trip_builds_the_same(partitioned: Any, answer: Any) -> None:
    again = tvm.ir.load_json(tvm.ir.save_json(partitioned))
    (got,) = stock(again, [X], TARGET)
    np.testing.assert_array_equal(got, answer)


def test_npu_target_without_partitioning_is_the_cpu() -> None:
    mod = small_cnn()
    np.testing.assert_allclose(
        stock(mod, [X], TARGET, 1)[0], stock(mod, [X], "llvm", 1)[0], rtol=1e-5, atol=1e-6
    )


def test_a_batch_is_its_images(answer: Any) -> None:
    both = np.concatenate([X, randoms(9, 1, 3, 12, 12)])
    mod = partition_for_npu(small_cnn(batch=2, with_lrn=True), calibration=np.repeat(X, 2, axis=0))
    (got,) = stock(mod, [both], TARGET)
    np.testing.assert_array_equal(got[:1], answer)
    assert not np.array_equal(got[1], got[0])


def test_two_models_in_one_process_keep_their_sessions(answer: Any, built: Any) -> None:
    runtime.clear_sessions()
    assert runtime.sessions() == {} and runtime.last_session() is None
    other = partition_for_npu(small_cnn(seed=20), calibration=X)
    with tvm.transform.PassContext(opt_level=3):
        second = relay.build(other, target=TARGET)
    results = [run(library, X) for library in (built, second, built)]
    np.testing.assert_array_equal(results[0], answer)
    np.testing.assert_array_equal(results[2], answer)
    assert not np.array_equal(results[1], answer)
    names = list(runtime.sessions())
    assert len(names) == 3 and "tvmgen_default_npu_main_1" in names
    assert sum(name.startswith("tvmgen_default_npu_main_0@") for name in names) == 2
    assert runtime.last_session() is runtime.find_session("tvmgen_default_npu_main_1")
    assert set(runtime.statistics()) == set(names) and all(runtime.statistics().values())
    with pytest.raises(KeyError, match="no session 'x' has run; open: tvmgen"):
        runtime.find_session("x")


def test_threads_get_their_own_answers(built: Any) -> None:
    inputs = [randoms(seed, 1, 3, 12, 12) for seed in range(4)]
    want = [run(built, x) for x in inputs]
    got: list[Any] = [None] * len(inputs)

    def work(number: int) -> None:
        for _ in range(3):
            got[number] = run(built, inputs[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


def test_program_with_another_digest_is_refused() -> None:
    blob = tvm.nd.array(np.zeros(64, np.int8))
    with pytest.raises(ProgramError, match="'r' has digest .*the library was altered"):
        runtime.packed.run_packed("r", "0" * 64, 0, blob)


def test_region_without_ranges_is_an_error(partitioned: Any) -> None:
    function = partitioned["tvmgen_default_npu_main_0"]
    bare = function.without_attr(RANGES)
    with pytest.raises(ImportRegionError, match="'npu.ranges': it was not made by partition"):
        compile_region(bare)
    assert OPTIONS in function.attrs


def test_same_module_gives_the_same_program(partitioned: Any) -> None:
    from tvm_npu.relay import region_programs

    first, second = region_programs(partitioned), region_programs(partitioned)
    assert first == second and len(first) == 2
    program = Program.from_bytes(first["tvmgen_default_npu_main_0"])
    assert program.precision == "int16" and program.inputs[0].shape == (3, 12, 12)
