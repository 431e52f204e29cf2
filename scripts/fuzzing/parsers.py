"""Parsers of files from other people: what they read, a good one to begin with."""

from __future__ import annotations

import io
import json
import random
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from fuzzing.codes import compiled, small_network
from fuzzing.mutation import changed, edge
from tvm_npu.calibration import InputSpec
from tvm_npu.codegen.program.format import Program
from tvm_npu.codegen.program.parts import FORMAT_VERSION, MAGIC, PROLOGUE
from tvm_npu.sim.kinds import machine_kind
from tvm_npu.sim.limits import Limits
from tvm_npu.sim.texts import parse_toml
from tvm_npu.sim.tiles.machine import TileMachine

Seeds = tuple[bytes, ...]
ROOT = Path(__file__).resolve().parents[2]
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
        from tvm_npu.cli.calibration_files import CalibrationFiles

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


def _package_files(package: str, folder: str) -> Seeds:
    found = resources.files(package) / folder
    return tuple(one.read_bytes() for one in found.iterdir() if one.name.endswith(".toml"))


@lru_cache(maxsize=32)
def seeds(name: str) -> Seeds:
    """Good files of a parser."""
    return _SEEDS[name]()


def _plan_seed() -> Seeds:
    from tvm_npu.codegen.plan.loops.plan import LoopPlan
    from tvm_npu.codegen.plan.problem import ConvProblem
    from tvm_npu.codegen.tiles.ir.write import write_ir
    from tvm_npu.sim.machine_file import load_machine

    machine = load_machine("setup-a")
    assert isinstance(machine, TileMachine)
    whole = ConvProblem(4, 6, 1, 6, 6, 6, 6, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 4,
                        accumulator_bytes=4)  # fmt: skip
    points = replace(whole, kernel=(1, 1), stride=(2, 2), padding=(0,) * 4, in_rows=12,
                     in_columns=11)  # fmt: skip
    grouped = replace(whole, channels=4, groups=2)
    plans = (
        (whole, LoopPlan(4, 3, 3, 6, ("R", "C", "M", "N"))),
        (whole, LoopPlan(2, 6, 2, 3)),
        (points, LoopPlan(4, 6, 3, 6, touched_only=True)),
        (grouped, LoopPlan(2, 2, 6, 3)),
    )
    return tuple(write_ir(problem, plan, machine).encode() for problem, plan in plans)


def _log_seed() -> Seeds:
    line = {
        "version": 1, "space": "nmp", "machine": "nmp-4x8", "machine_fingerprint": "a1b2",
        "tuner": "random", "warm": False, "seed": 1, "trial": 0, "problem_kernel": 3,
        "problem_name": "c1", "plan_rows": 4, "plan_order": "mnrc", "cycles": 123.5, "error": None,
    }  # fmt: skip
    failed = line | {"trial": 1, "cycles": None, "error": "no room"}
    return (b"".join(json.dumps(one).encode() + b"\n" for one in (line, failed)),)


def _ranges_seed() -> Seeds:
    tensor = {"low": -1.0, "high": 2.5, "octaves": [[-1, 10, 7.5, 5.5], [0, 3, 4.0, 6.0]]}
    return (json.dumps({"version": 1, "tensors": {"x": tensor, "y": tensor}}).encode(),)


def _npy_seed() -> Seeds:
    found = []
    for kind in (np.float32, np.int8, np.float64):
        file = io.BytesIO()
        np.save(file, np.ones((2, 3, 6, 6), kind))
        found.append(file.getvalue())
    return tuple(found)


def _npz_seed() -> Seeds:
    found = []
    for save in (np.savez, np.savez_compressed):
        file = io.BytesIO()
        save(file, x=np.ones((2, 3, 6, 6), np.float32))
        found.append(file.getvalue())
    return tuple(found)


def _png_seed() -> Seeds:
    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(
            ">I", zlib.crc32(name + data)
        )  # fmt: skip

    rows = b"".join(b"\0" + bytes(range(18)) for _ in range(6))
    head = struct.pack(">IIBBBBB", 6, 6, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b""),
    )  # fmt: skip


def _elf_seed() -> Seeds:
    return tuple(path.read_bytes() for path in sorted(ROOT.glob("tests/sim/nmp/data/*.elf")))


def _program_seed() -> Seeds:
    return tuple(compiled(name, 0).to_bytes() for name in ("nmp", "tiles", "snowflake"))


def _assembly_seed(isa: str) -> Callable[[], Seeds]:
    def make() -> Seeds:
        from tvm_npu.sim.isa.disassembler import disassemble_code

        code = compiled(isa, 0).code
        return (disassemble_code(code[:200], isa=machine_kind(isa).isa).encode(),)

    return make


def _dma_seed() -> Seeds:
    return (b"dmamov sar, 0\ndmamov ccr, 0x1234\ndmalp lc0, 2\ndmald\ndmast\ndmalpend lc0\n"
            b"dmawmb\ndmasev 0\ndmaend\n",)  # fmt: skip


def _sweep_seed() -> Seeds:
    return tuple(path.read_bytes() for path in sorted(ROOT.glob("docs/studies/*.toml")))


def _sweep_model_seed() -> Seeds:
    from tvm_npu.sweep.kept_models import model_to_bytes
    from tvm_npu.sweep.models import SweptModel, SweptRegion

    graph, ranges, samples = small_network()
    region = SweptRegion(graph, ranges, (samples, samples[:, ::-1]))
    return (model_to_bytes(SweptModel("m", "0" * 64, (region,), 5, 0.5)),)


def _json_seed() -> Seeds:
    return (
        b"""{ // off-chip bandwidth, GB/s
     "bandwidth": 1.6, // PE clock, GHz
     "frequency": 1.2,
     "mem_size": [368, 288, 144],
     "pe_len": [32, 32],
     "pe_mapping": [ ["IC"], ["OC"] ]
}""",
        b'{"bandwidth":12,"frequency":0.5,"mem_size":[64,8,16],"pe_len":[4,8],'
        b'"pe_mapping":[["OW"],["OH"]]}',
    )


_SEEDS: dict[str, Callable[[], Seeds]] = {
    "machine-toml": lambda: _package_files("tvm_npu.sim", "machines"),
    "machine-json": _json_seed,
    "platform-toml": lambda: _package_files("tvm_npu.pipelines", "platforms"),
    "plan-text": _plan_seed,
    "tuning-log": _log_seed,
    "ranges-json": _ranges_seed,
    "calibration-npy": _npy_seed,
    "calibration-npz": _npz_seed,
    "calibration-npz-door": _npz_seed,
    "calibration-png": _png_seed,
    "elf": _elf_seed,
    "elf-run": _elf_seed,
    "program": _program_seed,
    "library": lambda: tuple(b"\x7fELF" + bytes(60) + one for one in _program_seed()),
    "assembler-nmp": _assembly_seed("nmp"),
    "assembler-tiles": _assembly_seed("tiles"),
    "assembler-snowflake": _assembly_seed("snowflake"),
    "assembler-pl330": _dma_seed,
    "sweep-spec": _sweep_seed,
    "sweep-model": _sweep_model_seed,
    "limits": lambda: (b"work=1g,dram_bytes=512m",),
}
READERS: dict[str, Callable[[bytes], None]] = {
    "machine-toml": machine_toml,
    "machine-json": machine_json,
    "platform-toml": platform,
    "plan-text": plan_text,
    "tuning-log": tuning_log,
    "ranges-json": ranges,
    "calibration-npy": calibration(".npy"),
    "calibration-npz": calibration(".npz"),
    "calibration-npz-door": calibration_npz_of_the_door,
    "calibration-png": calibration(".png"),
    "elf": elf,
    "elf-run": elf_run,
    "program": program,
    "library": library,
    "assembler-nmp": assembler("nmp"),
    "assembler-tiles": assembler("tiles"),
    "assembler-snowflake": assembler("snowflake"),
    "assembler-pl330": dma_assembler,
    "sweep-spec": sweep_spec,
    "sweep-model": sweep_model,
    "limits": limits,
}


def parser_case(rng: random.Random, name: str) -> bytes:
    """A changed file; of a program mostly the header, with valid sums."""
    data = rng.choice(seeds(name))
    if name in ("program", "library") and rng.random() < 0.8:
        at = data.find(MAGIC)
        return data[:at] + _changed_header(rng, data[at:])
    return changed(rng, data)


def _changed_header(rng: random.Random, data: bytes) -> bytes:
    _, _, size, _, _ = PROLOGUE.unpack_from(data)
    text = data[PROLOGUE.size : PROLOGUE.size + size]
    if rng.random() < 0.8:
        values = json.loads(text)
        for _ in range(rng.choice((1, 1, 2, 4))):
            _change_value(rng, values)
        text = json.dumps(values).encode()
    else:
        text = changed(rng, text)
    rest = data[PROLOGUE.size + size :]
    import hashlib

    digest = hashlib.sha256(text).digest()
    total = PROLOGUE.size + len(text) + len(rest)
    return PROLOGUE.pack(MAGIC, FORMAT_VERSION, len(text), total, digest) + text + rest


_ODD: tuple[Any, ...] = (
    None, [], {}, "", "x" * 70000, True, -1, 0, 1 << 64, 1.5, float("nan"), float("inf"), [[]],
    "\x00\x1b[31m", "int8", "\ud800",
)  # fmt: skip


def _change_value(rng: random.Random, values: Any) -> None:
    """Something in the tree is replaced, removed or doubled."""
    while True:
        if not isinstance(values, (dict, list)) or not values:
            return
        key = rng.choice(list(values)) if isinstance(values, dict) else rng.randrange(len(values))
        inner = values[key]
        if isinstance(inner, (dict, list)) and inner and rng.random() < 0.85:
            values = inner
            continue
        choice = rng.random()
        if choice < 0.15:
            del values[key]
        elif choice < 0.25 and isinstance(values, list):
            values.append(inner)
        elif isinstance(inner, int) and choice < 0.8:
            values[key] = rng.choice((edge(rng, 64), inner + 1, inner - 1, inner * 2))
        else:
            values[key] = rng.choice(_ODD)
        return
