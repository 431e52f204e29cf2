"""Why a convolution has no plan on a Snowflake machine."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.codegen.snowflake.plan.tiling import (
    ConvShape,
    Geometry,
    Mode,
    SnowflakePlan,
    conv_shape,
    geometry,
    together,
)
from tvm_npu.sim.snowflake.isa import LANES, WORD_BYTES
from tvm_npu.sim.snowflake.machine import SnowflakeMachine


def modes_of(shape: ConvShape) -> tuple[Mode, ...]:
    """Modes that can run a layer."""
    return ("lane",) if shape.is_depthwise else ("coop", "indp")


@dataclass(frozen=True)
class _Room:
    """What the smallest tiles of a mode need."""

    buffer: str
    needed_words: int
    available_words: int

    @property
    def lacking(self) -> int:
        return self.needed_words - self.available_words


def _least(found: Geometry) -> _Room:
    """The buffer that lacks most."""
    kernels = _Room("WBuf", found.kernels_words, found.wbuf_words)
    if not found.can_split_depth:
        kernels = _Room("WBuf", found.kernel_words, found.wbuf_words)
    maps = _Room("MBuf", found.maps_words + found.out_words, found.mbuf_words)
    return max(kernels, maps, key=lambda one: one.lacking)


def smallest(shape: ConvShape, mode: Mode, machine: SnowflakeMachine) -> SnowflakePlan:
    """The smallest tiles of a mode."""
    unit = LANES if mode == "lane" else together(mode, machine)
    return SnowflakePlan(mode, min(shape.filters, unit), 1, 1, "kernels")


def refusal(
    problem: ConvProblem, machine: SnowflakeMachine, limits: TileLimits = NO_LIMITS
) -> Infeasible | None:
    """The reason; None where a plan exists."""
    shape = conv_shape(problem)
    if problem.window is not None:
        return _not_so("windows behind convolutions are layers of their own", "do not fuse them")
    channels = problem.channels // problem.groups
    if limits.max_tile_n is not None and limits.max_tile_n < channels and not shape.is_depthwise:
        return _not_so(
            f"a tile has all {channels} channels, as partial sums are not kept; "
            f"max_tile_n is {limits.max_tile_n}",
            "raise max_tile_n",
        )
    for name, axis in (("rows", shape.rows), ("columns", shape.columns)):
        if not axis.covers:
            return _not_so(
                f"some windows of {axis.kernel} {name} lie in the padding alone", "pad less"
            )
    lacking: list[_Room] = []
    for mode in modes_of(shape):
        found = geometry(shape, smallest(shape, mode, machine), machine)
        if found.rooms is not None:
            return None
        lacking.append(_least(found))
    least = min(lacking, key=lambda one: one.lacking)
    return Infeasible(
        least.buffer,
        WORD_BYTES * least.needed_words,
        WORD_BYTES * least.available_words,
        "the smallest tiles do not fit",
        f"give the machine a larger {least.buffer}",
    )


def _not_so(reason: str, remedy: str) -> Infeasible:
    return Infeasible("plan", 0, 0, reason, remedy)
