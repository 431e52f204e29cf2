"""Code for disassemblers: instructions with operands at random, words and bytes at random."""

from __future__ import annotations

import random
import struct

from fuzzing.codes import any_word
from fuzzing.mutation import changed, edge
from tvm_npu.sim.isa.table import Isa
from tvm_npu.sim.kinds import machine_kind
from tvm_npu.sim.parts.pl330.isa import PL330_ISA

MOST_WORDS = 2000


def changed_words(rng: random.Random, data: bytes, isa: str) -> bytes:
    """Code with words changed or at random, at some address, perhaps the last of all."""
    choice = rng.random()
    if choice < 0.2:
        return changed(rng, data, 1 << 14)
    table = machine_kind(isa).isa
    base = struct.pack("<I", edge(rng, 32) & 0xFFFF_FFFF) if rng.random() < 0.5 else data[:4]
    if choice < 0.6:
        words = [any_word(rng, table) for _ in range(rng.choice((1, 4, 50, MOST_WORDS)))]
        return base + struct.pack(f"<{len(words)}I", *words)
    code = bytearray(data[4:])
    for _ in range(rng.choice((1, 2, 8, 40))):
        at = 4 * rng.randrange(len(code) // 4)
        code[at : at + 4] = struct.pack("<I", _changed_word(rng, code[at : at + 4], table))
    return base + bytes(code)


def _changed_word(rng: random.Random, old: bytes | bytearray, isa: Isa) -> int:
    word = int.from_bytes(old, "little")
    decoded = isa.decode(word)
    if decoded is not None and decoded[0].fields and rng.random() < 0.7:
        field = rng.choice(decoded[0].fields)
        value = rng.choice((0, -1, 1, rng.getrandbits(32)))
        return ((word & ~field.mask) | (value & field.mask)) & 0xFFFF_FFFF
    return any_word(rng, isa) & 0xFFFF_FFFF


def changed_dma_code(rng: random.Random, data: bytes) -> bytes:
    """Instructions of the DMA controller with operands at random, cut off anywhere."""
    if rng.random() < 0.3:
        return changed(rng, data, 1 << 14)
    found = bytearray()
    for _ in range(rng.choice((1, 4, 50, MOST_WORDS))):
        item = rng.choice(PL330_ISA.instructions)
        word = item.match
        for field in item.fields:
            word |= rng.getrandbits(64) & field.mask
        found += (word & ((1 << (8 * item.size_bytes)) - 1)).to_bytes(item.size_bytes, "little")
        if rng.random() < 0.02:
            found.append(rng.getrandbits(8))
    return bytes(found[: -rng.choice((1, 2))] if rng.random() < 0.3 else found)
