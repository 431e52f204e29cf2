"""The tuning benchmark: tuners against each other and against `exact`, and the cost models behind
them against the simulator."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rich.console import Console

from studies.harness.errors import StudyError
from studies.harness.options import add_number, add_several, machine_of
from studies.harness.study import Bench, Key, Part, Study, Texts
from studies.learned.plots import plot
from studies.learned.reranking import Measured, RerankRow, measure_shortlist, rerank
from studies.learned.searches import (
    CorrelationRow,
    LayerSearch,
    correlations,
    exact_cycles_of,
    search_rows,
    tuned_layer,
)
from studies.learned.subjects import (
    TUNED_LAYERS,
    TUNED_NETWORK,
    NetworkLayers,
    network_layers,
    tuned_layers,
)
from studies.learned.tables import print_correlations, print_reranking, print_searches
from studies.shared.titles import TITLES
from tvm_npu.cli.arguments import positive
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.tune.conv_space import ConvSpace
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.tune.model import load_xgboost
from tvm_npu.codegen.tune.tune import Tuned
from tvm_npu.codegen.tune.tuners import tuner_names
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine

MACHINE = "nmp-4x8"
TRIALS, SEEDS, LISTED = 96, 3, 8
LAYERS, EXACT, CORRELATION, PLANS, RERANKING = (
    "collecting layers", "exact", "correlation", "measuring the best plans", "re-ranking",
)  # fmt: skip


@dataclass(frozen=True)
class Learned:
    """What was found, table by table."""

    searches: list[LayerSearch]
    correlated: list[CorrelationRow]
    reranked: list[RerankRow]


class LearnedStudy(Study[Learned]):
    name = "bench_learned"
    texts = Texts(
        "The learned tuner, random search and annealing alone on three layers of\n"
        "ResNet-50: the best plan found against trials, beside the plan of 'exact'; the cost\n"
        "model's rank correlation with the simulator; and what 'exact' gains when a model of its\n"
        "errors, trained on other networks, ranks its best plans anew. Everything is simulated,\n"
        "and every value checked against the reference, bit for bit.",
        files={"json": "write all rows as JSON; their key 'table' says of which table"},
    )
    draws = True

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--machine", type=machine_of(load_nmp_machine), metavar="NAME|FILE",
            default=load_nmp_machine(MACHINE), help=f"(default: {MACHINE})",
        )  # fmt: skip
        add_number(parser, "--trials", TRIALS, "of each run", positive)
        add_number(parser, "--seeds", SEEDS, "runs of each tuner on each layer", positive)
        add_several(
            parser, "--models", "model", tuple(TITLES),
            note="networks of the last table, at least two, each judged by what the others teach, ",
        )  # fmt: skip
        add_number(parser, "--listed", LISTED, "plans of 'exact' a layer that are ranked", positive)

    def parts(self, options: argparse.Namespace) -> list[Part[Any]]:
        load_xgboost()
        models: list[str] = options.models
        if len(models) < 2:
            raise StudyError(f"{len(models)} network in --models; at least 2")
        machine: NmpMachine = options.machine
        wanted = list(dict.fromkeys([TUNED_NETWORK, *models]))
        parts: list[Part[Any]] = [
            Part((model, LAYERS), NetworkLayers, partial(_layers, model, machine))
            for model in wanted
        ]
        for layer in TUNED_LAYERS:
            parts.append(Part((layer, EXACT), float, partial(_exact, layer, machine)))
            parts += [
                Part(
                    (layer, tuner, f"seed {seed}"), Tuned[ConvPlan],
                    partial(_tuned, layer, machine, tuner, seed, options.trials),
                )
                for tuner in tuner_names()
                for seed in range(options.seeds)
            ]  # fmt: skip
            judged = partial(_correlations, layer, machine, options.seeds)
            parts.append(Part((layer, CORRELATION), list[CorrelationRow], judged))
        for model in models:
            plans = partial(_plans, model, machine, options.listed)
            parts.append(Part((model, PLANS), list[Measured], plans))
        ranked = partial(_reranked, models, machine)
        return [*parts, Part((RERANKING,), list[RerankRow], ranked)]

    def collect(self, options: argparse.Namespace, found: Mapping[Key, Any]) -> Learned:
        return Learned(
            [_search(layer, options.seeds, found) for layer in TUNED_LAYERS],
            [row for layer in TUNED_LAYERS for row in found[layer, CORRELATION]],
            found[(RERANKING,)],
        )

    def rows(self, result: Learned) -> Mapping[str, Sequence[Any]]:
        searched = [row for search in result.searches for row in search_rows(search)]
        return {"json": [*searched, *result.correlated, *result.reranked]}

    def draw(self, result: Learned, file_format: str) -> bytes:
        return plot(result.searches, result.correlated, result.reranked, file_format)

    def show(self, console: Console, result: Learned) -> None:
        print_searches(console, result.searches)
        print_correlations(console, result.correlated)
        print_reranking(console, result.reranked)


STUDY = LearnedStudy()


def _layers(model: str, machine: NmpMachine, bench: Bench) -> NetworkLayers:
    return network_layers(model, machine)


def _problem(layer: str, bench: Bench) -> ConvProblem:
    return tuned_layers(bench.found[TUNED_NETWORK, LAYERS])[layer]


def _exact(layer: str, machine: NmpMachine, bench: Bench) -> float:
    return exact_cycles_of(layer, _problem(layer, bench), machine)


def _tuned(
    layer: str, machine: NmpMachine, tuner: str, seed: int, trials: int, bench: Bench
) -> Tuned[ConvPlan]:
    return tuned_layer(_problem(layer, bench), machine, tuner, seed, trials)


def _search(layer: str, seeds: int, found: Mapping[Key, Any]) -> LayerSearch:
    runs = {
        (tuner, seed): found[layer, tuner, f"seed {seed}"]
        for tuner in tuner_names()
        for seed in range(seeds)
    }
    return LayerSearch(layer, found[layer, EXACT], runs)


def _correlations(
    layer: str, machine: NmpMachine, seeds: int, bench: Bench
) -> list[CorrelationRow]:
    space = ConvSpace(_problem(layer, bench), machine)
    return correlations(_search(layer, seeds, bench.found), space)


def _plans(model: str, machine: NmpMachine, listed: int, bench: Bench) -> list[Measured]:
    """In the order of the network's questions."""
    network: NetworkLayers = bench.found[model, LAYERS]
    return [measure_shortlist(one.problem, machine, listed) for one in network.questions]


def _reranked(models: Sequence[str], machine: NmpMachine, bench: Bench) -> list[RerankRow]:
    networks: list[NetworkLayers] = [bench.found[model, LAYERS] for model in models]
    measured = {
        question.problem: plans
        for network in networks
        for question, plans in zip(
            network.questions, bench.found[network.model, PLANS], strict=True
        )
    }
    return rerank(networks, measured, machine)
