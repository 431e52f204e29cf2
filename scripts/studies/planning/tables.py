"""The planning benchmark as tables for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.console import Console

from studies.harness.tables import Sheet, print_sheets
from studies.planning.figures import (
    BASE,
    GOAL_NETWORKS,
    GOALS,
    TIME_GOAL,
    Accuracy,
    accuracy,
    base_rows,
    goal_figures,
    limits_of_speed_up,
    mean_speed_ups,
    pairs_of,
    speed_ups,
)
from studies.planning.measuring import Case, LayerRow, Measured, Row
from studies.shared.titles import TITLES
from tvm_npu.cli.tables import Column

NONE = "-"


def print_measured(console: Console, measured: Measured) -> None:
    """Everything that was measured, then what it amounts to."""
    print_sheets(
        console,
        [
            networks_table(measured.cases),
            rows_table(measured.rows),
            times_table(measured),
            accuracy_table(measured.layers),
        ],
    )
    missing = dict.fromkeys(case.no_brute_force for case in measured.cases if case.no_brute_force)
    for reason in missing:
        console.print(f"not measured: {reason}", soft_wrap=True)
    for line in summary_lines(measured):
        console.print(line, soft_wrap=True)


def title_of(model: str) -> str:
    return TITLES.get(model, model)


def networks_table(cases: Sequence[Case]) -> Sheet:
    """The work and its bound: sums over layers of MAC time, of compulsory traffic's time, and of
    the longer of the two."""

    def bound(part: Callable[[Case], float]) -> tuple[str, ...]:
        return tuple(f"{case.us(part(case)):,.0f}" for case in cases)

    columns = [
        Column("network", tuple(title_of(case.model) for case in cases), name=True),
        Column("machine", tuple(case.machine.name for case in cases), prose=True),
        Column("numbers", tuple(case.machine.default_precision for case in cases)),
        Column("layers", tuple(str(len(case.layers)) for case in cases)),
        Column("planned", tuple(str(len(case.asked)) for case in cases)),
        Column("distinct", tuple(str(len(case.distinct)) for case in cases)),
        Column("MMACs", tuple(f"{case.macs / 1e6:,.1f}" for case in cases)),
        Column("on the\nNPU", tuple(f"{case.npu_mac_share:.1%}" for case in cases)),
        Column(
            "compulsory\nMB",
            tuple(f"{sum(w.compulsory_bytes for w in case.layers) / 1e6:,.1f}" for case in cases),
        ),
        Column("MAC roof\nus", bound(lambda c: sum(w.mac_cycles(c.top) for w in c.layers))),
        Column("traffic\nus", bound(lambda c: sum(w.traffic_cycles(c.top) for w in c.layers))),
        Column("bound\nus", bound(Case.bound_cycles)),
    ]
    title = "Networks, batch 1; bound: layer by layer, the longer of MACs and traffic"
    return Sheet(title, columns)


def rows_table(rows: Sequence[Row]) -> Sheet:
    gains = speed_ups(rows)
    bases = base_rows(rows)
    distances = tuple(f"{row.simulated_us / row.bound_us:.2f}" for row in rows)
    gaps = tuple(f"{row.simulated_us / row.graph_bound_us - 1:.0%}" for row in rows)

    def gain(row: Row) -> str:
        own = gains.get((row.model, (row.machine, row.planner)))
        if own is None:
            return "1.00" if row.model in bases else NONE
        return f"{own:.2f}"

    columns = [
        Column("network", tuple(title_of(row.model) for row in rows), name=True),
        Column("machine", tuple(row.machine for row in rows), prose=True),
        Column("planner", tuple(row.planner for row in rows), prose=True),
        Column("simulated\nus", tuple(f"{row.simulated_us:,.0f}" for row in rows)),
        Column("predicted\nus", tuple(f"{row.predicted_us:,.0f}" for row in rows)),
        Column("simulated\n/ bound", distances),
        Column("gap to\ngraph's", gaps),
        Column("speed-up over\n" + " ".join(reversed(BASE)), tuple(gain(row) for row in rows)),
        Column("DRAM\nMB", tuple(f"{row.dram_bytes / 1e6:,.1f}" for row in rows)),
        Column("planning\nms", tuple(f"{1e3 * row.plan_s:,.1f}" for row in rows)),
    ]  # fmt: skip
    title = "Plans; all values equal the reference's, bit for bit"
    return Sheet(title, columns)


def times_table(measured: Measured) -> Sheet:
    """Planner tso against brute force, by network and machine: milliseconds, and in parentheses
    how many times what tso takes."""
    mine = {(row.model, row.machine): row.plan_s for row in measured.rows if row.planner == BASE[1]}
    cells: list[tuple[str, ...]] = []
    for case in measured.cases:
        own = mine.get((case.model, case.machine.name))
        brute = case.brute_force
        seconds = (
            (brute.edges_s, brute.edges_distinct_s, brute.closed_s, brute.closed_distinct_s)
            if brute
            else (None,) * 4
        )
        cells.append((_milliseconds(own, None), *(_milliseconds(s, own) for s in seconds)))
    heads = ("tso", "edges,\nall", "edges,\ndistinct", "estimate,\nall", "estimate,\ndistinct")
    columns = [
        Column("network", tuple(title_of(case.model) for case in measured.cases), name=True),
        Column("machine", tuple(case.machine.name for case in measured.cases), prose=True),
        *(Column(head, tuple(cell[at] for cell in cells)) for at, head in enumerate(heads)),
    ]
    title = "Planning, one core, ms (times tso): tso on distinct layers; its space by C, two costs"
    return Sheet(title, columns)


def _milliseconds(seconds: float | None, own: float | None) -> str:
    if seconds is None:
        return NONE
    return f"{1e3 * seconds:,.1f}" + ("" if own is None else f" ({seconds / own:.1f})")


def accuracy_table(layers: Sequence[LayerRow]) -> Sheet:
    """Predicted against simulated, by layer."""
    groups = list(_groups(layers))

    def shown(part: Callable[[Accuracy], str], planned: bool) -> tuple[str, ...]:
        return tuple(part(found[planned]) if planned in found else NONE for *_, found in groups)

    columns = [
        Column("machine", tuple(machine for machine, _, _ in groups), prose=True),
        Column("planner", tuple(name for _, name, _ in groups), prose=True),
        Column("layers", shown(lambda one: str(one.layers), False)),
        Column("mean abs.\nerror", shown(lambda one: f"{one.mean_absolute_error:.1%}", False)),
        Column("Pearson", shown(_pearson, False)),
        Column("planned\nlayers", shown(lambda one: str(one.layers), True)),
        Column("mean abs.\nerror", shown(lambda one: f"{one.mean_absolute_error:.1%}", True)),
        Column("Pearson", shown(_pearson, True)),
    ]
    title = "Predicted against simulated time by layer: all and planned"
    return Sheet(title, columns)


def _pearson(one: Accuracy) -> str:
    return NONE if one.pearson is None else f"{one.pearson:.4f}"


def _groups(layers: Sequence[LayerRow]) -> Iterator[tuple[str, str, dict[bool, Accuracy]]]:
    """(machine, planner, accuracy of all layers and (True) of the planned ones); all together
    last."""
    pairs = dict.fromkeys((layer.machine, layer.planner) for layer in layers)
    for machine, name in pairs:
        yield machine, name, _both([x for x in layers if (x.machine, x.planner) == (machine, name)])
    yield "all", "all", _both(layers)


def _both(layers: Sequence[LayerRow]) -> dict[bool, Accuracy]:
    planned = [layer for layer in layers if layer.macs]
    found = {False: layers, True: planned}
    return {key: accuracy(own) for key, own in found.items() if own}


def summary_lines(measured: Measured) -> list[str]:
    """What it amounts to, one statement a line."""
    return [
        *_speed_up_lines(measured.rows),
        *_time_lines(measured),
        *_accuracy_lines(measured.layers),
    ]


def _speed_up_lines(rows: Sequence[Row]) -> list[str]:
    means, figures = mean_speed_ups(rows), goal_figures(rows)
    base = " ".join(reversed(BASE))
    lines = []
    for pair in pairs_of(rows):
        if pair not in means:
            continue
        goal = _goal(GOALS[pair], figures[pair], means[pair]) if pair in figures else ""
        lines.append(
            f"geometric mean speed-up of {pair[1]} on {pair[0]} over {base}: "
            f"{means[pair]:.3f}{goal}"
        )
    for machine, limit in limits_of_speed_up(rows).items():
        lines.append(f"  the bound allows {limit:.3f} on {machine}")
    return lines


def _goal(goal: float, figure: float, mean: float) -> str:
    """Behind a ``mean``, which may be of more networks than the goal's ``figure``."""
    own = "" if figure == mean else f"{figure:.3f} over the networks of the "
    return f" ({own}goal {goal:.2f})"


def _time_lines(measured: Measured) -> list[str]:
    own = {(row.model, row.machine): row.plan_s for row in measured.rows if row.planner == BASE[1]}
    known = [
        (case.model, case.brute_force, own[case.model, case.machine.name])
        for case in measured.cases
        if case.brute_force is not None and (case.model, case.machine.name) in own
    ]
    if not known:
        return []
    planning = sum(seconds for *_, seconds in known)
    edges = sum(times.edges_s for _, times, _ in known)
    distinct = sum(times.edges_distinct_s for _, times, _ in known)
    is_whole = {model for model, *_ in known} == GOAL_NETWORKS
    goal = f"; goal {TIME_GOAL:.0f}" if is_whole else ""
    return [
        f"brute force with edges counted over planner {BASE[1]}, all networks: "
        f"{edges / planning:.1f} times (all layers{goal}), "
        f"{distinct / planning:.1f} times (distinct layers in both)"
    ]


def _accuracy_lines(layers: Sequence[LayerRow]) -> list[str]:
    if not layers:
        return []
    everything = accuracy(layers)
    return [
        f"predicted against simulated time, {everything.layers} layers: mean absolute error "
        f"{everything.mean_absolute_error:.1%}, Pearson {_pearson(everything)}"
    ]
