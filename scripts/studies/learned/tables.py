"""The benchmark's results as tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.console import Console

from studies.harness.tables import Sheet, print_sheets
from studies.learned.reranking import RerankRow
from studies.learned.searches import CLOSE, CorrelationRow, LayerSearch, checkpoints
from tvm_npu.cli.tables import Column
from tvm_npu.codegen.tune.tuners import tuner_names


def print_searches(out: Console, searches: Sequence[LayerSearch]) -> None:
    rows = [(search, tuner) for search in searches for tuner in tuner_names()]
    trials = len(next(iter(searches[0].runs.values())).plans)
    counts = [count for count in checkpoints(trials) if count in (16, 32, 64, 128, 256)]
    if trials not in counts:
        counts.append(trials)
    columns = [
        Column("layer", tuple(search.layer for search, _ in rows), name=True),
        Column("tuner", tuple(tuner for _, tuner in rows), name=True),
    ]
    for count in counts:
        cells = tuple(_median(search.best_so_far(tuner)[:, count - 1]) for search, tuner in rows)
        columns.append(Column(f"after\n{count}", cells))
    until = [search.until_close(tuner) for search, tuner in rows]
    columns.append(Column("best\nof all", tuple(
        f"{search.best_so_far(tuner)[:, -1].min():.3f}" for search, tuner in rows
    )))  # fmt: skip
    columns.append(
        Column(f"trials to {CLOSE - 1:.0%}\n(each seed)", tuple(", ".join(
            "never" if one is None else str(one) for one in own) for own in until)
        )
    )  # fmt: skip
    title = "Best plan found over the plan of exact, simulated (median of seeds)"
    print_sheets(out, [Sheet(title, columns)])


def _median(values: np.ndarray) -> str:
    middle = float(np.median(values))
    return f"{middle:.3f}" if np.isfinite(middle) else "none"


def print_correlations(out: Console, rows: Sequence[CorrelationRow]) -> None:
    counts = sorted({row.trials for row in rows})
    keys = list(dict.fromkeys((row.layer, row.of) for row in rows))
    columns = [
        Column("layer", tuple(layer for layer, _ in keys), name=True),
        Column("plans", tuple(of for _, of in keys), name=True),
    ]
    for count in counts:
        cells = []
        for layer, of in keys:
            own = [r.spearman for r in rows if (r.layer, r.of, r.trials) == (layer, of, count)]
            cells.append(f"{np.median(own):.3f}" if own else "")
        columns.append(Column(f"after\n{count}", tuple(cells)))
    title = "Rank correlation of the cost model with the simulator, plans it has not seen"
    print_sheets(out, [Sheet(title, columns)])


def gain(better: float, base: float) -> str:
    return f"{100 * (base / better - 1):+.2f} %"


def print_reranking(out: Console, rows: Sequence[RerankRow]) -> None:
    def mean(ratios: Sequence[float]) -> str:
        return gain(1.0, float(np.exp(np.mean(np.log(ratios)))))

    columns = [
        Column("network", tuple(r.model for r in rows), name=True, total="geometric mean"),
        Column("layers", tuple(str(r.layers) for r in rows)),
        Column("plans\na layer", tuple(f"{r.listed:.1f}" for r in rows)),
        Column("exact\ncycles", tuple(f"{r.exact_cycles:,.0f}" for r in rows)),
        Column(
            "re-ranked\ngain", tuple(gain(r.reranked_cycles, r.exact_cycles) for r in rows),
            total=mean([r.exact_cycles / r.reranked_cycles for r in rows]),
        ),
        Column(
            "all measured\ngain", tuple(gain(r.fastest_cycles, r.exact_cycles) for r in rows),
            total=mean([r.exact_cycles / r.fastest_cycles for r in rows]),
        ),
        Column("plans\nchanged", tuple(str(r.changed) for r in rows)),
        Column("of them\nslower", tuple(str(r.worse) for r in rows)),
        Column("error\npredicted", tuple(f"{r.predicted_error:.2%}" for r in rows)),
        Column("error\ncorrected", tuple(f"{r.corrected_error:.2%}" for r in rows)),
    ]  # fmt: skip
    title = (
        "The best plans of exact, ranked anew by a residual model of the other networks, and the "
        "fastest of them"
    )
    print_sheets(out, [Sheet(title, columns)])
