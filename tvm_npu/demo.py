"""The whole way once: `python -m tvm_npu.demo` (or scripts/demo).

A LeNet for handwritten digits goes from ONNX through TVM into a program for the NPU; the simulated
NPU then reads test digits that the network has never seen.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from tvm_npu.cli.arguments import positive
from tvm_npu.cli.entry import explained
from tvm_npu.cli.errors import CliError
from tvm_npu.cli.files import check_writable, write_json
from tvm_npu.cli.terminal import COMPILING, PATIENCE_S, after
from tvm_npu.errors import NpuError
from tvm_npu.sim.statistics import RunStatistics

CPU, NPU = "TVM on the CPU, float32", "TVM with the NPU"


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/demo", description="Digits through TVM and the simulated NPU."
    )
    parser.add_argument("--machine", default="nmp-4x8", help="name or file (nmp-4x8)")
    parser.add_argument("--precision", choices=("int16", "int8"), help="default: the machine's")
    parser.add_argument("--images", type=positive, metavar="N", help="read N test digits (all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there, too")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    chosen = arguments(argv)
    try:
        if chosen.json:
            check_writable(chosen.json)
        run(chosen)
    except (NpuError, CliError, ModuleNotFoundError) as error:
        print(f"scripts/demo: error: {explained(error)}", file=sys.stderr)
        return 1
    return 0


def run(chosen: argparse.Namespace) -> None:
    from tvm_npu.door.models import build_onnx
    from tvm_npu.models.data import load_digits, load_digits_calibration, load_digits_lenet
    from tvm_npu.runtime import last_session

    console = Console()
    images, labels = load_digits()
    images, labels = images[: chosen.images], labels[: chosen.images]
    model = load_digits_lenet()

    on_cpu = build_onnx(model, target=None)
    on_npu = build_onnx(
        model,
        target=chosen.machine,
        calibration=load_digits_calibration(),
        precision=chosen.precision,
    )
    assert on_npu.report is not None
    console.print(on_npu.report.split_table())

    right = {}
    for name, built in ((CPU, on_cpu), (NPU, on_npu)):
        with after(PATIENCE_S, lambda: console.print(f"{COMPILING} ...")):
            digits = [int(built.run({"image": images[:1]})[0].argmax())]
        digits += [
            int(built.run({"image": image[None]})[0].argmax())
            for image in track(
                images[1:], name, console=console, transient=True, disable=not console.is_terminal
            )
        ]
        right[name] = int((np.array(digits) == labels).sum())
    session = last_session()
    total = session.total_statistics
    cycles = total.cycles / total.runs

    console.print(layer_table(session.statistics))
    for name, count in right.items():
        console.print(f"{name}: {count} of {len(labels)} digits right, {count / len(labels):.1%}")
    console.print(
        f"{cycles:,.0f} cycles a digit: {total.time_us / total.runs:.1f} us at "
        f"{session.machine.frequency_mhz:g} MHz on {session.machine.name}, simulated"
    )
    if chosen.json:
        results = {
            "machine": session.machine.name,
            "precision": on_npu.report.precision,
            "digits": len(labels),
            "right_float32": right[CPU],
            "right_npu": right[NPU],
            "cycles_per_digit": cycles,
            "time_per_digit_us": total.time_us / total.runs,
            "last_run": session.statistics.to_dict(),
        }
        write_json(chosen.json, results)


def layer_table(statistics: RunStatistics) -> Table:
    table = Table(title="one digit on the simulated NPU")
    table.add_column("layer")
    for heading in ("cycles", "MACs", "loaded bytes", "stored bytes"):
        table.add_column(heading, justify="right")
    for layer in statistics.layers:
        table.add_row(
            layer.name,
            f"{layer.cycles:,.0f}",
            f"{layer.macs:,}",
            f"{sum(layer.loaded_bytes.values()):,}",
            f"{sum(layer.stored_bytes.values()):,}",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
