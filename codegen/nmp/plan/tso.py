"""Tensor Slicing Optimization: the exhaustive search of the TSO paper, Algorithms 1-4.

`TsoPlanner` tries the three TLE splits (Algorithm 2), the three schedules and all tiles
(Algorithm 3) and keeps the fastest by the paper's estimate (`tso_search`), which believes what
Equations 3-9 say, not what a machine does: planner, cost model and machine are three things. With
``by_volume`` the estimate leaves out CAS (TSO-noburst). So the equations choose what the paper
reports: for InceptionV3's fifth convolution IN tiles of 14x4x73 with bursts and of 16x11x20
without. Counting W tiles for every TLT that loads them, they do not.

Ties: the first candidate in loop order (split, schedule, T_R, T_C, T_N) wins; the starts of
transfers and steps (T_SW) prefer few large tiles before that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm_npu.codegen.nmp.plan import tso_search as search
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan, Schedule, Split
from tvm_npu.codegen.nmp.plan.cost import one_group, predict
from tvm_npu.codegen.nmp.plan.traffic import least_bias_bytes
from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.sim.machine_parts import BIAS_BYTES
from tvm_npu.sim.nmp.machine import NmpMachine

SPLITS: tuple[Split, ...] = ("KS", "KS&OFM", "OFM")
SCHEDULES: tuple[Schedule, ...] = ("IS", "OS", "WS")
_CODES: dict[Schedule, int] = {"IS": search.IS, "OS": search.OS, "WS": search.WS}
_UNLIMITED = 1 << 40


def tle_slices(split: Split, tles: int) -> tuple[int, int] | None:
    """Algorithm 2 for any number of TLEs: (row slices, filter slices).

    KS&OFM cuts the rows in two and the filters in half as many parts as there are TLEs; None
    where that does not exist (an odd number of TLEs, or fewer than four). One TLE is not cut.
    """
    if tles == 1:
        return 1, 1
    if split == "KS":
        return 1, tles
    if split == "OFM":
        return tles, 1
    return (2, tles // 2) if tles >= 4 and tles % 2 == 0 else None


@dataclass(frozen=True)
class TsoPlanner:
    """TSO and its fixed variants. ``splits`` and ``schedules`` restrict the search; where a layer
    has no plan under the restriction, the schedules and then the splits are set free."""

    name: str = "tso"
    by_volume: bool = False
    splits: tuple[Split, ...] = SPLITS
    schedules: tuple[Schedule, ...] = SCHEDULES
    limits: TileLimits = NO_LIMITS

    def plan(self, problem: ConvProblem, machine: NmpMachine) -> ConvPlan | Infeasible:
        """The plan of least estimated time, with its exact prediction filled in."""
        wanted = (
            (self.splits, self.schedules),
            (self.splits, SCHEDULES),
            (SPLITS, SCHEDULES),
        )
        for splits, schedules in dict.fromkeys(wanted):
            found = self._search(problem, machine, splits, schedules)
            if found is not None:
                return replace(found, prediction=predict(problem, found, machine))
        return _why_infeasible(problem, machine)

    def _search(
        self,
        problem: ConvProblem,
        machine: NmpMachine,
        splits: tuple[Split, ...],
        schedules: tuple[Schedule, ...],
    ) -> ConvPlan | None:
        """Algorithm 1 for one convolution: the best tile of every split and schedule."""
        rates = search_rates(problem, machine, self.by_volume)
        bounds = _bounds(problem, machine, self.limits)
        alone, together = search_layer(one_group(problem)), search_layer(problem)
        filters_each = problem.filters // problem.groups
        best: ConvPlan | None = None
        best_time = float("inf")
        for split in splits:
            slices = tle_slices(split, machine.cores.tles)
            if slices is None:
                continue
            part = search_slice(problem, machine, "multicast", *slices)
            if _biases_fit(-(-part.items // part.tlts), machine):
                for schedule in schedules:
                    limit = best_time if problem.groups == 1 else float("inf")
                    time, m, n, r, c = search.best_tile(
                        alone, bounds, rates, part, _CODES[schedule], limit
                    )
                    if m and time * problem.groups < best_time:
                        best_time = time * problem.groups
                        best = ConvPlan(
                            "multicast", split, *slices, schedule, m, n, r, c, planner=self.name
                        )
            if problem.groups == 1:
                continue
            part = search_slice(problem, machine, "grouped", *slices)
            if not _biases_fit(-(-part.items // part.tlts) * filters_each, machine):
                continue
            for schedule in _grouped_schedules(schedules):
                time, m, n, r, c = search.best_grouped_tile(
                    together, bounds, rates, part, _CODES[schedule], best_time
                )
                if m:
                    best_time = time
                    best = ConvPlan(
                        "grouped", split, *slices, schedule, m * filters_each, n, r, c,
                        planner=self.name,
                    )  # fmt: skip
        return best


def closed_form_cycles(
    problem: ConvProblem, plan: ConvPlan, machine: NmpMachine, by_volume: bool = False
) -> float:
    """The paper's estimate of ``plan``, Equations 3-9 as `tso_search` states them."""
    part = search_slice(problem, machine, plan.mode, plan.row_slices, plan.filter_slices)
    rates = search_rates(problem, machine, by_volume)
    grouped = plan.mode == "grouped"
    layer = search_layer(problem if grouped else one_group(problem))
    schedule = _CODES[plan.schedule]
    if grouped:
        tile_m = plan.tile_m // (problem.filters // problem.groups)
        return float(
            search.grouped_cycles(layer, rates, part, schedule, tile_m, plan.tile_r, plan.tile_c)
        )
    time = search.multicast_cycles(
        layer, rates, part, schedule, plan.tile_m, plan.tile_n, plan.tile_r, plan.tile_c
    )
    return float(time) * problem.groups


def search_layer(problem: ConvProblem) -> search.Layer:
    return search.Layer(
        filters=problem.filters,
        channels=problem.channels,
        groups=problem.groups,
        rows=problem.rows,
        columns=problem.columns,
        in_rows=problem.in_rows,
        in_columns=problem.in_columns,
        kernel=problem.kernel[0] * problem.kernel[1],
        stride_rows=problem.stride[0],
        stride_columns=problem.stride[1],
        span_rows=problem.in_tile_rows(1),
        span_columns=problem.in_tile_columns(1),
        element_bytes=problem.element_bytes,
        residual=int(problem.has_residual),
        dense=int(problem.is_dense),
    )


def search_slice(
    problem: ConvProblem, machine: NmpMachine, mode: str, row_slices: int, filter_slices: int
) -> search.Slice:
    """TLE_R and TLE_W (TLE_W in groups when TLTs own whole groups)."""
    items = problem.groups if mode == "grouped" else problem.filters // problem.groups
    return search.Slice(
        rows=-(-problem.rows // row_slices),
        items=-(-items // filter_slices),
        tlts=machine.cores.tlts_per_tle,
    )


def search_rates(problem: ConvProblem, machine: NmpMachine, by_volume: bool) -> search.Rates:
    """Algorithm 4: CAS a burst, whatever the transfer, unless ``by_volume``; BW is the rate of an
    engine."""
    return search.Rates(
        transfer=float(machine.dme.setup_cycles),
        burst=0.0 if by_volume else float(machine.dram.cas_cycles),
        byte=1.0 / machine.dme.bytes_per_cycle,
        mac=1.0 / machine.mac.efficiency,
        step=float(machine.mac.setup_cycles),
        burst_bytes=machine.dram.burst_bytes,
        macs_per_cycle=machine.macs_per_cycle(problem.element_bytes),
    )


def _bounds(problem: ConvProblem, machine: NmpMachine, limits: TileLimits) -> search.Bounds:
    memories = machine.memories
    mb2 = memories.mb2_bytes
    if problem.has_residual:  # the residual tile goes where IN was
        mb2 = min(mb2, memories.mb0_bytes)
    return search.Bounds(
        memories.mb0_bytes,
        memories.mb1_bytes,
        mb2,
        limits.max_tile_m or _UNLIMITED,
        limits.max_tile_n or _UNLIMITED,
        limits.max_tile_r or _UNLIMITED,
        limits.max_tile_c or _UNLIMITED,
    )


def _biases_fit(filters_a_tlt: int, machine: NmpMachine) -> bool:
    return filters_a_tlt * BIAS_BYTES <= machine.memories.bias_bytes


def _grouped_schedules(schedules: tuple[Schedule, ...]) -> tuple[Schedule, ...]:
    """A TLT that owns whole groups loads each IN tile once under OS too, which makes IS of it."""
    kept = ("OS" if schedule == "IS" else schedule for schedule in schedules)
    return tuple(dict.fromkeys(kept))


def _why_infeasible(problem: ConvProblem, machine: NmpMachine) -> Infeasible:
    """Which memory the tile of one filter, one channel and one position does not fit."""
    memories = machine.memories
    size = problem.element_bytes
    window = f"{problem.in_tile_rows(1)}x{problem.in_tile_columns(1)}"
    kernel = f"{problem.kernel[0]}x{problem.kernel[1]}"
    needs = (
        (
            "MB0",
            problem.in_tile_rows(1) * problem.in_tile_columns(1) * size,
            memories.mb0_bytes,
            f"smallest IN tile (one channel of a window of {window})",
            "use a smaller or less dilated kernel, or raise memories.mb0_bytes",
        ),
        (
            "MB1",
            problem.kernel[0] * problem.kernel[1] * size,
            memories.mb1_bytes,
            f"smallest W tile (one channel of a filter of {kernel})",
            "use a smaller kernel, or raise memories.mb1_bytes",
        ),
        (
            "MB2",
            size,
            memories.mb2_bytes,
            "smallest OUT tile (one element)",
            "raise memories.mb2_bytes",
        ),
    )
    for buffer, needed, available, reason, remedy in needs:
        if needed > available:
            return Infeasible(buffer, needed, available, reason, remedy)
    needed = least_bias_bytes(problem.filters // problem.groups, machine)
    fewest = needed // BIAS_BYTES
    return Infeasible(
        "the bias buffer",
        needed,
        memories.bias_bytes,
        f"biases of the {fewest} filters of one TLT ({problem.filters} filters in all)",
        "use more TLEs or TLTs, or raise memories.bias_bytes",
    )


_VARIANTS: dict[str, TsoPlanner] = {
    "tso": TsoPlanner(),
    "tso-noburst": TsoPlanner(by_volume=True),
    "fixed-ks": TsoPlanner(splits=("KS",)),
    "fixed-ks-ofm": TsoPlanner(splits=("KS&OFM",)),
    "fixed-ofm": TsoPlanner(splits=("OFM",)),
    "fixed-is": TsoPlanner(schedules=("IS",)),
    "fixed-os": TsoPlanner(schedules=("OS",)),
    "fixed-ws": TsoPlanner(schedules=("WS",)),
}


def tso_planner(name: str, limits: TileLimits = NO_LIMITS) -> TsoPlanner:
    """TSO or a fixed variant of it, by name."""
    return replace(_VARIANTS[name], name=name, limits=limits)
