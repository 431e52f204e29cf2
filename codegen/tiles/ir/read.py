"""Text of an execution plan -> checked actions: all that the text says is what a machine can do.

The tiles lie in their tensors and memories, commands use what is on chip, every result is made once
from all its channels, and nothing is missing.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tvm_npu.codegen.plan.loops.plan import can_be_touched_only, touched
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.tiles.emit.actions import Tile
from tvm_npu.codegen.tiles.ir.document import Ir, IrError, tensor_of
from tvm_npu.codegen.tiles.ir.parse import Parsed, TileText, parse
from tvm_npu.codegen.tiles.ir.walk import Walk

STORED_WIDTHS = (1, 2, 4)
SUM_WIDTHS = (4, 8)
MOST_ELEMENTS = 1 << 28
"""Of a tensor: some eighty times the largest of VGG."""


def read_ir(text: str) -> Ir:
    """The execution plan that ``text`` says. Raises IrError with the line of what is wrong."""
    parsed = parse(text)
    problem = _problem(parsed)
    source = problem if "TOUCHED" not in parsed.info else touched(problem)
    tiles = {name: _tile(source, one) for name, one in parsed.tiles.items()}
    read = replace(Walk(parsed, source, tiles).ir(), taps_at_once=_taps(parsed, problem))
    return read if source is problem else _as_touched(parsed, read, problem)


def _taps(parsed: Parsed, problem: ConvProblem) -> int:
    """Raises IrError for more than the kernel has."""
    (taps,) = parsed.info.get("TAPS", (1,))
    if taps > prod(problem.kernel):
        raise IrError(
            f"TAPS({taps}): kernels have {prod(problem.kernel)} taps", parsed.info_lines["TAPS"]
        )
    return taps


def _as_touched(parsed: Parsed, read: Ir, problem: ConvProblem) -> Ir:
    """``read`` of the rows and columns that windows touch, as a plan of the whole input. Raises
    IrError where windows touch others, too."""
    line, apart = parsed.info_lines["TOUCHED"], parsed.info["TOUCHED"]
    whole = replace(
        read.problem, in_rows=problem.in_rows, in_columns=problem.in_columns,
        stride=(apart[0], apart[1]),
    )  # fmt: skip
    if read.problem.stride != (1, 1) or not can_be_touched_only(whole):
        raise IrError(
            f"TOUCHED({apart[0]},{apart[1]}) with kernel {whole.kernel}, stride "
            f"{read.problem.stride} and padding {whole.padding}: expected a kernel of 1x1 and more "
            "than 1, stride 1 and no padding",
            line,
        )
    for name, last, size in (
        ("rows", (whole.rows - 1) * apart[0], whole.in_rows),
        ("columns", (whole.columns - 1) * apart[1], whole.in_columns),
    ):
        if last >= size:
            raise IrError(f"TOUCHED: {name} up to {last}; INPUT has {size}", line)
    return replace(read, problem=whole, touched_only=True)


def _problem(parsed: Parsed) -> ConvProblem:
    """What [info] says; stride, padding and residual come with the commands."""
    _, channels, in_rows, in_columns = parsed.info["INPUT"]
    filters, depth, *kernel = parsed.info["WEIGHT"]
    _, out_channels, rows, columns = parsed.info["OUTPUT"]
    (groups,) = parsed.info.get("GROUPS", (1,))
    dilation = parsed.info.get("DILATION", (1, 1))
    element, sums = parsed.info.get("WORDS", (4, 4))
    for name in ("INPUT", "OUTPUT"):
        batch = parsed.info[name][0]
        if batch != 1:
            raise IrError(f"{name}: batch {batch}, expected 1", parsed.info_lines[name])
    for name in ("INPUT", "WEIGHT", "OUTPUT"):
        elements = prod(parsed.info[name])
        if elements > MOST_ELEMENTS:
            raise IrError(
                f"{name}: {elements} elements; at most {MOST_ELEMENTS}", parsed.info_lines[name]
            )
    for holds, name, message in (
        (filters == out_channels, "OUTPUT",
         f"OUTPUT has {out_channels} channels, WEIGHT {filters} filters"),
        (channels == depth * groups, "WEIGHT",
         f"INPUT has {channels} channels, WEIGHT {depth} in each of {groups} groups"),
        (filters % groups == 0, "GROUPS", f"{filters} filters in {groups} groups"),
        (element in STORED_WIDTHS, "WORDS", f"elements of {element} bytes, expected 1, 2 or 4"),
        (sums in SUM_WIDTHS, "WORDS", f"sums of {sums} bytes, expected 4 or 8"),
    ):  # fmt: skip
        if not holds:
            raise IrError(message, parsed.info_lines[name])
    return ConvProblem(
        filters=filters, channels=channels, groups=groups, rows=rows, columns=columns,
        in_rows=in_rows, in_columns=in_columns, kernel=(kernel[0], kernel[1]), stride=(1, 1),
        dilation=(dilation[0], dilation[1]), padding=(0, 0, 0, 0), element_bytes=element,
        accumulator_bytes=sums,
    )  # fmt: skip


def _tile(problem: ConvProblem, text: TileText) -> Tile:
    """Raises IrError for a tile that leaves its tensor."""
    whole = tensor_of(problem, text.kind)
    _, channels, height, width = whole
    batch, first, rows, columns = text.extents
    size = whole[0] * channels * height * width
    if text.offset >= size:
        raise IrError(f"{text.name} begins at {text.offset}, behind the tensor's {size}", text.line)
    plane = height * width
    at_batch, rest = divmod(text.offset, channels * plane)
    at_first, rest = divmod(rest, plane)
    at_rows, at_columns = divmod(rest, width)
    begins = (at_batch, at_first, at_rows, at_columns)
    axes = ("filters" if text.kind == "WEIGHT" else "batches", "channels", "rows", "columns")
    for axis, begin, count, total in zip(axes, begins, text.extents, whole, strict=True):
        if begin + count > total:
            raise IrError(
                f"{text.name} has {axis} {begin} to {begin + count - 1}; the tensor has {total}",
                text.line,
            )
    if text.kind != "WEIGHT":
        return Tile(text.kind, (at_first, first), (at_rows, rows), (at_columns, columns))
    if (rows, columns) != problem.kernel:
        raise IrError(
            f"{text.name} has kernels of {rows}x{columns}; those of the layer have "
            f"{problem.kernel[0]}x{problem.kernel[1]} and are not cut",
            text.line,
        )
    return Tile("WEIGHT", (at_batch, batch), (at_first, first), (0, 1))
