"""The document of Snowflake's instructions:
`python -m tvm_npu.sim.snowflake.document docs/isa-snowflake.md`."""

from __future__ import annotations

from tvm_npu.sim.isa.document import field_table, instruction_table, main, names_section
from tvm_npu.sim.snowflake.isa import (
    BANK_INSTRUCTIONS,
    BANKS,
    DELAY_SLOTS,
    SCALARS,
    SNOWFLAKE_INSTRUCTIONS,
    SNOWFLAKE_ISA,
    Buffer,
    Finish,
    Layout,
    MacMode,
    Preload,
    Shared,
    SnowflakeStream,
    Special,
    VmacSelect,
    Wait,
)

_INTRODUCTION = """\
# Snowflake's instruction set

Made by `python -m tvm_npu.sim.snowflake.document` from the table in `sim/snowflake/isa.py`, which
also gives the encoder, the decoder, the assembler, the disassembler and the simulator's dispatch.
[snowflake.md](snowflake.md) says how the machine executes them: traces, layouts, order, time.

The control core of a cluster executes {count} instructions of 32 bits from {banks} banks of
{bank} instructions. Every bit of an instruction is either constant or part of an operand, and no
word is two instructions; a word that is none of them traps. A branch takes effect behind {slots}
delay slots. There are {scalars} scalar registers of 32 bits; what mov, movi, add, addi and mul
compute keeps the low 32 bits, signed. They can write special registers too, which vector and
memory instructions read when they issue; no instruction reads one as a scalar. A word is 16 bits,
signed.
"""


def snowflake_document() -> str:
    """The whole document, Markdown."""
    parts = [
        _INTRODUCTION.format(
            count=len(SNOWFLAKE_INSTRUCTIONS),
            banks=BANKS,
            bank=BANK_INSTRUCTIONS,
            slots=DELAY_SLOTS,
            scalars=SCALARS,
        ),
        "## Instructions\n",
        instruction_table(SNOWFLAKE_INSTRUCTIONS),
        "## Operands\n",
        "An operand that names a register takes r0 to r31; `dest` takes special registers too.\n",
        field_table(SNOWFLAKE_ISA),
        names_section("`dest`: special registers", Special),
        names_section("`mode` of mac", MacMode),
        names_section("`finish` of mac", Finish),
        names_section("`what` of vmov", Preload),
        names_section("`layout` of vmov", Layout),
        names_section("`what` of sync", Wait),
        names_section("`buffer` of ld", Buffer),
        names_section("`vmac` of ld", VmacSelect),
        names_section("`shared` of ld", Shared),
        names_section("`stream`: what a transfer carries", SnowflakeStream),
    ]
    return "\n".join(parts)


if __name__ == "__main__":
    main(snowflake_document())
