"""The Snowflake reproduction: its counts, its variants, its rows, its command."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from studies.harness.command import main
from studies.shared.counting import least_bytes
from studies.snowflake import work
from studies.snowflake.idle import Idle, idle_by_layer
from studies.snowflake.losses import excess_of, losses_of
from studies.snowflake.measuring import LayerCost, Measured, Missing
from studies.snowflake.plots import plot
from studies.snowflake.published import FIGURE_7, NETWORKS, TABLE_2
from studies.snowflake.rows import Found, rows_of, wrong_rows
from studies.snowflake.study import STUDY
from studies.snowflake.tables import print_found
from studies.snowflake.variants import DEFAULT, EXACT, REUSE, WITHOUT_A_PASS, Reuse
from studies.snowflake.work import BOARD, NETWORK_MACHINE, SCALED, TABLES, Case, cases
from tests.codegen.snowflake.snowflake_cases import convolutions, machine
from tests.examples import examples
from tvm_npu.codegen import ops
from tvm_npu.codegen.graph_bound import useful_macs
from tvm_npu.codegen.plan.layers import question_of
from tvm_npu.codegen.snowflake.plan.tiling import SnowflakePlan
from tvm_npu.sim.events import EventColumn, Events, Names
from tvm_npu.sim.snowflake.statistics import TraceProfile

KEYS = {
    "table", "machine", "variant", "paper", "simulated", "predicted", "efficiency",
    "required_gbs", "achieved_gbs", "bytes",
}  # fmt: skip


def cost(kind: str, macs: int, cycles: float, **more: Any) -> LayerCost:
    profile = TraceProfile(
        kind, {"coop": 3, "indp": 1, "lane": 5}, {"coop": 300, "indp": 20, "lane": 7}, 4, 2, 40, 6
    )
    values: dict[str, Any] = {
        "name": kind, "kind": kind, "macs": macs, "least_bytes": 100,
        "bound_cycles": max(macs / 256, 10.0), "cycles": cycles, "predicted_cycles": 0.9 * cycles,
        "moved_bytes": 1000, "mac_cycles": 0.8 * cycles, "profile": profile,
        "slowest_mac_cycles": 0.85 * cycles, "memory_cycles": 0.3 * cycles, "is_beside": False,
        "idle": Idle(0.1 * cycles, 0.05 * cycles) if macs else Idle(cycles, 0.0),
    }  # fmt: skip
    return LayerCost(**{**values, **more})


NETWORK = Measured(
    0, 0, 187.0, 256.0,
    (
        cost("conv", 256 * 800, 1000.0),
        cost("max_pool", 0, 500.0),
        cost("conv", 256 * 1200, 2000.0),
        cost("dense", 256 * 5000, 70000.0),
    ),
    7.0, 300,
)  # fmt: skip


def found(tables: tuple[str, ...] = TABLES) -> Found:
    """Every network everywhere, each a little slower than the one before."""
    measured: dict[tuple[str, str, str], Measured | Missing] = {
        ("max-pool 27x27x256", "snowflake-1cu", "before"): Missing("no room for it")
    }
    variants = (DEFAULT, EXACT, *REUSE, *WITHOUT_A_PASS)
    for number, model in enumerate(NETWORKS):
        for on in (*SCALED, BOARD):
            for more, variant in enumerate(variants):
                one = replace(NETWORK, rest_cycles=7.0 + 100 * number + 40 * more)
                measured[model, on, variant.name] = one
    for number, layer in enumerate(FIGURE_7):
        one = replace(NETWORK, rest_cycles=7.0 + 50 * number, rest_bytes=300 << number)
        measured[layer.name, NETWORK_MACHINE, "default"] = one
    return Found(tables, measured, {})


@settings(max_examples=examples(40), deadline=None)
@given(convolutions())
def test_macs_that_touch_no_padding(graph: Any) -> None:
    """Against products of ones, zeros where there is padding; below 0 it leaves elements out."""
    layer = graph.layers[0]
    planes, rows, columns = graph.shapes["x"]
    top, left, bottom, right = layer.padding
    image = np.ones((rows, columns), int)[max(-top, 0):, max(-left, 0):]
    image = np.pad(image, [(max(each, 0), 0) for each in (top, left)])
    image = np.pad(image, [(0, max(each, 0)) for each in (bottom, right)])
    filters, depth, height, width = layer.weight.shape
    _, out_rows, out_columns = graph.shapes["y"]
    count = 0
    for i in range(height):
        for j in range(width):
            first_row, first_column = i * layer.dilation[0], j * layer.dilation[1]
            taken = image[first_row:: layer.stride[0], first_column:: layer.stride[1]]
            count += int(taken[:out_rows, :out_columns].sum())
    assert useful_macs(layer, graph.shapes) == count * filters * depth
    words = sum(int(np.prod(graph.shapes[name])) for name in (*graph.inputs, "y"))
    expected = 2 * (words + layer.weight.size) + 4 * filters
    assert least_bytes(layer, graph.shapes) == expected
    assert planes == depth * layer.groups


def test_linear_and_other_layers_are_counted_too() -> None:
    weight = np.zeros((10, 30, 1, 1), np.int16)
    limits: dict[str, Any] = {"shift": 0, "low": -100, "high": 100}
    dense = ops.FixedConv(
        "d", ("x",), ("y",), weight, np.zeros(10, np.int32), is_dense=True, **limits
    )
    assert useful_macs(dense, {"x": (30,), "y": (10,)}) == 300
    pool = ops.FixedPool("p", ("x",), ("y",), "max", (3, 3), (2, 2), **limits)
    assert useful_macs(pool, {"x": (4, 9, 9), "y": (4, 4, 4)}) == 0


cells = st.lists(st.booleans(), min_size=24, max_size=24)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(cells, min_size=1, max_size=4), cells, st.sets(st.integers(1, 23), max_size=4))
def test_idle_times(macs: list[list[bool]], memory: list[bool], cuts: set[int]) -> None:
    """Against a count of the cells of a time line; each run of True is an event."""
    ends = [*sorted(cuts), 24]
    units = [*(f"mac {k}" for k in range(len(macs))), "memory", "core 0"]
    rows, times = [], []
    for number, line in enumerate([*macs, memory]):
        for begin, busy in enumerate(line):
            if busy:
                rows.append([number, 0])
                times.append([begin, begin + 1.0])
    rows.append([0, 1])  # a wait is not work
    times.append([0.0, 24.0])
    table = np.zeros((len(rows), len(EventColumn)), np.int64)
    table[:, [EventColumn.UNIT, EventColumn.WAITS]] = rows
    names = Names(tuple(units), (), (), (), lambda row: {}, lambda row: ())
    got = idle_by_layer(Events(names, table, np.array(times)), ends)
    begin = 0
    for one, end in zip(got, ends, strict=True):
        idle = [(line[t], memory[t]) for line in macs for t in range(begin, end)]
        share = 1 / len(macs)
        assert one.memory_cycles == pytest.approx(share * idle.count((False, True)))
        assert one.other_cycles == pytest.approx(share * idle.count((False, False)))
        begin = end


def test_linear_layers_do_not_count() -> None:
    assert NETWORK.cycles == 3507.0
    assert NETWORK.efficiency == pytest.approx(2000 / 3507)
    assert NETWORK.moved_bytes == 3300
    assert NETWORK.predicted_ms == pytest.approx(0.9 * 3500 / 187e3)
    assert NETWORK.gb_per_s(NETWORK.cycles) == pytest.approx(3300 * 0.187 / 3507)
    assert NETWORK.bound == pytest.approx(2000 / (800 + 10 + 1200))
    only = replace(NETWORK, layers=NETWORK.layers[-1:])
    assert only.cycles == 70007.0


def test_cycles_beyond_the_bound() -> None:
    """Of a layer bound by its products, one by the memory, and a maximum beside the second."""
    layers = (
        cost("conv", 256 * 800, 1000.0, mac_cycles=850.0, slowest_mac_cycles=900.0,
             memory_cycles=920.0),
        cost("conv", 256 * 300, 700.0, bound_cycles=600.0, mac_cycles=400.0,
             slowest_mac_cycles=450.0, memory_cycles=500.0),
        cost("max_pool", 0, 20.0, bound_cycles=100.0, mac_cycles=0.0, slowest_mac_cycles=0.0,
             memory_cycles=205.0, is_beside=True),
    )  # fmt: skip
    one = replace(NETWORK, layers=layers)
    excess = excess_of(one)
    assert excess.layers == 2
    assert (excess.bound_cycles, excess.lanes, excess.uneven, excess.again) == (1500, 50, 50, 25)
    assert excess.with_transfers_cycles + excess.ends == one.cycles
    apart = excess_of(replace(one, layers=(*layers[:2], replace(layers[2], is_beside=False))))
    assert apart.layers == 3
    assert apart.again == 20 + 105


def test_losses_and_efficiency_are_all_of_the_time() -> None:
    losses = losses_of(NETWORK)
    assert losses is not None and NETWORK.efficiency is not None
    assert sum(vars(losses).values()) + NETWORK.efficiency == pytest.approx(1)
    assert losses.pools == pytest.approx(507 / 3507)
    assert losses.memory == pytest.approx(300 / 3507)
    assert losses.largest == "lanes"
    unknown = tuple(replace(layer, idle=None) for layer in NETWORK.layers)
    assert losses_of(replace(NETWORK, layers=unknown)) is None


@settings(max_examples=examples(25), deadline=None)
@given(convolutions(), st.sampled_from(REUSE))
def test_reuse_holds_the_planner_to_an_order(graph: Any, variant: Any) -> None:
    on = machine(NETWORK_MACHINE)
    asked = question_of(graph.layers[0], graph, on)
    forced, free = (one.planner.plan(asked, on) for one in (variant, DEFAULT))
    planner = variant.planner
    assert isinstance(planner, Reuse)
    assert isinstance(forced, SnowflakePlan) and isinstance(free, SnowflakePlan)
    assert forced.stays == planner.stays and forced.planner == planner.name
    if free.stays == planner.stays:
        assert replace(free, planner="", prediction=None) == replace(
            forced, planner="", prediction=None
        )


def test_each_pass_is_left_out_once() -> None:
    left_out = []
    for variant in WITHOUT_A_PASS:
        flags = {**vars(variant.passes.steps), **vars(variant.passes.code)}
        left_out += [name for name, runs in flags.items() if not runs]
    assert len(left_out) == len(set(left_out)) == len(WITHOUT_A_PASS)
    assert {"group", "drop_redundant", "double_buffer", "avoid_raw"} <= set(left_out)


def test_rows() -> None:
    rows = [row.plain() for row in rows_of(found())]
    for row in rows:
        assert set(row) - {"model", "layer"} == KEYS
        assert ("model" in row) != ("layer" in row)
    assert {row["table"] for row in rows} == set(TABLES) - {"3", "1"}
    assert {row["variant"] for row in rows if row["table"] == "figure5"} == {"default"}
    shares = [row for row in rows if row["table"] == "2" and row["model"] == "resnet18"]
    ours = {row["variant"]: row["simulated"] for row in shares}
    assert ours == {
        "indp_percent": 25, "coop_percent": 75, "ld_units": 10, "mac_words": 80, "st_units": 3,
    }  # fmt: skip
    assert [row["paper"] for row in shares] == list(vars(TABLE_2["resnet18"]).values())
    layers = [row["layer"] for row in rows if row["table"] == "figure7"]
    assert len(layers) == 12 and layers[0] == "224x224,7x7,3,64,2,3"


def test_tables_fit_80_columns() -> None:
    out = io.StringIO()
    print_found(Console(file=out, width=80), found())
    text = out.getvalue()
    tables = [line for line in text.splitlines() if line.startswith(("─", "resnet18  "))]
    assert len(tables) > 10 and max(map(len, tables)) <= 80
    assert "part 1 of" not in text
    assert "Figure 5: snowflake-1cc" in text and "geometric mean" in text
    assert "left out: max-pool 27x27x256 snowflake-1cu before: no room for it" in text


def test_drawings() -> None:
    pytest.importorskip("matplotlib", reason="the plot extra is not installed")
    one = plot(found(), "svg")
    assert one == plot(found(), "svg") and len(one) > 10000
    assert len(plot(found(("figure7",)), "svg")) < len(one)


def test_cases_are_computed_once_and_network_by_network() -> None:
    wanted = cases(TABLES, list(NETWORKS), work.MACHINES, ["gru-128"])
    keys = [one.key for one in wanted]
    assert len(keys) == len(set(keys))
    subjects = [one.subject for one in wanted if one.subject in NETWORKS]
    assert list(dict.fromkeys(subjects)) == list(NETWORKS)
    changes = sum(a != b for a, b in zip(subjects, subjects[1:], strict=False))
    assert changes == len(NETWORKS) - 1
    only = cases(TABLES, ["vgg16"], [NETWORK_MACHINE], [])
    assert {one.machine for one in only} == {NETWORK_MACHINE}
    assert sum("," in one.subject for one in only) == len(FIGURE_7)


def test_wrong_bits_and_races_fail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    key = ("alexnet_owt", NETWORK_MACHINE, "default")
    assert not wrong_rows({key: NETWORK})
    (text,) = wrong_rows({key: replace(NETWORK, bits_off=3)})
    assert "3 elements differ" in text
    assert wrong_rows({key: replace(NETWORK, hazards=1)})

    def off(case: Case, bench: Any) -> Measured:
        return replace(NETWORK, bits_off=1)

    monkeypatch.setattr("studies.snowflake.study.computed", off)
    file = tmp_path / "rows.json"
    assert main(STUDY, ["--tables", "3", "--json", str(file)]) == 1
    assert len(json.loads(file.read_text())) == 3


def test_table_3_is_as_published(tmp_path: Path) -> None:
    """Within 1 % of the times, at least 99.6 % of the peak: the project's own limits."""
    file = tmp_path / "rows.json"
    assert main(STUDY, ["--tables", "3", "--json", str(file)]) == 0
    rows = json.loads(file.read_text())
    assert [row["layer"] for row in rows] == [
        "13x13,3x3,192,384,1,1", "13x13,3x3,384,256,1,1", "13x13,3x3,256,256,1,1",
    ]  # fmt: skip
    for row in rows:
        assert set(row) == {*KEYS, "layer"}
        assert row["simulated"] == pytest.approx(row["paper"], rel=0.01)
        assert row["efficiency"] >= 0.996
