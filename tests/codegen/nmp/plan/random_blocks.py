"""Blocks of random shapes under random plans near the fastest, and their times on the simulator."""

from __future__ import annotations

import random

import numpy as np

from tests.codegen.nmp.fixed_layers import random_tensors
from tests.codegen.nmp.forced import Forced
from tests.codegen.nmp.simulated import simulate
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Shape, output_extent, q_point_scales
from tvm_npu.codegen.nmp.plan.block import BlockPlan, BlockProblem
from tvm_npu.codegen.nmp.plan.block_check import check_block
from tvm_npu.codegen.nmp.plan.exact_blocks.planner import fastest_plans
from tvm_npu.codegen.ops import FixedConcat, FixedConv, FixedPool
from tvm_npu.codegen.plan.limits import NO_LIMITS
from tvm_npu.codegen.plan.problem import ConvProblem, Window
from tvm_npu.sim.nmp.machine import NmpMachine

PLANS = 100
"""Of the fastest plans one is drawn."""


def random_block(generator: random.Random) -> BlockProblem:
    """As in MobileNets, ResNets and SqueezeNet: a twin or none, a pool, kernels of each channel or
    no window, a residual, which may be the input."""
    kind = generator.choice(("plain", "pooled", "depthwise", "twin", "twin", "twin pooled"))
    size = generator.choice((1, 2, 2))
    taps = 3 if "twin" in kind else generator.choice((1, 1, 3))
    stride = generator.choice((1, 1, 2)) if kind in ("plain", "pooled") else 1
    extent = generator.choice((7, 13, 14, 19, 28, 35))
    out = output_extent(extent, taps, stride, 1, taps - 1)
    window = None
    if kind != "plain" and kind != "twin":
        own = generator.choice((2, 3)) if "pooled" in kind else 3
        step = 2 if "pooled" in kind else generator.choice((1, 1, 2))
        border = 0 if "pooled" in kind else 1
        made = output_extent(out, own, step, 1, 2 * border)
        window = Window(made, made, (own, own), (step, step), (border, border), border == 1)
    channels = generator.choice((8, 16, 24, 48, 64, 96))
    filters = 32 * generator.randint(1, 6)
    head = ConvProblem(
        filters, channels, 1, out, out, extent, extent, (taps, taps), (stride, stride), (1, 1),
        (taps // 2,) * 4, size, window=window, has_twin="twin" in kind,
    )  # fmt: skip
    same = taps == 1 and (head.out_rows, head.out_columns) == (extent, extent)
    adds_input = same and generator.random() < 0.5
    has_residual = adds_input or generator.random() < 0.3
    point = channels if adds_input else generator.choice((16, 24, 32, 64, 96))
    return BlockProblem(head, point, has_residual, adds_input)


def random_fire(generator: random.Random) -> BlockProblem:
    """Two convolutions of one tensor in front of a pointwise one, as in SqueezeNet."""
    extent, channels = generator.randint(13, 32), 16 * generator.randint(1, 4)
    head = ConvProblem(
        32 * generator.randint(2, 6), channels, 1, extent, extent, extent, extent, (3, 3), (1, 1),
        (1, 1), (1, 1, 1, 1), 2, has_twin=True,
    )  # fmt: skip
    return BlockProblem(head, 16 * generator.randint(1, 5))


def graph_of_block(problem: BlockProblem) -> FixedGraph:
    generator = np.random.default_rng(0)
    head = problem.head
    stored = np.iinfo(np.int8 if problem.element_bytes == 1 else np.int16)

    def conv(
        source: str, target: str, shape: tuple[int, ...], *added: str, **more: object
    ) -> FixedConv:
        return FixedConv(
            target, (source, *added), (target,), shift=8, low=int(stored.min),
            high=int(stored.max), weight=generator.integers(-50, 50, shape).astype(stored.dtype),
            bias=generator.integers(-999, 999, shape[0]).astype(np.int32),
            **more,  # type: ignore[arg-type]
        )  # fmt: skip

    middle, out = (head.rows, head.columns), (head.out_rows, head.out_columns)
    made = "h"
    layers: list[FixedLayer] = [
        conv(
            "x", "h", (head.filters, head.channels, *head.kernel), padding=head.padding,
            stride=head.stride,
        )
    ]  # fmt: skip
    shapes: dict[str, Shape] = {
        "x": (head.channels, head.in_rows, head.in_columns), "h": (head.filters, *middle),
    }  # fmt: skip
    channels = head.filters * head.planes
    if head.has_twin:
        layers += [
            conv("x", "t", (head.filters, head.channels, 1, 1)),
            FixedConcat("c", ("h", "t"), ("c",)),
        ]
        shapes |= {"t": (head.filters, *middle), "c": (channels, *middle)}
        made = "c"
    if head.window is not None:
        window = head.window
        padding = window.padding * 2
        if window.has_weights:
            layers.append(
                conv(
                    made, "w", (channels, 1, *window.kernel), padding=padding,
                    stride=window.stride, groups=channels,
                )
            )  # fmt: skip
        else:
            layers.append(FixedPool(
                "w", (made,), ("w",), kind="max", kernel=window.kernel, stride=window.stride,
                padding=padding, count_include_pad=False, counted_padding=padding, shift=0,
                low=int(stored.min), high=int(stored.max),
            ))  # fmt: skip
        shapes["w"] = (channels, *out)
        made = "w"
    shapes["z"] = (problem.filters, *out)
    inputs: tuple[str, ...] = ("x",)
    added: tuple[str, ...] = ()
    if problem.has_residual:
        added = ("x",) if problem.adds_input else ("r",)
        if not problem.adds_input:
            shapes["r"], inputs = shapes["z"], ("x", "r")
    layers.append(conv(made, "z", (problem.filters, channels, 1, 1), *added))
    scales = q_point_scales(dict.fromkeys(shapes, 8))
    return FixedGraph(tuple(layers), shapes, inputs, ("z",), scales, problem.element_bytes)


def times_of(
    problem: BlockProblem, plan: BlockPlan, machine: NmpMachine
) -> tuple[float, float]:
    """(predicted, simulated) cycles of the block by itself."""
    fixed = graph_of_block(problem)
    program = compile_fixed(fixed, machine, Forced(plan))
    assert len(program.layers) == 1
    cycles = program.layers[0].predicted_cycles
    assert cycles is not None
    _, statistics = simulate(program, random_tensors(fixed, 1))
    return cycles, statistics.layers[0].cycles


def random_plan(
    generator: random.Random, problem: BlockProblem, machine: NmpMachine, several_tiles: bool
) -> BlockPlan | None:
    """One of the fastest; ``several_tiles``: of those that walk several tiles of the head's filters
    with two buffers. None where no such plan fits."""
    plans = [
        plan for _, plan in fastest_plans(problem, machine, NO_LIMITS, PLANS).plans
        if not several_tiles or (plan.head.schedule == "OS" and plan.head.buffers == 2)
    ]  # fmt: skip
    plans = [plan for plan in plans if check_block(problem, plan, machine) is None]
    return generator.choice(plans) if plans else None
