"""The table of rules as a page: `python -m tvm_npu.door.document docs/rules.md`."""

from __future__ import annotations

import sys
from pathlib import Path

from tvm_npu.door.rule_table import (
    CONTROL_FLOW,
    MACHINE_LACKS,
    NOTHING_TO_COMPUTE,
    STEPS_ARE_NO_BATCH,
    TUPLE_IS_PICKED,
    rule_table,
)

_INTRODUCTION = """\
# What the NPU takes

Made by `python -m tvm_npu.door.document` from the docstrings of `tvm_npu/door/rules.py` and
`tvm_npu/door/memory_rules.py`; they are also what a user reads when a rule refuses an operator.

An operator that is listed here and keeps its rules runs on an NPU that has instructions for its
layer; everything else stays on the CPU, and `explain(mod)` says for each which rule kept it there,
what was found and what is allowed. Operators have neutral names here; Relay's `nn.conv2d`, for
example, is `conv2d`.

"""

_RECURRENT = """\
LSTMs and GRUs that a frontend has unrolled over time (as TVM's ONNX frontend does) become one layer
each on a machine that has code for it: one direction, one image, all steps of one sequence, no
peepholes and no lengths of sequences. Other ones run operator by operator.
"""
_ELSEWHERE = "What the neighbours of an operator decide, and the machine:\n"


def rules_document() -> str:
    """Markdown: one row an operator."""
    lines = ["| operator | rules |", "| --- | --- |"]
    for operator, rules in rule_table():
        shown = operator if operator == "every operator" else f"`{operator}`"
        lines.append(f"| {shown} | {'<br>'.join(rules).replace('|', chr(92) + '|')} |")
    return _INTRODUCTION + "\n".join([*lines, "", _RECURRENT, _ELSEWHERE, *_elsewhere()]) + "\n"


def _elsewhere() -> list[str]:
    texts = (
        CONTROL_FLOW, TUPLE_IS_PICKED, NOTHING_TO_COMPUTE, MACHINE_LACKS, STEPS_ARE_NO_BATCH,
    )  # fmt: skip
    return [f"- {text}" for text in texts]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(rules_document(), "utf-8")
    else:
        sys.stdout.write(rules_document())
