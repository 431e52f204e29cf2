"""What was measured as tables for people, beside what is published."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

from rich.console import Console

from studies.harness.tables import Sheet, print_sheets
from studies.snowflake.losses import excess_of, losses_of
from studies.snowflake.measuring import Measured
from studies.snowflake.published import NETWORKS, TABLE_2, TABLE_3, ZC706
from studies.snowflake.rows import Found, Row, lengths_by_model, rows_of
from studies.snowflake.variants import (
    DEFAULT,
    EVERY_STEP,
    EXACT,
    KEPT,
    REUSE,
    WITHOUT_A_PASS,
    Variant,
)
from studies.snowflake.work import BOARD, NETWORK_MACHINE, SCALED
from tvm_npu.cli.tables import Column

LAYERS_OF_THE_PEAK = ("vgg16", "vgg19", "resnet18", "resnet34", "resnet50")


def print_found(console: Console, found: Found) -> None:
    """Each table that has rows, with what it amounts to; then what is left out."""
    rows = rows_of(found)
    makers: dict[str, Callable[[Found, Sequence[Row]], tuple[Sequence[Sheet], Sequence[str]]]] = {
        "3": _table_3, "figure5": _figure_5, "2": _table_2, "figure6": _figure_6,
        "figure7": _figure_7, "zc706": _zc706, "passes": _passes, "exact": _exact, "1": _table_1,
    }  # fmt: skip
    for table in found.tables:
        mine = [row for row in rows if row.table == table]
        if not mine:
            continue
        sheets, lines = makers[table](found, mine)
        print_sheets(console, sheets)
        _lines(console, [*lines, ""] if lines else [])
    _lines(console, _left_out(found))
    good = sum(isinstance(one, Measured) for one in found.measured.values())
    _lines(console, [f"simulated: {good}; all values are compared with the reference, bit for bit"])


def _lines(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        console.print(line, soft_wrap=True)


def _left_out(found: Found) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for key, reason in found.missing.items():
        reasons.setdefault(reason, []).append(" ".join(key))
    lines = [f"left out: {', '.join(keys)}: {reason}" for reason, keys in reasons.items()]
    for one in found.networks.values():
        if one.npu_mac_share < 1:
            lines.append(
                f"{one.model}: {one.npu_mac_share:.1%} of its MACs are on the NPU, in "
                f"{one.regions} regions; {one.cpu_operators} operators are on the CPU"
            )
    return lines


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _gbs(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _ratio(row: Row) -> str:
    return "-" if row.paper is None else f"{row.simulated / row.paper:.3f}"


def _mb(row: Row) -> str:
    return f"{row.bytes / 1e6:.2f}"


def _column(heading: str, rows: Sequence[Row], text: Callable[[Row], str]) -> Column:
    return Column(heading, tuple(map(text, rows)))


def _names(rows: Sequence[Row], heading: str = "network") -> Column:
    return Column(heading, tuple(row.subject for row in rows), key=True)


def _timed(rows: Sequence[Row], heading: str = "network") -> list[Column]:
    return [
        _names(rows, heading),
        _column("paper\nms", rows, lambda row: _ms(row.paper)),
        _column("simulated\nms", rows, lambda row: _ms(row.simulated)),
        _column("ratio", rows, _ratio),
        _column("predicted\nms", rows, lambda row: _ms(row.predicted)),
        _column("efficiency\n%", rows, lambda row: _share(row.efficiency)),
    ]


def _table_3(found: Found, rows: Sequence[Row]) -> tuple[list[Sheet], list[str]]:
    paper = {one.layer.name: one for one in TABLE_3}
    columns = _timed(rows, "layer")
    columns.insert(1, _column("by hand\nms", rows, lambda row: _ms(paper[row.subject].hand_ms)))
    return [Sheet("Table 3: layers of AlexNet on snowflake-1cu, 7 ns a cycle", columns)], []


def _table_1(found: Found, rows: Sequence[Row]) -> tuple[list[Sheet], list[str]]:
    columns = _timed(rows, "cell")
    titles = {one.name: one.title for one in (EVERY_STEP, KEPT)}
    columns.insert(1, Column("weights\ncome", tuple(titles[row.variant] for row in rows), key=True))
    columns[-1] = _column("GB/s", rows, lambda row: _gbs(row.achieved_gbs))
    title = f"Table 1: two layers over 100 steps, {rows[0].machine}"
    return [Sheet(title, columns)], []


def _figure_5(found: Found, rows: Sequence[Row]) -> tuple[list[Sheet], list[str]]:
    sheets, lines = [], []
    for machine in SCALED:
        mine = [row for row in rows if row.machine == machine]
        if not mine:
            continue
        sheets.append(_network_sheet(found, machine, mine))
        sheets.append(_losses_sheet(found, machine, mine))
        sheets.append(_excess_sheet(found, machine, mine))
        known = [row.efficiency for row in mine if row.efficiency is not None]
        peak = [
            f"{row.subject} {_share(row.efficiency)}"
            for row in mine
            if row.subject in LAYERS_OF_THE_PEAK
        ]
        mean = f"{machine}: mean efficiency {_share(fmean(known))} %"
        lines.append("; ".join([mean, ", ".join(peak)] if peak else [mean]))
    lines += _scaling(found)
    return sheets, lines


def _network_sheet(found: Found, machine: str, rows: Sequence[Row]) -> Sheet:
    measured = [_measured(found, row) for row in rows]
    columns = [
        _names(rows),
        _column("ms", rows, lambda row: _ms(row.simulated)),
        Column(
            "Gops/s",
            tuple(f"{2e-6 * _macs(one) / one.simulated_ms:.1f}" for one in measured),
        ),
        _column("required\nGB/s", rows, lambda row: _gbs(row.required_gbs)),
        _column("achieved\nGB/s", rows, lambda row: _gbs(row.achieved_gbs)),
        _column("moved\nMB", rows, _mb),
        _column("eff.\n%", rows, lambda row: _share(row.efficiency)),
        Column("bound\n%", tuple(_share(one.bound) for one in measured)),
        Column(
            "of the\nbound %",
            tuple(_share(one.bound_cycles / one.cycles) for one in measured),
        ),
    ]
    return Sheet(f"Figure 5: {machine}, without linear layers", columns)


def _macs(one: Measured) -> int:
    return sum(layer.macs for layer in one.counted)


def _measured(found: Found, row: Row, variant: Variant = DEFAULT) -> Measured:
    one = found.of(row.subject, row.machine, variant)
    assert one is not None
    return one


def _losses_sheet(found: Found, machine: str, rows: Sequence[Row]) -> Sheet:
    losses = [losses_of(_measured(found, row)) for row in rows]
    columns = [_names(rows), _column("useful\n%", rows, lambda row: _share(row.efficiency))]
    for heading, name in (
        ("layers without\nMACs %", "pools"), ("idle\nlanes %", "lanes"),
        ("waits for\nmemory %", "memory"), ("short\ntraces %", "short_traces"),
    ):  # fmt: skip
        cells = tuple("-" if one is None else _share(getattr(one, name)) for one in losses)
        columns.append(Column(heading, cells))
    binds = tuple("-" if one is None else one.largest for one in losses)
    columns.append(Column("binds", binds, key=True))
    return Sheet(f"Where the time of the MACs goes, {machine}, from the events", columns)


def _excess_sheet(found: Found, machine: str, rows: Sequence[Row]) -> Sheet:
    measured = [_measured(found, row) for row in rows]
    excess = [excess_of(one) for one in measured]
    columns = [
        _names(rows),
        Column("layers", tuple(str(one.layers) for one in excess)),
        Column("bound", tuple(f"{one.bound_cycles:,.0f}" for one in excess)),
    ]
    for name in ("lanes", "uneven", "again", "ends"):
        columns.append(Column(name, tuple(f"{getattr(one, name):,.0f}" for one in excess)))
    reached = tuple(
        _share(each.bound_cycles / each.with_transfers_cycles) for each in excess
    )
    columns.append(Column("at most, of\nthe bound %", reached))
    return Sheet(f"Cycles beyond the bound, {machine}", columns)


def _scaling(found: Found) -> list[str]:
    lines = []
    for machine in SCALED[1:]:
        gains = {
            model: one.cycles / more.cycles
            for model in NETWORKS
            if (one := found.of(model, NETWORK_MACHINE)) and (more := found.of(model, machine))
        }
        if gains:
            each = ", ".join(f"{model} {gain:.2f}" for model, gain in gains.items())
            lines.append(f"one image on {machine} against {NETWORK_MACHINE}: {each}")
    return lines


def _table_2(found: Found, rows: Sequence[Row]) -> tuple[list[Sheet], list[str]]:
    ours = lengths_by_model(found)
    columns = [Column("network", tuple(ours), key=True)]
    for heading, name in (
        ("INDP\n%", "indp"), ("COOP\n%", "coop"), ("LD\nx 64 bytes", "load"),
        ("MAC\nwords", "trace"), ("ST\nx 64 bytes", "store"),
    ):  # fmt: skip
        cells = tuple(
            f"{getattr(TABLE_2[model], name):.0f} / {getattr(one, name):.0f}"
            for model, one in ours.items()
        )
        columns.append(Column(heading, cells))
    return [Sheet(f"Table 2: instructions, {NETWORK_MACHINE}: paper / ours", columns)], []


def _figure_6(found: Found, rows: Sequence[Row]) -> tuple[list[Sheet], list[str]]:
    models = list(dict.fromkeys(row.subject for row in rows))
    cells = {(row.subject, row.variant): row for row in rows}
    columns = [Column("network", tuple(models), key=True)]
    for heading, text in (
        ("MB", _mb), ("ms", lambda row: _ms(row.simulated)),
        ("GB/s", lambda row: _gbs(row.required_gbs)),
        ("eff. %", lambda row: _share(row.efficiency)),
    ):  # fmt: skip
        for variant in REUSE:
            found_rows = [cells.get((model, variant.name)) for model in models]
            texts = tuple("-" if row is None else text(row) for row in found_rows)
            columns.append(Column(f"{heading}\n{variant.title[0].upper()}", texts))
    less = sum(
        cells[model, REUSE[0].name].bytes < cells[model, REUSE[1].name].bytes
        for model in models
        if all((model, one.name) in cells for one in REUSE)
    )
    line = (
        "K: tiles of kernels stay while maps come again (ReuseK); M: maps stay (ReuseM); GB/s are "
        f"required. Reuse of kernels moves fewer bytes in {less} of {len(models)} networks."
    )
    return [Sheet(f"Figure 6: one order for all layers, {NETWORK_MACHINE}", columns)], [line]


def _figure_7(found: Found, rows: Sequence[Row]) -> tuple[list[Sheet], list[str]]:
    measured = [_measured(found, row) for row in rows]
    columns = [
        _names(rows, "layer"),
        _column("ms", rows, lambda row: _ms(row.simulated)),
        Column(
            "ops\na byte", tuple(f"{2 * _macs(one) / one.moved_bytes:.0f}" for one in measured)
        ),
        Column(
            "Gops/s", tuple(f"{2e-6 * _macs(one) / one.simulated_ms:.1f}" for one in measured)
        ),
        _column("efficiency\n%", rows, lambda row: _share(row.efficiency)),
    ]
    title = f"Figure 7: convolutions of ResNet-18, each alone, {NETWORK_MACHINE}"
    return [Sheet(title, columns)], ["The text gives no numbers for VTA's points."]


def _zc706(found: Found, rows: Sequence[Row]) -> tuple[list[Sheet], list[str]]:
    columns = _timed(rows)
    columns.insert(
        5, _column("paper\nefficiency %", rows, lambda row: _share(ZC706[row.subject].efficiency))
    )
    return [Sheet(f"The accelerator's own publication: a frame on {BOARD}", columns)], []


def _passes(found: Found, rows: Sequence[Row]) -> tuple[list[Sheet], list[str]]:
    networks = [row for row in rows if not row.is_layer]
    layers = [row for row in rows if row.is_layer]
    sheets = []
    if networks:
        sheets.append(_passes_sheet(networks))
    if layers:
        columns = [
            _names(layers, "layer"),
            Column("passes over\ninstructions", tuple(row.variant for row in layers), key=True),
            _column("paper\nms", layers, lambda row: _ms(row.paper)),
            _column("simulated\nms", layers, lambda row: _ms(row.simulated)),
        ]
        sheets.append(Sheet("Two layers before and after the passes over instructions", columns))
    return sheets, []


def _passes_sheet(rows: Sequence[Row]) -> Sheet:
    """Times without a pass over the time with all."""
    times = {(row.subject, row.variant): row.simulated for row in rows}
    models = [model for model in NETWORKS if (model, DEFAULT.name) in times]
    whole = tuple(_ms(times[model, DEFAULT.name]) for model in models)
    columns = [
        Column("network", (*models, "geometric mean"), key=True),
        Column("all\nms", (*whole, "")),
    ]
    for variant in WITHOUT_A_PASS:
        ratios = {
            model: times[model, variant.name] / times[model, DEFAULT.name]
            for model in models
            if (model, variant.name) in times
        }
        cells = [f"{ratios[model]:.3f}" if model in ratios else "-" for model in models]
        mean = f"{_geometric(ratios.values()):.3f}" if ratios else "-"
        columns.append(Column(variant.title.replace(" ", "\n", 1), (*cells, mean)))
    title = f"Time without a pass, times that with all, {NETWORK_MACHINE}"
    return Sheet(title, columns)


def _exact(found: Found, rows: Sequence[Row]) -> tuple[list[Sheet], list[str]]:
    pairs = {
        model: (one, best)
        for model in NETWORKS
        if (one := found.of(model, NETWORK_MACHINE))
        and (best := found.of(model, NETWORK_MACHINE, EXACT))
    }
    if not pairs:
        return [], []
    gains = [one.cycles / best.cycles for one, best in pairs.values()]
    distances = [best.cycles / best.bound_cycles for _, best in pairs.values()]
    columns = [
        Column("network", (*pairs, "geometric mean"), key=True),
        Column("snowflake\nms", (*(_ms(one.simulated_ms) for one, _ in pairs.values()), "")),
        Column("exact\nms", (*(_ms(best.simulated_ms) for _, best in pairs.values()), "")),
        Column("snowflake\n/ exact", _with_mean(gains)),
        Column(
            "exact\npredicted", (*(_ms(best.predicted_ms) for _, best in pairs.values()), "")
        ),
        Column("exact\n/ bound", _with_mean(distances)),
        Column("exact\neff. %", (*(_share(best.efficiency) for _, best in pairs.values()), "")),
    ]
    bound = "bound: every layer at the peak of its MACs or of the memory, every tensor once a layer"
    counts = [best.proven for _, best in pairs.values() if best.proven is not None]
    met, asked = sum(one.proven for one in counts), sum(one.convolutions for one in counts)
    proof = f"proven to be the least predicted time of exact's space: {met} of {asked} plans"
    title = f"Planner exact against snowflake, {NETWORK_MACHINE}"
    return [Sheet(title, columns)], [bound, *([proof] if counts else [])]


def _with_mean(ratios: Sequence[float]) -> tuple[str, ...]:
    return (*(f"{ratio:.3f}" for ratio in ratios), f"{_geometric(ratios):.3f}")


def _geometric(values: Iterable[float]) -> float:
    return math.exp(fmean(math.log(value) for value in values))
