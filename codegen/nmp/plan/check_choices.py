"""Whether the choices of a plan exist: words, numbers and flags, in combinations that exist and
that the machine has the hardware for.
"""

from __future__ import annotations

from math import prod

from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.kept_rows import (
    has_whole_rows,
    least_tile_rows,
    reaches_last_row,
    shared_rows,
)
from tvm_npu.codegen.nmp.plan.turns import tlt_filters, turns_of
from tvm_npu.codegen.plan.faults import PlanFault
from tvm_npu.codegen.plan.problem import ConvProblem, slice_of
from tvm_npu.sim.nmp.machine import NmpMachine

Interval = tuple[int, int]
"""(begin, end); end is not in it."""


class Found(Exception):
    """Carries the first fault out of the checks."""

    def __init__(self, fault: PlanFault) -> None:
        super().__init__(str(fault))
        self.fault = fault


def require(holds: bool, what: str, value: object, limit: object) -> None:
    if not holds:
        raise Found(PlanFault(what, value, limit))


def choice_fault(problem: ConvProblem, plan: ConvPlan, machine: NmpMachine) -> PlanFault | None:
    """The first fault of the plan's choices, whatever its tiles need: words, numbers and flags
    that exist, in combinations that exist and that the machine has the hardware for."""
    try:
        check_choices(problem, plan, machine)
    except Found as found:
        return found.fault
    return None


def check_choices(problem: ConvProblem, plan: ConvPlan, machine: NmpMachine) -> None:
    """Words that exist, in combinations that exist, on TLEs that exist."""
    require(problem.groups >= 1, "groups", problem.groups, "at least 1")
    for name, total in (("filters", problem.filters), ("channels", problem.channels)):
        require(
            total > 0 and total % problem.groups == 0,
            name, total, f"a positive multiple of {problem.groups} groups",
        )  # fmt: skip
    require(plan.mode in ("multicast", "grouped"), "mode", plan.mode, "multicast or grouped")
    if problem.groups == 1:
        what, only = "mode of a layer with groups = 1", "multicast: grouped spreads whole groups"
        require(plan.mode == "multicast", what, plan.mode, only)
    schedules = ("OS", "WS") if plan.mode == "grouped" else ("IS", "OS", "WS")
    require(
        plan.schedule in schedules,
        f"schedule of a {plan.mode} plan", plan.schedule, " or ".join(schedules),
    )  # fmt: skip
    for name in _COUNTS:
        value = getattr(plan, name)
        require(isinstance(value, int) and value >= 1, name, value, "an integer of at least 1")
    for name in _FLAGS:
        value = getattr(plan, name)
        require(isinstance(value, bool), name, value, "True or False")
    require(plan.weights in ("filters", "tiles"), "weights", plan.weights, "filters or tiles")
    _check_cores(plan, machine)
    if plan.mode == "grouped":
        for name, plain in _PLAIN.items():
            value = getattr(plan, name)
            require(value == plain, f"{name} of a grouped plan", value, plain)
    if plan.keeps_in:
        require(plan.schedule == "OS", "schedule with keeps_in", plan.schedule, "OS")
        channels = problem.channels // problem.groups
        require(
            plan.tile_n == channels, "tile_n with keeps_in", plan.tile_n, f"all {channels} channels"
        )
    require(plan.buffers in (1, 2), "buffers", plan.buffers, "1 or 2")
    if plan.buffers == 2:
        ports = machine.memories.ports
        require(ports == 2, f"ports of a memory of {machine.name}, with buffers = 2", ports, "2")
    if plan.macs_first:
        require(plan.buffers == 2, "buffers with macs_first", plan.buffers, "2")
    if plan.in_by_channels:
        padding = problem.padding
        require(not any(padding), "padding with in_by_channels", padding, (0, 0, 0, 0))
        require(problem.window is None, "a window with in_by_channels", problem.window, None)
    _check_ring(problem, plan, machine)
    if problem.window is not None:
        _check_window(problem, plan, machine)
    if plan.keeps_rows:
        _check_kept_rows(problem, plan, machine)


_COUNTS = (
    "row_slices", "column_slices", "filter_slices", "tlt_rows", "tlt_columns",
    "tile_m", "tile_n", "tile_r", "tile_c",
)  # fmt: skip
_FLAGS = (
    "keeps_in", "ring_in", "ring_weights", "linear_maps", "keeps_rows", "macs_first",
    "in_by_channels",
)  # fmt: skip
_PLAIN = {
    "column_slices": 1, "tlt_rows": 1, "tlt_columns": 1, "keeps_in": False, "ring_in": False,
    "ring_weights": False, "buffers": 1, "in_by_channels": False,
}  # fmt: skip
"""What the grouped mode leaves as it was."""


def _check_cores(plan: ConvPlan, machine: NmpMachine) -> None:
    """Slices for TLEs and parts for TLTs that the machine has."""
    spatial = plan.row_slices * plan.column_slices
    tles = spatial * plan.filter_slices
    what = "row_slices * filter_slices"
    if plan.column_slices > 1:
        what = "row_slices * column_slices * filter_slices"
    require(tles <= machine.cores.tles, what, tles, f"at most {machine.cores.tles} TLEs")
    tlts, parts = machine.cores.tlts_per_tle, plan.tlt_rows * plan.tlt_columns
    require(
        tlts % parts == 0, "tlt_rows * tlt_columns", parts, f"a divisor of {tlts} TLTs of a TLE"
    )


def check_split(plan: ConvPlan) -> None:
    """The name of the split says how the layer is spread over the TLEs; no cost depends on it."""
    require(plan.split in ("KS", "KS&OFM", "OFM"), "split", plan.split, "KS, KS&OFM or OFM")
    if plan.split == "KS":
        require(plan.row_slices == 1, "row_slices under KS", plan.row_slices, "1")
        require(plan.column_slices == 1, "column_slices under KS", plan.column_slices, "1")
    if plan.split == "OFM":
        require(plan.filter_slices == 1, "filter_slices under OFM", plan.filter_slices, "1")


def _check_window(problem: ConvProblem, plan: ConvPlan, machine: NmpMachine) -> None:
    """What may stand in front of a window, and that every window touches the OFM."""
    for what, value, limit in (
        ("mode with a window", plan.mode, "multicast"),
        ("groups with a window", problem.groups, 1),
        ("a residual with a window", problem.has_residual, False),
        ("is_dense with a window", problem.is_dense, False),
    ):
        require(value == limit, what, value, limit)
    require(machine.ring is not None, f"ring of {machine.name}", None, "there for a window")
    for axis, count in ((0, problem.out_rows), (1, problem.out_columns)):
        for at in (0, count - 1):
            begin, end = middle_of(problem, axis, (at, at + 1))
            what = f"OFM {('rows', 'columns')[axis]} under window {at}"
            require(begin < end, what, (begin, end), "at least one")


def _check_kept_rows(problem: ConvProblem, plan: ConvPlan, machine: NmpMachine) -> None:
    """Rows to keep, which are there in front of every tile but a TLT's first; and no more loops
    than cores have registers for."""
    parts = tlt_filters(plan, machine)
    cut = sum((
        plan.tile_n < problem.channels,
        turns_of(problem.filters, plan.filter_slices, parts, plan.tile_m) > 1,
        turns_of(problem.out_columns, plan.column_slices, plan.tlt_columns, plan.tile_c) > 1,
    ))  # fmt: skip
    what = "axes with several tiles of a TLT, beside rows, with keeps_rows"
    require(cut <= 2, what, cut, "at most 2 of filters, columns and channels")
    shared = shared_rows(problem)
    require(shared > 0, "rows that windows share, with keeps_rows", shared, "more than 0")
    require(not plan.keeps_in, "keeps_in with keeps_rows", plan.keeps_in, False)
    span, stride = problem.in_tile_rows(1), problem.stride[0]
    require(has_whole_rows(problem), "stride with keeps_rows", stride, f"at most {span} rows")
    least = least_tile_rows(problem)
    require(plan.tile_r >= least, "tile_r with keeps_rows", plan.tile_r, f"at least {least}")
    require(
        reaches_last_row(problem), "OFM rows with keeps_rows", problem.rows,
        "as many as the windows of the last row but one need",
    )  # fmt: skip


def middle_of(problem: ConvProblem, axis: int, stored: Interval) -> Interval:
    """The rows (axis 0) or columns (1) of the convolution's OFM that what is stored needs."""
    window = problem.window
    if window is None:
        return stored
    low = stored[0] * window.stride[axis] - window.padding[axis]
    last = (stored[1] - 1) * window.stride[axis] - window.padding[axis]
    total = (problem.rows, problem.columns)[axis]
    return max(low, 0), min(last + window.kernel[axis], total)


def _check_ring(problem: ConvProblem, plan: ConvPlan, machine: NmpMachine) -> None:
    """A ring to forward over, and TLEs to forward to, all of which have work: an empty slice
    would have nothing to keep step with, and fewer slices say the same."""
    for is_used, name, slices in (
        (plan.ring_in, "ring_in", ("filter_slices",)),
        (plan.ring_weights, "ring_weights", ("row_slices", "column_slices")),
    ):
        if not is_used:
            continue
        require(machine.ring is not None, f"ring of {machine.name}", None, f"there for {name}")
        sharing = prod(getattr(plan, slice_) for slice_ in slices)
        what = f"{' * '.join(slices)} with {name}"
        require(sharing > 1, what, sharing, "more than 1 TLE to share with")
        for slice_ in slices:
            total = {
                "filter_slices": problem.filters // problem.groups,
                "row_slices": problem.out_rows,
                "column_slices": problem.out_columns,
            }[slice_]
            number = getattr(plan, slice_)
            last = slice_of(total, number, number - 1)[1]
            require(
                last > 0, f"{slice_} with {name}", number, f"so few that none of {total} is empty"
            )
