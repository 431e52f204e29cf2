"""The table of rules as a page: `python -m tvm_npu.door.document docs/rules.md`."""

from __future__ import annotations

import sys
from pathlib import Path

from tvm_npu.door.paying import (
    BORDER_OPERATIONS,
    ENTRY_OPERATIONS,
    PASS_OPERATIONS,
    SOFTMAX_OPERATIONS,
    SOFTMAX_ROWS,
)
from tvm_npu.door.rule_table import (
    CANCELS,
    CONTROL_FLOW,
    DOES_NOT_PAY,
    MACHINE_LACKS,
    NOTHING_TO_COMPUTE,
    ONLY_A_PART,
    SOFTMAX_IS_ROUNDED,
    SOFTMAX_STEPS,
    STEPS_ARE_NO_BATCH,
    TOO_WIDE,
    TUPLE_IS_PICKED,
    rule_table,
)

_INTRODUCTION = """\
# What the NPU takes

Made by `python -m tvm_npu.door.document` from the docstrings of `tvm_npu/door/rules.py` and the
`*_rules.py` beside it; they are also what a user reads when a rule refuses an operator.

An operator that is listed here and keeps its rules runs on an NPU that has instructions for its
layer; everything else stays on the CPU, and `explain(mod)` says for each which rule kept it there,
what was found and what is allowed. Operators have neutral names here; Relay's `nn.conv2d`, for
example, is `conv2d`.

"""

_RECURRENT = """\
LSTMs and GRUs that a frontend has unrolled over time (as TVM's ONNX frontend does) become one layer
each on a machine that has code for it: one direction, one image, all steps of one sequence, no
peepholes and no lengths of sequences. Other ones run operator by operator.
Sums that go into sigmoid and tanh are cut at -8 and 8, where both are flat. A GRU with
`linear_before_reset` adds two such sums to its new state: where calibration finds that cutting them
changes it, a `CutTermsWarning` names the layer and their range.
"""
_CALIBRATION = "What the values say that tensors take in calibration:"
_PAYING = """\
A region pays when it saves the CPU more operations than it costs. It saves one operation for each
element that its operators compute (16 for sigmoid, tanh, exp and their kind, 24 for softmax). It
costs {entry:,} operations for the call and {border} for each element that enters or leaves: it is
scaled, rounded and bounded there. Regions with weights, pools or means are taken without asking.
A softmax that nothing in its region computes with costs {softmax:,} operations for its steps and,
for each element, {each} (or those of the CPU, where fewer than {rows} rows are at work at a time).
`offload="all"` (`--offload all`, `-offload=all` in tvmc, an option of `tvm_npu.target`) takes every
region that the rules allow, and does not look at digits either.
"""
_ELSEWHERE = "What the neighbours of an operator decide, and the machine:\n"


def rules_document() -> str:
    """Markdown: one row an operator."""
    lines = ["| operator | rules |", "| --- | --- |"]
    for operator, rules in rule_table():
        shown = operator
        if operator != "every operator":
            shown = f'<a id="{operator}"></a>`{operator}`'
        lines.append(f"| {shown} | {'<br>'.join(rules).replace('|', chr(92) + '|')} |")
    return _INTRODUCTION + "\n".join([*lines, "", _RECURRENT, _ELSEWHERE, *_elsewhere()]) + "\n"


def _elsewhere() -> list[str]:
    texts = (
        CONTROL_FLOW, TUPLE_IS_PICKED, NOTHING_TO_COMPUTE, DOES_NOT_PAY, SOFTMAX_STEPS,
        SOFTMAX_IS_ROUNDED, MACHINE_LACKS, STEPS_ARE_NO_BATCH, ONLY_A_PART,
    )  # fmt: skip
    lines = [f"- {text}" for text in texts]
    return [*lines, "", f"{_CALIBRATION}\n", *(f"- {text}" for text in (TOO_WIDE, CANCELS))] + [
        "", _PAYING.format(entry=ENTRY_OPERATIONS, border=BORDER_OPERATIONS,
            softmax=SOFTMAX_OPERATIONS, each=PASS_OPERATIONS, rows=SOFTMAX_ROWS).rstrip()
    ]  # fmt: skip


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(rules_document(), "utf-8")
    else:
        sys.stdout.write(rules_document())
