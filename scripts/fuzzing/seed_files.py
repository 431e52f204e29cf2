"""Good files of each parser, which changes begin with."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np

from fuzzing.codes import compiled, small_network
from tvm_npu.sim.kinds import machine_kind
from tvm_npu.sim.tiles.machine import TileMachine

Seeds = tuple[bytes, ...]
ROOT = Path(__file__).resolve().parents[2]


def package_files(package: str, folder: str) -> Seeds:
    found = resources.files(package) / folder
    return tuple(one.read_bytes() for one in found.iterdir() if one.name.endswith(".toml"))


def plan_text() -> Seeds:
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


def tuning_log() -> Seeds:
    line = {
        "version": 1, "space": "nmp", "machine": "nmp-4x8", "machine_fingerprint": "a1b2",
        "tuner": "random", "warm": False, "seed": 1, "trial": 0, "problem_kernel": 3,
        "problem_name": "c1", "plan_rows": 4, "plan_order": "mnrc", "cycles": 123.5, "error": None,
    }  # fmt: skip
    failed = line | {"trial": 1, "cycles": None, "error": "no room"}
    return (b"".join(json.dumps(one).encode() + b"\n" for one in (line, failed)),)


def ranges() -> Seeds:
    tensor = {"low": -1.0, "high": 2.5, "octaves": [[-1, 10, 7.5, 5.5], [0, 3, 4.0, 6.0]]}
    return (json.dumps({"version": 1, "tensors": {"x": tensor, "y": tensor}}).encode(),)


def npy() -> Seeds:
    found = []
    for kind in (np.float32, np.int8, np.float64):
        file = io.BytesIO()
        np.save(file, np.ones((2, 3, 6, 6), kind))
        found.append(file.getvalue())
    return tuple(found)


def npz() -> Seeds:
    found = []
    for save in (np.savez, np.savez_compressed):
        file = io.BytesIO()
        save(file, x=np.ones((2, 3, 6, 6), np.float32))
        found.append(file.getvalue())
    return tuple(found)


def elf() -> Seeds:
    return tuple(path.read_bytes() for path in sorted(ROOT.glob("tests/sim/nmp/data/*.elf")))


def program() -> Seeds:
    return tuple(compiled(name, 0).to_bytes() for name in ("nmp", "tiles", "snowflake"))


def assembly(isa: str) -> Callable[[], Seeds]:
    def make() -> Seeds:
        from tvm_npu.sim.isa.disassembler import disassemble_code

        code = compiled(isa, 0).code
        return (disassemble_code(code[:200], isa=machine_kind(isa).isa).encode(),)

    return make


def dma_assembly() -> Seeds:
    return (b"dmamov sar, 0\ndmamov ccr, 0x1234\ndmalp lc0, 2\ndmald\ndmast\ndmalpend lc0\n"
            b"dmawmb\ndmasev 0\ndmaend\n",)  # fmt: skip


def sweep_spec() -> Seeds:
    return tuple(path.read_bytes() for path in sorted(ROOT.glob("docs/studies/*.toml")))


def sweep_model() -> Seeds:
    from tvm_npu.sweep.kept_models import model_to_bytes
    from tvm_npu.sweep.models import SweptModel, SweptRegion

    graph, ranges, samples = small_network()
    region = SweptRegion(graph, ranges, (samples, samples[:, ::-1]), 2, 5)
    return (model_to_bytes(SweptModel("m", "0" * 64, (region,), 5, 0.5, 1)),)


def machine_json() -> Seeds:
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


def labelled_npz() -> Seeds:
    found = []
    layouts = ((4, 3, 6, 6), np.float32, np.int64), ((4, 6, 6, 3), np.uint8, np.float32)
    for shape, kind, labels in layouts:
        for save in (np.savez, np.savez_compressed):
            file = io.BytesIO()
            save(file, images=np.ones(shape, kind), labels=np.arange(4).astype(labels))
            found.append(file.getvalue())
    return tuple(found)


def profile() -> Seeds:
    totals = {"time_us": 12.5, "frames_per_s": 80000.0, "cycles": 3125.0, "mac_utilization": 0.5,
              "dram_peak_bytes": 4096, "energy_uj": None}  # fmt: skip
    layers = [{"name": name, "time_us": time, "macs": 100} for name, time in
              (("conv1", 7.5), ("conv1", 4.0), ("dense", 1.0), ("host", None))]  # fmt: skip
    whole = {
        "schema": "tvm-npu profile 1", "model": "m", "machine": "nmp-4x8", "precision": "int16",
        "planner": "exact", "totals": totals, "layers": layers,
    }  # fmt: skip
    return (json.dumps(whole).encode(),)


def code(isa: str) -> Callable[[], Seeds]:
    """The address that code stands at, and code."""
    return lambda: tuple(
        struct.pack("<I", base) + compiled(isa, 0).code[begin : begin + 200].tobytes()
        for begin, base in ((0, 0), (100, 0x8000_0000), (0, 0xFFFF_FF00))
    )


def dma_code() -> Seeds:
    from tvm_npu.sim.parts.pl330.code import assemble

    return tuple(assemble(text.decode()) for text in dma_assembly())


def labelled_csv() -> Seeds:
    return b"file,label\na.npy,3\nb,2\nc.npy, 1\n", b"a.npy,0\n\nb.npy,1\n\"c.npy\",2\n"


def library() -> Seeds:
    """As programs lie in a library."""
    return tuple(b"\x7fELF" + bytes(60) + one for one in program())
