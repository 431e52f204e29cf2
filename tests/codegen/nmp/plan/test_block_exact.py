"""Plans of blocks are the fastest of their space: against all plans of random small blocks."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from tests.codegen.nmp.simulated import small_machine
from tests.codegen.nmp.test_wide_plans import with_ring
from tests.examples import examples
from tvm_npu.codegen.graph import output_extent
from tvm_npu.codegen.nmp.plan.block import BlockPlan, BlockProblem
from tvm_npu.codegen.nmp.plan.block_check import check_block
from tvm_npu.codegen.nmp.plan.block_cost import predict_block
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan, Split
from tvm_npu.codegen.nmp.plan.exact_blocks.planner import fastest_block, fastest_plans
from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.problem import ConvProblem, Window, tile_sizes
from tvm_npu.sim.arithmetic import ceil_div
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine

MOST_PLANS = 1500
"""Of a problem with more that brute force has to time, another is drawn."""


def machine_of(generator: random.Random) -> NmpMachine:
    memories = [generator.choice((128, 256, 512, 1024, 8192)) for _ in range(3)]
    cores = generator.choice((1, 2, 3, 4)), generator.choice((1, 2, 4))
    return with_ring(small_machine(*cores, *memories), generator.choice((1, 2)))


def block_of(generator: random.Random) -> BlockProblem:
    """Windows or none in front of the pointwise convolution, twins, residuals."""
    kernel = generator.choice(((1, 1), (1, 1), (3, 3), (2, 3)))
    stride, border = generator.choice((1, 1, 2)), generator.choice((0, 1)) * (kernel != (1, 1))
    extents = generator.randint(3, 8), generator.randint(3, 8)
    rows, columns = (
        output_extent(extent, kernel[axis], stride, 1, 2 * border)
        for axis, extent in enumerate(extents)
    )
    window = None
    if generator.random() < 0.6 and min(rows, columns) > 2:
        own, step = generator.choice((2, 3)), generator.choice((1, 2))
        padding = generator.choice((0, 1)) * (own == 3)
        out = [output_extent(extent, own, step, 1, 2 * padding) for extent in (rows, columns)]
        window = Window(
            *out, (own, own), (step, step), (padding, padding), generator.random() < 0.6
        )  # fmt: skip
    channels, filters = generator.randint(1, 5), generator.choice((2, 4, 4, 6, 8))
    has_kernels = window is not None and window.has_weights
    twin = kernel != (1, 1) and stride == 1 and not has_kernels and generator.random() < 0.3
    head = ConvProblem(
        filters, channels, 1, rows, columns, *extents, kernel, (stride, stride), (1, 1),
        (border,) * 4, generator.choice((1, 2)), window=window, has_twin=twin,
    )  # fmt: skip
    has_residual = generator.random() < 0.5
    adds_input = has_residual and generator.random() < 0.7
    point = channels if adds_input else generator.randint(1, 8)
    return BlockProblem(head, point, has_residual, adds_input)


def divisors(total: int) -> list[int]:
    return [one for one in range(1, total + 1) if total % one == 0]


def all_plans(problem: BlockProblem, machine: NmpMachine) -> Iterator[BlockPlan]:
    """All of the space, sound or not: rings wherever TLEs share, rows and columns of tiles the
    least for each number of them."""
    head, tles, tlts = problem.head, machine.cores.tles, machine.cores.tlts_per_tle
    ports = machine.memories.ports
    for slices in product(range(1, tles + 1), repeat=3):
        for parts in product(divisors(tlts), repeat=2):
            crew = slices[2] * (tlts // (parts[0] * parts[1])) if parts[0] * parts[1] <= tlts else 0
            if not crew or tlts % (parts[0] * parts[1]) or head.filters % crew:
                continue
            if slices[0] * slices[1] * slices[2] > tles:
                continue
            own = head.filters // crew
            rows, columns = (
                ceil_div(ceil_div(extent, slices[axis]), parts[axis])
                for axis, extent in enumerate((head.out_rows, head.out_columns))
            )
            for tile_r, tile_c, tile_m, tile_n, buffers in product(
                tile_sizes(rows), tile_sizes(columns), divisors(own),
                range(1, head.channels + 1), range(1, ports + 1),
            ):  # fmt: skip
                split: Split = "KS&OFM"
                if slices[2] == 1:
                    split = "OFM"
                elif slices[0] * slices[1] == 1:
                    split = "KS"
                plain = ConvPlan(
                    "multicast", split, slices[0], slices[2], "WS" if tile_m == own else "OS",
                    tile_m, tile_n, tile_r, tile_c, column_slices=slices[1], tlt_rows=parts[0],
                    tlt_columns=parts[1], ring_in=slices[2] > 1,
                    ring_weights=slices[0] * slices[1] > 1, weights="tiles", linear_maps=True,
                    buffers=2 if buffers == 2 else 1,
                )  # fmt: skip
                heads = [plain]
                if tile_m == own:
                    heads.append(replace(plain, keeps_rows=True))
                elif tile_n == head.channels:
                    heads.append(replace(plain, keeps_in=True))
                if buffers == 2:
                    heads += [replace(one, macs_first=True) for one in heads]
                for one, passed, on_chip in product(
                    heads, divisors(tile_m * head.planes), (False, True)
                ):
                    yield BlockPlan(one, passed, residual_on_chip=on_chip)
                    if ports == 2:
                        yield BlockPlan(one, passed, slots=2, residual_on_chip=on_chip)


def test_no_plan_of_a_small_block_is_faster() -> None:
    generator = random.Random(5)
    compared = 0
    while compared < examples(12):
        machine, problem = machine_of(generator), block_of(generator)
        sound = []
        for plan in all_plans(problem, machine):
            if check_block(problem, plan, machine) is None:
                sound.append(plan)
            if len(sound) > MOST_PLANS:
                break
        proof = fastest_block(problem, machine, NO_LIMITS, "exact")
        if not sound:
            assert proof is None
            continue
        if len(sound) > MOST_PLANS:
            continue
        assert proof is not None and proof.plan.prediction is not None
        least = min(predict_block(problem, plan, machine).cycles for plan in sound)
        assert proof.plan.prediction.cycles == pytest.approx(least, rel=1e-9)
        assert proof.bound_cycles == pytest.approx(least, rel=1e-9)
        assert check_block(problem, proof.plan, machine) is None
        compared += 1


MOBILE = ConvProblem(
    filters=384, channels=64, groups=1, rows=14, columns=14, in_rows=14, in_columns=14,
    kernel=(1, 1), stride=(1, 1), dilation=(1, 1), padding=(0, 0, 0, 0), element_bytes=2,
    window=Window(14, 14, (3, 3), (1, 1), (1, 1), has_weights=True),
)  # fmt: skip
RESIDUAL = ConvProblem(
    filters=128, channels=128, groups=1, rows=28, columns=28, in_rows=28, in_columns=28,
    kernel=(3, 3), stride=(1, 1), dilation=(1, 1), padding=(1, 1, 1, 1), element_bytes=2,
)


@pytest.mark.parametrize("name", ["nmp-4x8", "nmp-4x8-dual"])
@pytest.mark.parametrize(
    "problem", [BlockProblem(MOBILE, 64, True, True), BlockProblem(RESIDUAL, 512, True)]
)
def test_the_search_times_plans_as_the_cost_model_does(problem: BlockProblem, name: str) -> None:
    """The times of many plans are those of the model, in which the slowest TLE is what counts; and
    the fastest is proven."""
    machine = load_nmp_machine(name)
    found = fastest_plans(problem, machine, NO_LIMITS, 200)
    for cycles, plan in found.plans:
        assert check_block(problem, plan, machine) is None
        assert predict_block(problem, plan, machine).cycles == pytest.approx(cycles, rel=1e-9)
    proof = fastest_block(problem, machine, NO_LIMITS, "exact")
    assert proof is not None and proof.plan.prediction is not None
    assert proof.bound_cycles == proof.plan.prediction.cycles


def test_channels_and_the_order_of_products_and_loads_are_searched() -> None:
    """With the largest T_N that fits, and products always first, this block takes 8 % longer."""
    dual = load_nmp_machine("nmp-4x8-dual")
    problem = BlockProblem(RESIDUAL, 512, True)
    proof = fastest_block(problem, dual, NO_LIMITS, "exact")
    assert proof is not None and proof.plan.prediction is not None
    head = proof.plan.head
    larger = replace(proof.plan, head=replace(head, tile_n=head.tile_n + 1))
    assert check_block(problem, larger, dual) is None  # it is not the largest that fits
    limits = TileLimits(max_tile_n=1)
    small = fastest_block(problem, dual, limits, "exact")
    assert small is not None and small.plan.prediction is not None
    assert small.plan.head.tile_n == 1
    assert small.plan.prediction.cycles > proof.plan.prediction.cycles
