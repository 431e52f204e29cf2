"""The table of rules as a page: `python -m tvm_npu.door.document docs/rules.md`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from tvm_npu.door.paying import (
    BORDER_OPERATIONS,
    ENTRY_OPERATIONS,
    PASS_OPERATIONS,
    SOFTMAX_OPERATIONS,
    SOFTMAX_ROWS,
)
from tvm_npu.door.rule_table import (
    ANCHORS,
    CANCELS,
    EVERY_OPERATOR,
    RULES,
    TOO_WIDE,
    UNKNOWN_OPERATOR,
    remedies,
    rule_table,
)

_INTRODUCTION = """\
# What the NPU takes

Made by `python -m tvm_npu.door.document` from the docstrings of `tvm_npu/door/rules.py` and the
`*_rules.py` beside it; they are also what a user reads when a rule refuses an operator.

<a id="unknown-operator"></a>
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
_REMEDIES = "What helps against some broken rules, as reports say it:\n"
_ELSEWHERE = "What the neighbours of an operator decide, and the machine:\n"


def rules_document() -> str:
    """Markdown: one row an operator."""
    lines = ["| operator | rules |", "| --- | --- |"]
    for operator, rules in rule_table():
        shown = f"{_anchor(operator)}`{operator}`"
        if operator not in RULES:
            shown = f"{_anchor(EVERY_OPERATOR)}{operator}"
        lines.append(f"| {shown} | {'<br>'.join(map(_in_cell, rules))} |")
    return _INTRODUCTION + "\n".join([*lines, "", _RECURRENT, _ELSEWHERE, *_elsewhere()]) + "\n"


def _elsewhere() -> list[str]:
    of_values = (TOO_WIDE, CANCELS)
    texts = [text for text in ANCHORS if text not in (*of_values, UNKNOWN_OPERATOR)]
    paying = _PAYING.format(
        entry=ENTRY_OPERATIONS, border=BORDER_OPERATIONS, softmax=SOFTMAX_OPERATIONS,
        each=PASS_OPERATIONS, rows=SOFTMAX_ROWS,
    )  # fmt: skip
    by_remedy: dict[str, list[str]] = {}
    for rule, remedy in remedies().items():
        by_remedy.setdefault(remedy, []).append(rule)
    return [
        *_listed(texts), "", f"{_CALIBRATION}\n", *_listed(of_values), "", paying, _REMEDIES,
        "| what helps | broken rules |", "| --- | --- |",
        *(
            f"| {_as_code(_in_cell(remedy))} | {'<br>'.join(map(_in_cell, texts))} |"
            for remedy, texts in by_remedy.items()
        ),
    ]  # fmt: skip


def _as_code(remedy: str) -> str:
    """Commands and options in quotes as code, as pages have them."""
    return re.sub(r"'((?:tvm-npu |--)[^']+)'", r"`\1`", remedy)


def _listed(texts: Iterable[str]) -> list[str]:
    return [f"- {_anchor(ANCHORS[text])}{text}" for text in texts]


def _anchor(name: str) -> str:
    return f'<a id="{name}"></a>'


def _in_cell(text: str) -> str:
    return text.replace("|", chr(92) + "|")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(rules_document(), "utf-8")
    else:
        sys.stdout.write(rules_document())
