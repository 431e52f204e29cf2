"""The document of Snowflake's instructions:
`python -m tvm_npu.sim.snowflake.document docs/isa-snowflake.md`."""

from __future__ import annotations

from inspect import cleandoc

from tvm_npu.sim.isa.document import (
    field_table,
    instruction_table,
    main,
    markdown_table,
    names_section,
)
from tvm_npu.sim.snowflake.isa import (
    ALLOWED,
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
from tvm_npu.sim.snowflake.traps import MEANINGS

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
memory instructions read when they issue; no instruction reads one as a scalar. Numbers of `dest`
without a name can be written, and nothing reads them. A word is 16 bits, signed.
"""

_TRAPS = """\
## Traps

A cluster that cannot execute an instruction traps there, and the device stops. Nothing is read or
written before its place was checked. Which one of several faults of an instruction is named is not
said. A sum that overflows is found out when its instruction executes: the core may have issued
others, and may have trapped at one of them, as long as it need not know that the instruction is
complete.

{table}
A number of an operand that has no name here cannot be used; what an instruction does not need is
not looked at:

- `ld icache` does not use `vmac`, `cus` and the special registers of `ld`. `place` is 0 or 512,
  `words` 2 to 1024 and even, `memory` a multiple of 4.
- `ld` and `tmov` of one run do not use the steps. `words` is 1 to the words of the buffer. Bytes
  from the first to the last of all runs, gaps included, lie in one segment of the image. `cus` of
  `ld` and `cu` of `tmov` name CUs that are there, `cus` at least one.
- `sync` uses `pending` for vector, load and store alone.
- Instructions that write results need SHIFT, LOW, HIGH, DIVISOR, SUM_SHIFT and RESIDUAL_SHIFT that
  can be used, also where the result does not depend on them.
- `mac` in modes indp and lane needs a `b` that is a multiple of 16; streams need finish result.
- `mac` in mode coop and `vmov` with layout coop need TARGET, `vmov bias` too.
- Shared loads of all clusters agree in buffer, `memory`, `words`, runs and the step in memory; the
  place, its step, CUs and vMACs may differ.
"""

_DEPENDS = {
    Special.OUTPUTS: "1 to 4 times the CUs in coop, to 64 in the others",
    Special.TARGET: "1 to a bit for every CU",
    Special.CUS: "1 to a bit for every CU",
    Special.LD_MEMORY_STEP: "even",
    Special.ST_MEMORY_STEP: "even",
}


def _allowed(item: Special) -> str:
    if item == Special.HIGH:
        return f"LOW to {ALLOWED[item][1]}"
    low, high = ALLOWED.get(item, (0, 0))
    return f"{low} to {high}" if high else _DEPENDS.get(item, "")


def _special_section() -> str:
    rows = ((str(int(item)), f"`{item.name}`", item.meaning, _allowed(item)) for item in Special)
    return f"### `dest`: special registers\n\n{cleandoc(Special.__doc__ or '')}\n\n" + (
        markdown_table(("value", "name", "meaning", "can be used"), rows)
    )


def _trap_table() -> str:
    return markdown_table(
        ("trap", "for"), ((f"`{code.name}`", meaning) for code, meaning in MEANINGS.items())
    )


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
        _TRAPS.format(table=_trap_table()),
        "## Instructions\n",
        instruction_table(SNOWFLAKE_INSTRUCTIONS),
        "## Operands\n",
        "An operand that names a register takes r0 to r31; `dest` takes special registers too.\n",
        field_table(SNOWFLAKE_ISA),
        _special_section(),
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
