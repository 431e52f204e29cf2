"""How long the MAC unit of a TLT works, and its core beside it."""

from __future__ import annotations

from tvm_npu.codegen.nmp.plan.kept_rows import shared_rows
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.sim.nmp.machine import NmpMachine

STEP_INSTRUCTIONS, STEP_SEMAPHORES = 40, 5
"""About what a core does in a step beside waiting."""
AHEAD_INSTRUCTIONS, AHEAD_INSTRUCTIONS_WS = 105, 80
"""Likewise with two buffers: the loads of the next step come in front of its products, where all
that share tiles wait for one another; under WS those of IN alone."""
FIRST_INSTRUCTIONS = 20
"""Likewise where the products begin in front of the loads: what is not beside them."""
LATE_INSTRUCTIONS, LATE_INSTRUCTIONS_RING = 60, 90
"""By so much a load that comes behind the start of products comes later than one in front; where
TLEs share tiles, they wait for one another, too."""
ROW_INSTRUCTIONS = 16
"""Likewise between the products of two rows of a tile."""


def mac_cycles(
    problem: ConvProblem,
    filters: int,
    channels: int,
    rows: int,
    columns: int,
    machine: NmpMachine,
    step: float | None = None,
) -> float:
    """MAC time of one step: TSO, Equation 7, at the reachable share of the peak rate, with what
    the core does around it (``step`` cycles, where it is not `step_cycles`)."""
    if filters * rows * columns == 0:
        return 0.0
    rate = machine.macs_per_cycle(problem.element_bytes)
    if problem.is_dense:
        units = filters * -(-channels // rate)
    else:
        kernel = problem.kernel[0] * problem.kernel[1]
        beats = -(-rows * columns * kernel // rate) + problem.has_twin * -(-rows * columns // rate)
        units = channels * filters * beats
    own = machine.mac.setup_cycles + (step_cycles(machine) if step is None else step)
    own += problem.has_twin * twin_cycles(machine)
    return units / machine.mac.efficiency + own


def twin_cycles(machine: NmpMachine) -> float:
    """What the second of two instructions with one IN tile takes beside its products."""
    cores = machine.cores
    return machine.mac.setup_cycles + ROW_INSTRUCTIONS * cores.instruction_cycles


def rows_mac_cycles(
    problem: ConvProblem,
    filters: int,
    channels: int,
    rows: int,
    columns: int,
    machine: NmpMachine,
    step: float,
) -> float:
    """`mac_cycles` where every row of the OFM tile has an instruction of its own."""
    if filters * columns == 0:
        return 0.0
    if rows == 0:
        return step
    one = mac_cycles(problem, filters, channels, 1, columns, machine, 0.0)
    return rows * one + (rows - 1) * ROW_INSTRUCTIONS * machine.cores.instruction_cycles + step


def keep_cycles(
    problem: ConvProblem, filters: int, columns: int, machine: NmpMachine
) -> float:
    """MAC time of the copy of rows that stay (`kept_rows`), with what the core does for it."""
    if filters * columns == 0:
        return 0.0
    one = pass_cycles(filters * problem.planes, columns, problem.element_bytes, machine)
    return shared_rows(problem) * (one + ROW_INSTRUCTIONS * machine.cores.instruction_cycles)


def step_cycles(
    machine: NmpMachine, buffers: int = 1, keeps_weights: bool = False, macs_first: bool = False
) -> float:
    """What a core does in a step beside waiting; ``keeps_weights``: under WS. With ``macs_first``
    most of it goes on beside the products."""
    cores = machine.cores
    ahead = AHEAD_INSTRUCTIONS_WS if keeps_weights else AHEAD_INSTRUCTIONS
    if macs_first:
        ahead = FIRST_INSTRUCTIONS
    instructions = ahead if buffers == 2 else STEP_INSTRUCTIONS
    return instructions * cores.instruction_cycles + STEP_SEMAPHORES * cores.semaphore_cycles


def finish_cycles(
    problem: ConvProblem, filters: int, rows: int, columns: int, machine: NmpMachine
) -> float:
    """MAC unit time at the end of the channels of a tile of the OFM: its requantization, after the
    addition of the residual tile where there is one; a twin's by itself."""
    one = pass_cycles(1, filters * rows * columns, problem.element_bytes, machine)
    return (2 if problem.has_residual else problem.planes) * one


def all_finish_cycles(
    problem: ConvProblem, elements: int, tiles: int, machine: NmpMachine
) -> float:
    """`finish_cycles` of ``tiles`` that have so many elements together, at least."""
    rate, times = machine.macs_per_cycle(problem.element_bytes), 1 + problem.has_residual
    beats = max(-(-elements // rate), tiles)
    return times * (beats / machine.mac.efficiency + tiles * machine.mac.setup_cycles)


def window_cycles(
    problem: ConvProblem, filters: int, rows: int, columns: int, machine: NmpMachine
) -> float:
    """MAC unit time from a tile of the OFM to an OUT tile of ``rows`` x ``columns`` through the
    window behind the convolution, with what the core does around it; 0 without a window."""
    window = problem.window
    filters = filters * problem.planes
    elements = filters * rows * columns
    if window is None or elements == 0:
        return 0.0
    taps = window.kernel[0] * window.kernel[1]
    cycles = pass_cycles(filters, rows * columns * taps, problem.element_bytes, machine)
    if window.has_weights:
        cycles += pass_cycles(1, elements, problem.element_bytes, machine)
    return cycles + step_cycles(machine)


def pass_cycles(times: int, elements: int, element_bytes: int, machine: NmpMachine) -> float:
    """One instruction that takes ``elements`` elements, ``times`` over; 0 for none."""
    if times * elements == 0:
        return 0.0
    beats = times * -(-elements // machine.macs_per_cycle(element_bytes))
    return beats / machine.mac.efficiency + machine.mac.setup_cycles


def late_cycles(machine: NmpMachine, over_ring: bool) -> float:
    """How much later the engine gets the loads of a step with `ConvPlan.macs_first`."""
    instructions = LATE_INSTRUCTIONS_RING if over_ring else LATE_INSTRUCTIONS
    return instructions * machine.cores.instruction_cycles
