"""What reads files from other people: each takes bytes, and raises typed errors or nothing."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from fuzzing.stores import STORE_KEYS
from tvm_npu.calibration import InputSpec
from tvm_npu.codegen.program.format import Program
from tvm_npu.sim.kinds import machine_kind
from tvm_npu.sim.limits import Limits
from tvm_npu.sim.texts import parse_toml

INPUTS = (InputSpec("x", (1, 3, 6, 6), "float32"),)


@contextmanager
def _file(data: bytes, suffix: str) -> Iterator[Path]:
    with tempfile.NamedTemporaryFile(suffix=suffix) as file:
        file.write(data)
        file.flush()
        yield Path(file.name)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def machine_toml(data: bytes) -> None:
    from tvm_npu.sim.machine_file import machine_from_toml

    machine_from_toml(_text(data), "fuzz.toml")


def machine_json(data: bytes) -> None:
    from tvm_npu.sim.machine_file import load_machine

    with _file(data, ".json") as path:
        load_machine(path)


def platform(data: bytes) -> None:
    from tvm_npu.pipelines.platform_file import platform_from_toml

    platform_from_toml(_text(data), "fuzz.toml")


def plan_text(data: bytes) -> None:
    from tvm_npu.cli.ir_command import texts_of
    from tvm_npu.sim.machine_file import load_machine

    machine = load_machine("setup-a")
    texts = texts_of(machine)
    read = texts.read(_text(data))
    fixed = texts.random_layer(read, 1, 0, "fuzz")
    texts.program(read, fixed, machine)


def tuning_log(data: bytes) -> None:
    from tvm_npu.codegen.tune.log import read_log

    with _file(data, ".jsonl") as path:
        read_log(path)


def ranges(data: bytes) -> None:
    from tvm_npu.codegen.passes.calibrate import Ranges

    Ranges.from_json(_text(data))


def calibration(suffix: str) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        from tvm_npu.calibration_files import CalibrationFiles

        with _file(data, suffix) as path:
            for _ in CalibrationFiles((path,), INPUTS):
                pass

    return read


def calibration_npz_of_the_door(data: bytes) -> None:
    from tvm_npu.calibration import samples_from

    with _file(data, ".npz") as path:
        for _ in samples_from(path, INPUTS):
            pass


def elf(data: bytes) -> None:
    from tvm_npu.sim.nmp.elf import read_elf

    read_elf(data)


def elf_run(data: bytes) -> None:
    from tvm_npu.sim.machine_file import load_machine
    from tvm_npu.sim.nmp.bare_metal import run_elf
    from tvm_npu.sim.nmp.elf import read_elf

    machine: Any = load_machine("nmp-4x8")
    run_elf(read_elf(data, machine), machine, Limits(instructions=100_000))


def program(data: bytes) -> None:
    from tvm_npu.sim.machine_file import load_machine  # noqa: F401

    found = Program.from_bytes(data)
    found.image(found.machine_description().dram.base_address)


def library(data: bytes) -> None:
    from tvm_npu.cli.check_command import checked
    from tvm_npu.sim.limits import Limits

    with _file(data, ".so") as path:
        checked(path, Limits(dram_bytes=1 << 28, host_bytes=1 << 30))


def assembler(isa: str) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        from tvm_npu.sim.isa.assembler import assemble

        assemble(_text(data), isa=machine_kind(isa).isa)

    return read


def dma_assembler(data: bytes) -> None:
    from tvm_npu.sim.parts.pl330.code import assemble, disassemble

    disassemble(data)
    assemble(_text(data))


def sweep_spec(data: bytes) -> None:
    """With a few of the designs that it asks for."""
    from tvm_npu.sweep.designs import DesignSpace
    from tvm_npu.sweep.spec import spec_from_dict

    space = DesignSpace(spec_from_dict(parse_toml(_text(data))))
    for design in islice(space.random(3, 0), 8):
        if design.machine is not None:
            design.machine.model_dump_json()


def sweep_model(data: bytes) -> None:
    from tvm_npu.sweep.kept_models import model_from_bytes

    model_from_bytes(data)


def limits(data: bytes) -> None:
    from tvm_npu.sim.limits import Limits

    Limits.parse(_text(data))


def onnx_model(data: bytes) -> None:
    """As the commands read a model: file, shapes of its inputs, import by the installed TVM."""
    _imported(data)


def tflite_partition(data: bytes) -> None:
    """A TensorFlow Lite file, and its operators as a graph of the NPU's layers."""
    from tvm_npu.door.models import import_tflite
    from tvm_npu.options import make_options
    from tvm_npu.sim.machine_file import load_machine

    import_tflite(data).partition(make_options(load_machine("nmp-4x8")), None)


def onnx_partition(data: bytes) -> None:
    """And its operators as a graph of the NPU's layers, where rules allow them."""
    from tvm_npu.options import make_options
    from tvm_npu.sim.machine_file import load_machine

    options = make_options(load_machine("nmp-4x8"))
    _imported(data).partition(options, None)


def _imported(data: bytes) -> Any:
    from tvm_npu.cli.onnx_file import input_shapes, read_onnx
    from tvm_npu.door.models import import_onnx

    with _file(data, ".onnx") as path:
        model = read_onnx(path)
    shapes, _ = input_shapes(model, {})
    return import_onnx(model, shapes)


def labelled_npz(data: bytes) -> None:
    from tvm_npu.accuracy.images import LabelledImages, Preparation

    with _file(data, ".npz") as path:
        for _ in LabelledImages(path, INPUTS, Preparation()):
            pass


def labelled_image(suffix: str) -> Callable[[bytes], None]:
    """A file of a labelled folder, made to fit in one of the ways, which its bytes choose."""

    def read(data: bytes) -> None:
        from tvm_npu.accuracy.images import LabelledImages, Preparation
        from tvm_npu.calibration_files import Fit

        ways: tuple[Fit, ...] = ("exact", "crop", "stretch")
        fit = ways[hashlib.sha256(data).digest()[0] % len(ways)]
        with _file(data, suffix) as path:
            for _ in LabelledImages(path, INPUTS, Preparation(fit=fit)):
                pass

    return read


def labelled_csv(data: bytes) -> None:
    """The labels of three files in a folder."""
    from tvm_npu.accuracy.images import LabelledImages, Preparation

    with tempfile.TemporaryDirectory() as name, _file(data, ".csv") as path:
        for letter in "abc":
            np.save(Path(name) / f"{letter}.npy", np.ones((1, 3, 6, 6), np.float32))
        for _ in LabelledImages(Path(name), INPUTS, Preparation(), path):
            pass


def sweep_store(data: bytes) -> None:
    """What a sweep does with a store: opens it, scores what it holds, adds to it."""
    from tvm_npu.sweep.outcome import ACCURACY, MEASURED, Outcome, mean
    from tvm_npu.sweep.store import FILE, Store

    with tempfile.TemporaryDirectory() as name:
        (Path(name) / FILE).write_bytes(data)
        with closing(Store(Path(name))) as store:
            for key in STORE_KEYS:
                found = store.get(key)
                if found is not None and found.fault is None:
                    for objective in (*MEASURED, *ACCURACY):
                        value = getattr(found.of_batch(3, 2), objective)
                        mean(objective, [1.0 if value is None else float(value)])
            store.put([("f" * 64, Outcome(fault="none"))])
            store.get("f" * 64)


def sweep_formula(data: bytes) -> None:
    from tvm_npu.sim.machine_file import load_machine
    from tvm_npu.sweep.formulas import number

    outcome = {"cycles": 1e6, "time_us": 1e3, "dram_bytes": 1 << 20, "macs": 1 << 22}
    names = {**load_machine("nmp-4x8").model_dump(), **outcome, "element_bytes": 2}
    number(_text(data), names, "outcome 'fuzz'")


def profile_json(data: bytes) -> None:
    """A profile of somebody, compared with itself."""
    from tvm_npu.report.page.comparison import comparison, read_profile

    with _file(data, ".json") as path:
        found = read_profile(path)
    json.dumps(comparison(found, [found]))


def disassembler(isa: str) -> Callable[[bytes], None]:
    """4 bytes of an address, and code; its text assembles to the same words."""

    def read(data: bytes) -> None:
        from tvm_npu.sim.isa.assembler import assemble
        from tvm_npu.sim.isa.disassembler import disassemble_code

        table = machine_kind(isa).isa
        words = np.frombuffer(data[4 : 4 + len(data[4:]) // 4 * 4], "<u4")
        base = int.from_bytes(data[:4], "little") & ~3
        text = disassemble_code(words, base, isa=table)
        again = assemble(text, base, isa=table)
        if not np.array_equal(again, words):
            raise AssertionError("the disassembler's text is of other words")

    return read


def dma_disassembler(data: bytes) -> None:
    from tvm_npu.sim.parts.pl330.code import assemble, disassemble

    if assemble(disassemble(data)) != data:
        raise AssertionError("the disassembler's text is of other bytes")


def listing(data: bytes) -> None:
    """A program as `disasm` shows it, whole and layer by layer."""
    from tvm_npu.cli.disasm_command import listing

    found = Program.from_bytes(data)
    for layer in (None, *(one.name for one in found.layers[:4])):
        listing(found, layer)
