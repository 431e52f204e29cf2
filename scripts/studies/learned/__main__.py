"""The tuning benchmark: tuners against each other and against `exact`, and the cost models behind
them against the simulator."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from studies.learned.plots import plot
from studies.learned.reranking import RerankRow, measure_shortlist, rerank
from studies.learned.searches import (
    CorrelationRow,
    SearchRow,
    correlations,
    search_layer,
    search_rows,
)
from studies.learned.subjects import (
    TUNED_LAYERS,
    TUNED_NETWORK,
    network_layers,
    tuned_layers,
)
from studies.learned.tables import print_correlations, print_reranking, print_searches
from studies.tso.command import check_outputs, exit_code
from studies.tso.drawing import FORMATS
from studies.tso.errors import ReproductionError
from studies.tso.tso_published import TITLES
from tvm_npu.cli.arguments import positive
from tvm_npu.cli.files import write_bytes, write_json
from tvm_npu.cli.terminal import Steps, open_terminal
from tvm_npu.codegen.errors import CodegenError
from tvm_npu.codegen.tune.model import load_xgboost
from tvm_npu.codegen.tune.tuners import tuner_names
from tvm_npu.sim.errors import MachineError
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine

MACHINE = "nmp-4x8"
TRIALS, SEEDS, LISTED = 96, 3, 8


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench_learned",
        description="The learned tuner, random search and annealing alone on three layers of\n"
        "ResNet-50: the best plan found against trials, beside the plan of 'exact'; the cost\n"
        "model's rank correlation with the simulator; and what 'exact' gains when a model of its\n"
        "errors, trained on other networks, ranks its best plans anew. Everything is simulated,\n"
        "and every value checked against the reference, bit for bit.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="exit codes: 0 done; 1 values differ or a file cannot be written; 2 the command\n"
        "line is wrong",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE",
        help="write all rows as JSON; their key 'table' says of which table",
    )  # fmt: skip
    parser.add_argument(
        "--plot", type=Path, metavar="FILE",
        help=f"draw it ({', '.join('.' + one for one in FORMATS)}); needs matplotlib",
    )  # fmt: skip
    parser.add_argument(
        "--machine", type=_machine, metavar="NAME|FILE", default=load_nmp_machine(MACHINE),
        help=f"(default: {MACHINE})",
    )  # fmt: skip
    parser.add_argument(
        "--trials", type=positive, default=TRIALS, metavar="N",
        help=f"of each run (default: {TRIALS})",
    )  # fmt: skip
    parser.add_argument(
        "--seeds", type=positive, default=SEEDS, metavar="N",
        help=f"runs of each tuner on each layer (default: {SEEDS})",
    )  # fmt: skip
    parser.add_argument(
        "--models", nargs="+", choices=tuple(TITLES), default=list(TITLES), metavar="NAME",
        help="networks of the last table, at least two, each judged by what the others teach: of "
        f"{', '.join(TITLES)} (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--listed", type=positive, default=LISTED, metavar="N",
        help=f"plans of 'exact' a layer that are ranked (default: {LISTED})",
    )  # fmt: skip
    return parser


def _machine(name: str) -> NmpMachine:
    try:
        return load_nmp_machine(name)
    except MachineError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def run(options: argparse.Namespace) -> None:
    """Raises ReproductionError and CliError."""
    load_xgboost()
    check_outputs([options.json], options.plot)
    models = list(dict.fromkeys(options.models))
    if len(models) < 2:
        raise ReproductionError(f"{len(models)} network in --models; at least 2")
    terminal = open_terminal()
    machine = options.machine
    with terminal.steps() as steps:
        wanted = list(dict.fromkeys([TUNED_NETWORK, *models]))
        runs = len(TUNED_LAYERS) * len(tuner_names()) * options.seeds
        steps.expect(2 * len(wanted) + runs)
        networks = {}
        for model in wanted:
            steps.begin(f"{model}: collecting layers")
            networks[model] = network_layers(model, machine)
            steps.done()
        searches = []
        for layer, problem in tuned_layers(networks[TUNED_NETWORK]).items():
            steps.begin(f"tuning {layer}")
            after = _announcing(steps, layer)
            searches.append(
                search_layer(layer, problem, machine, options.seeds, options.trials, after)
            )
        correlated = [row for search in searches for row in correlations(search)]
        chosen = [networks[model] for model in models]
        measured = {}
        for network in chosen:
            steps.begin(f"{network.model}: measuring {options.listed} plans a layer")
            for one in network.questions:
                if one.problem not in measured:
                    measured[one.problem] = measure_shortlist(one.problem, machine, options.listed)
            steps.done()
        reranked = rerank(chosen, measured, machine)
    searched = [row for search in searches for row in search_rows(search)]
    if options.json is not None:
        rows: list[SearchRow | CorrelationRow | RerankRow] = [*searched, *correlated, *reranked]
        write_json(options.json, [asdict(row) for row in rows])
    if options.plot is not None:
        drawn = plot(searches, correlated, reranked, options.plot.suffix[1:].lower())
        write_bytes(options.plot, drawn)
    print_searches(terminal.out, searches)
    print_correlations(terminal.out, correlated)
    print_reranking(terminal.out, reranked)


def _announcing(steps: Steps, layer: str):  # type: ignore[no-untyped-def]
    def after(tuner: str, seed: int) -> None:
        steps.begin(f"tuning {layer}: {tuner}, seed {seed}")
        steps.done()

    return after


def _run(options: argparse.Namespace) -> None:
    """Errors of planning and of the cost model are the benchmark's own."""
    try:
        run(options)
    except CodegenError as error:
        raise ReproductionError(str(error)) from error


def main(arguments: Sequence[str] | None = None) -> int:
    options = make_parser().parse_args(arguments)
    return exit_code("bench_learned", lambda: _run(options))


if __name__ == "__main__":
    sys.exit(main())
