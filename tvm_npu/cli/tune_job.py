"""What ``tvm-npu tune`` does: collects layers, tries plans, shows the best."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from tvm_npu.cli.errors import CliError
from tvm_npu.cli.files import check_outputs, write_json
from tvm_npu.cli.model_job import load_and_partition
from tvm_npu.cli.tables import Column, make_table
from tvm_npu.cli.terminal import Terminal
from tvm_npu.codegen.tune.log import LogWriter, Run
from tvm_npu.codegen.tune.model import load_xgboost
from tvm_npu.codegen.tune.space import check_tunable
from tvm_npu.options import DEFAULT_PLANNER, make_options
from tvm_npu.tuning.model import TunedLayer, questions, tune_layer


def run_tune(args: argparse.Namespace, terminal: Terminal) -> int:
    """Exit code of ``tvm-npu tune``."""
    if args.tuner == "learned":
        load_xgboost()
    check_tunable(make_options(args.machine).machine)
    check_outputs(args, "log", "json")
    asked = argparse.Namespace(
        **vars(args), planner=DEFAULT_PLANNER, tuning_log=None, images=None
    )
    tuned: list[TunedLayer] = []
    with LogWriter(args.log) as log, terminal.steps() as steps:
        job = load_and_partition(asked, terminal, steps, args.precision == "auto")
        machine = job.options.machine
        steps.begin("collecting layers")
        graphs = job.partitioned.fixed_graphs().values()
        found = questions(graphs, machine)  # type: ignore[arg-type]
        if not found:
            raise CliError(f"no layer of {str(args.model)!r} needs a plan; nothing to tune")
        run = Run(args.tuner, args.warm, args.seed)
        steps.expect(2 + len(found) * args.trials)
        for number, question in enumerate(found, 1):
            best = float("inf")
            title = f"{question.name} ({number} of {len(found)})"
            steps.begin(title)

            def after(trial: int, cycles: float | None, title: str = title) -> None:
                nonlocal best
                best = min(best, cycles or best)
                steps.begin(f"{title}: trial {trial + 1}, best {best:,.0f} cycles")
                steps.done()

            tuned.append(
                tune_layer(question, machine, run, args.trials, log, after, args.limits)
            )
    terminal.out.print(make_table(columns(tuned), terminal.out.width))
    new = sum(layer.measured for layer in tuned)
    total = sum(layer.trials for layer in tuned)
    terminal.out.print(f"{total:,} trials, {new:,} of them new, in {args.log}", soft_wrap=True)
    if args.json is not None:
        write_json(args.json, [asdict(layer) for layer in tuned])
    return 0


def columns(tuned: list[TunedLayer]) -> list[Column]:
    def cycles(value: float | None) -> str:
        return "none" if value is None else f"{value:,.0f}"

    def ratio(layer: TunedLayer) -> str:
        if layer.best_cycles is None or layer.exact_cycles is None:
            return ""
        return f"{layer.best_cycles / layer.exact_cycles:.3f}"

    return [
        Column("layer", tuple(layer.layer for layer in tuned), name=True),
        Column("layers\nlike it", tuple(str(layer.layers) for layer in tuned)),
        Column("trials", tuple(str(layer.trials) for layer in tuned)),
        Column("failed", tuple(str(layer.failed) for layer in tuned)),
        Column("best\ncycles", tuple(cycles(layer.best_cycles) for layer in tuned)),
        Column("exact's\ncycles", tuple(cycles(layer.exact_cycles) for layer in tuned)),
        Column("best /\nexact", tuple(ratio(layer) for layer in tuned)),
    ]
