"""Program files for simulators: valid sums around code that nobody compiled, or compiled and then
changed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from fuzzing.mutation import edge
from tvm_npu.codegen.compile import CompileOptions, compile_graph
from tvm_npu.codegen.graph import Clip, Graph
from tvm_npu.codegen.ops import Conv2d, Dense, Elementwise, Pool, Reshape
from tvm_npu.codegen.passes.calibrate import Ranges, calibrate
from tvm_npu.codegen.program.format import Program, Segment
from tvm_npu.codegen.program.parts import DEBUG, RELOCATION, SegmentSize
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.isa.table import Instruction, Isa
from tvm_npu.sim.kinds import machine_kind
from tvm_npu.sim.machine_file import load_machine, machine_from_dict

CONSTANT_BYTES = 1 << 14
ACTIVATION_BYTES = 1 << 14
Words = list[int]


def small(name: str, **changes: Any) -> MachineDescription:
    values = load_machine(name).model_dump(exclude_none=True)
    for key, change in changes.items():
        values[key] = values[key] | change if isinstance(change, dict) else change
    return machine_from_dict(values | {"name": "small"})


@lru_cache(maxsize=1)
def machines() -> dict[str, tuple[MachineDescription, ...]]:
    """By target: machines with few and small memories, so that what leaves them shows."""
    nmp = {"mb0_bytes": 2048, "mb1_bytes": 2048, "mb2_bytes": 2048, "bias_bytes": 256}
    split = {"input_bytes": 2048, "weight_bytes": 2048, "output_bytes": 2048, "bias_bytes": 256}
    narrow = {
        "int8_bytes": 1, "int16_bytes": 2, "int8_accumulator_bytes": 4, "int16_accumulator_bytes": 8
    }  # fmt: skip
    shared = {"shared_bytes": 4096, "bias_bytes": 256}
    return {
        "nmp": (
            small("nmp-4x8", cores={"tles": 1, "tlts_per_tle": 2}, memories=nmp),
            small("nmp-4x8-dual", cores={"tles": 2, "tlts_per_tle": 2}, memories=nmp),
            small("nmp-4x8-scale", cores={"tles": 1, "tlts_per_tle": 2}, memories=nmp),
        ),
        "tiles": (
            small("setup-a", memories=split),
            small("setup-a", memories=split, words=narrow),
        ),
        "tiles-dma": (small("zynq-7020", memories=shared),),
        "snowflake": (load_machine("snowflake-1cc"), load_machine("snowflake-2cc")),
    }


def program(machine: MachineDescription, words: Words, constants: bytes) -> bytes:
    """Code around which there is nothing but constants and some memory."""
    sizes = {
        Segment.CODE: 4 * len(words), Segment.CONSTANTS: len(constants),
        Segment.ACTIVATIONS: ACTIVATION_BYTES, Segment.STATES: 0,
    }  # fmt: skip
    return Program(
        name="fuzz",
        machine=machine.model_dump(exclude_none=True),
        precision=machine.default_precision,
        planner="none",
        inputs=(), outputs=(), intermediates=(),
        segments={segment: SegmentSize(size, 64) for segment, size in sizes.items()},
        parameter_offset=0, layers=(), scopes=({},),
        code=np.array(words, np.uint32), constants=constants,
        relocations=np.array([], RELOCATION),
        debug=np.array([(-1, 0, 0)] * len(words), DEBUG),
    ).to_bytes()  # fmt: skip


def any_word(rng: random.Random, isa: Isa) -> int:
    """An instruction with operands at random, or a word at random."""
    if rng.random() < 0.05:
        return rng.getrandbits(32)
    item = rng.choice(isa.instructions)
    word = item.match
    for field in item.fields:
        word |= rng.getrandbits(32) & field.mask
    return word


def _encoded(item: Instruction, rng: random.Random, **given: int) -> int:
    """Operands that are given, the others from their names, or small."""
    word = item.match
    for field in item.fields:
        if field.name in given:
            value = given[field.name]
        elif field.names is not None and rng.random() < 0.95:
            value = int(rng.choice(list(field.names)))
        else:
            value = field.bias + rng.randrange(8) * field.step
        try:
            word |= field.encode(value)
        except ValueError:
            word |= rng.getrandbits(32) & field.mask
    return word


def _sane(rng: random.Random, name: str) -> int:
    """A value that the register called ``name`` often has; now and then any."""
    if rng.random() < 0.04:
        return edge(rng)
    for part, values in (
        ("ELEMENT_BYTES", (1, 2)), ("ADDRESS", (0, 0, 16, 64, 256)), ("OFFSET", (0, 0, 16, 64, 3)),
        ("GROUPS", (1, 1, 1, 2)), ("STRIDE", (1, 1, 2, 16)), ("DILATION", (1, 1, 2)),
        ("PAD", (0, 0, 1, 2)), ("CHANNELS", (1, 1, 2, 4)), ("ROWS", (1, 2, 3, 4)),
        ("COLUMNS", (1, 2, 3, 4, 8)), ("SHIFT", (0, 0, 1, 7)), ("LOW", (-128,)), ("HIGH", (127,)),
        ("FILL", (0, 5)), ("OPERANDS", (0o210, 0o210, 0o521, 0o545, 0o212)), ("PITCH", (8, 16, 64)),
        ("SEGMENTS", (1, 2, 4)), ("SEGMENT_BYTES", (2, 16, 64)), ("BYTES", (0, 0, 16, 64)),
        ("COUNT", (1, 1, 2, 4)), ("RECEIVER", (0, 0, 1, 3)), ("OUTPUTS", (1, 4, 16, 64)),
        ("TARGET", (1, 1, 3)), ("CUS", (1, 3, 15)), ("DIVISOR", (1, 4)), ("RUNS", (1, 1, 2, 3)),
        ("STEP", (0, 16, 64)), ("TABLE_BITS", (7, 10)), ("BOX", (1, 2, 3)), ("START", (0, 0, -1)),
        ("MOVED", (64,)), ("EXTENT", (64,)), ("PROGRAM", (0,)),
    ):  # fmt: skip
        if part in name:
            return rng.choice(values)
    return rng.choice((0, 0, 1, 2, 16))


def _tiles(rng: random.Random, isa: Isa) -> Words:
    from tvm_npu.sim.tiles.isa import TileRegister

    def set_(register: int, value: int) -> Words:
        low = ((value + (1 << 18)) & 0x7FFFF) - (1 << 18)
        return [
            isa.encode("tset", creg=register, imm=low),
            isa.encode("tsetu", creg=register, upper=(value >> 19) & 0x1FFF),
        ]

    words: Words = []
    for register in TileRegister:
        words += set_(register, _sane(rng, register.name))
    for memory in (0, 1, 2, 3) if rng.random() < 0.9 else ():
        for register, value in (
            (TileRegister.ADDRESS, 0), (TileRegister.CHIP_OFFSET, 0), (TileRegister.COUNT_INNER, 1),
            (TileRegister.RUN_BYTES, 256 if memory == 3 else 2048), (TileRegister.COUNT_OUTER, 1),
        ):  # fmt: skip
            words += set_(register, value)
        words.append(isa.encode("tload", mem=memory, base=4, stream=0))
    work = [item for item in isa.instructions if item.mnemonic not in ("tset", "tsetu", "tend")]
    for _ in range(rng.randint(1, 6)):
        for register in rng.sample(list(TileRegister), rng.randint(0, 8)):
            words += set_(register, _sane(rng, register.name))
        words.append(_encoded(rng.choice(work), rng))
    return [*words, isa.encode("tend")]


def _li(isa: Isa, register: int, value: int) -> Words:
    low = ((value + 2048) & 0xFFF) - 2048
    upper = ((value - low) >> 12) & 0xFFFFF
    return [
        isa.encode("lui", rd=register, imm=upper),
        isa.encode("addi", rd=register, rs1=register, imm=low),
    ]


_T4, _T5, _T6 = 29, 30, 31


def _nmp(rng: random.Random, isa: Isa) -> Words:
    from tvm_npu.sim.nmp.xnmp import DmaRegister, MacRegister

    def set_(name: str, register: Any) -> Words:
        value = _li(isa, _T6, _sane(rng, register.name))
        return [*value, isa.encode(name, creg=int(register), rs1=_T6)]

    words: Words = []
    for mac in MacRegister:
        words += set_("nmp_mcfg", mac)
    for dma in DmaRegister:
        words += set_("nmp_dcfg", dma)
    work = [item for item in isa.instructions if item.mnemonic.startswith("nmp_")]
    for _ in range(rng.randint(1, 8)):
        for mac in rng.sample(list(MacRegister), rng.randint(0, 4)):
            words += set_("nmp_mcfg", mac)
        for dma in rng.sample(list(DmaRegister), rng.randint(0, 4)):
            words += set_("nmp_dcfg", dma)
        item = rng.choice(work)
        address = 0x8000_0000 + rng.choice((0, 64, 0x400, 0x4000, 0x6000)) + rng.randrange(64)
        words += _li(isa, _T4, address if rng.random() < 0.95 else edge(rng))
        words += _li(isa, _T5, _sane(rng, "OFFSET"))
        if item.mnemonic in ("nmp_wait", "nmp_signal", "nmp_release"):
            words += _li(isa, _T4, rng.choice((0, 1, 1, 2)))
        words.append(_encoded(item, rng, rs1=_T4, rs2=_T5))
    return [*words, *_li(isa, 10, 0), *_li(isa, 17, 93), isa.encode("ecall")]


def _snowflake(rng: random.Random, isa: Isa) -> Words:
    from tvm_npu.sim.snowflake.isa import Special, Wait

    def movi(register: int, value: int) -> Words:
        low = ((value + (1 << 21)) & 0x3FFFFF) - (1 << 21)
        return [isa.encode("movi", dest=register, value=low)]

    words: Words = []
    for special in Special:
        words += movi(special, _sane(rng, special.name))
    work = [item for item in isa.instructions if item.mnemonic not in ("ble", "beq")]
    for _ in range(rng.randint(2, 24)):
        for special in rng.sample(list(Special), rng.randint(0, 2)):
            words += movi(special, _sane(rng, special.name))
        for register in (1, 2, 3):
            words += movi(register, rng.choice((0, 16, 64, 256, 1024, 0x10000 + 64, edge(rng, 22))))
        given = {name: number for number, name in enumerate(("memory", "place", "words"), 1)}
        given |= {"a": 1, "b": 2, "rs1": 1, "rs2": 2}
        if rng.random() < 0.5:
            given["length"] = rng.choice((1, 16, 64, 4096))
        words.append(_encoded(rng.choice(work), rng, **given))
    if rng.random() < 0.2:
        words.append(any_word(rng, isa))
    return [*words, isa.encode("sync", what=int(Wait.END), pending=0)]


def _template(rng: random.Random) -> bytes:
    """A DMA template, mostly one that works."""
    from tvm_npu.sim.parts.pl330.code import assemble
    from tvm_npu.sim.parts.pl330.isa import PL330_ISA, ChannelControl

    outside, chip = rng.choice((("sar", "dar"), ("dar", "sar")))
    control = ChannelControl(rng.choice((1, 2, 4, 8)), rng.randint(1, 16)).encode()
    code = assemble(
        f"dmamov {outside}, 0\ndmamov {chip}, 0\ndmamov ccr, {control}\ndmalp lc0, 2\n"
        "dmald\ndmast\ndmalpend lc0\ndmawmb\ndmasev 0\ndmaend\n"
    )
    if rng.random() < 0.6:
        pieces = bytearray(code)
        for _ in range(rng.randint(1, 3)):
            item = rng.choice(PL330_ISA.instructions)
            word = item.match
            for field in item.fields:
                word |= rng.getrandbits(48) & field.mask
            at = rng.randrange(len(pieces))
            pieces[at : at + rng.choice((0, 1, item.size_bytes))] = word.to_bytes(
                item.size_bytes, "little"
            )
        code = bytes(pieces)
    head = [len(code), 8, 0, 1, 2, 0]
    if rng.random() < 0.2:
        head[rng.randrange(6)] = edge(rng) & 0xFFFF_FFFF
    return np.array(head, "<u4").tobytes() + code


GRAMMARS: dict[str, Callable[[random.Random, Isa], Words]] = {
    "nmp": _nmp, "tiles": _tiles, "tiles-dma": _tiles, "snowflake": _snowflake,
}  # fmt: skip


def small_network(number: int = 0) -> tuple[Graph, Ranges, Any]:
    """A network, its ranges, and samples."""
    random_ = np.random.default_rng(number)

    def weights(*shape: int) -> Any:
        return random_.normal(size=shape).astype(np.float32) / 4

    relu = Clip(0.0, np.inf)
    graph = Graph(
        (
            Conv2d("c1", ("x",), ("a",), weights(4, 3, 3, 3), weights(4), padding=(1, 1, 1, 1),
                   activation=relu),
            Conv2d("c2", ("x",), ("b",), weights(4, 3, 1, 1), weights(4)),
            Elementwise("add", ("a", "b"), ("s",), "add", relu),
            Pool("p", ("s",), ("q",), "max", (2, 2), (2, 2)),
            Reshape("r", ("q",), ("f",)),
            Dense("fc", ("f",), ("z",), weights(5, 36), weights(5)),
        ),
        {"x": (3, 6, 6), "a": (4, 6, 6), "b": (4, 6, 6), "s": (4, 6, 6), "q": (4, 3, 3),
         "f": (36,), "z": (5,)},
        ("x",), ("z",),
    )  # fmt: skip
    samples = random_.normal(size=(2, 3, 6, 6)).astype(np.float32)
    return graph, calibrate(graph, [{"x": samples}]), samples


@lru_cache(maxsize=8)
def compiled(target: str, number: int) -> Program:
    """A small network for one of a target's machines."""
    graph, ranges, _ = small_network(number)
    machine = machines()[target][number]
    options = CompileOptions(precision=machine.default_precision)
    return compile_graph(graph, ranges, machine, options)


def changed_program(rng: random.Random, target: str) -> bytes:
    """A compiled network with some of its instructions, constants or relocations changed."""
    found = compiled(target, rng.randrange(len(machines()[target])))
    isa = machine_kind(found.machine_description().isa).isa
    code = found.code.copy()
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at = rng.randrange(len(code))
        word = int(code[at])
        decoded = isa.decode(word)
        if decoded is not None and decoded[0].fields and rng.random() < 0.7:
            field = rng.choice(decoded[0].fields)
            word = (word & ~field.mask) | (rng.getrandbits(32) & field.mask)
        elif rng.random() < 0.5:
            word = int(code[rng.randrange(len(code))])
        else:
            word = any_word(rng, isa)
        code[at] = word & 0xFFFF_FFFF
    constants = bytearray(found.constants)
    for _ in range(rng.choice((0, 0, 1, 4))):
        constants[rng.randrange(len(constants))] ^= 1 << rng.randrange(8)
    return replace(found, code=code, constants=bytes(constants)).to_bytes()


def program_case(rng: random.Random, target: str) -> bytes:
    """A program file for a simulator; one that the format refuses is made again."""
    while True:
        try:
            if rng.random() < 0.4:
                return changed_program(rng, target)
            machine = rng.choice(machines()[target])
            isa = machine_kind(machine.isa).isa
            words = GRAMMARS[target](rng, isa)
            head = _template(rng) if target == "tiles-dma" else b""
            return program(machine, words, (head + rng.randbytes(CONSTANT_BYTES))[:CONSTANT_BYTES])
        except ValueError:
            continue
