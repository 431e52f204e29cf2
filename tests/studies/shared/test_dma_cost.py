"""The linear DMA cost: what it is fitted to, and how well it foretells other transfers."""

from __future__ import annotations

import numpy as np
import pytest

from studies.shared.dma_cost import DDR, ON_CHIP, measure_linear_cost, sample_transfers
from tvm_npu.codegen.parts.pl330 import Box, Direction, Tensor3d, address_jumps, build_transfer
from tvm_npu.sim.parts.pl330 import ZYNQ_7020_DMAC, DmacError, TimedTransfer, fit, run_program


def divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


def random_transfers(count: int, direction: Direction) -> list[tuple[TimedTransfer, int]]:
    """Tiles as the double-buffer planner makes them (divisors of a map, at most 128 KiB, rows of at
    least 8 elements), and the paper's number of jumps for each: one a row."""
    rng = np.random.default_rng(5)
    on_chip = np.zeros(1 << 17, np.uint8)
    found: list[tuple[TimedTransfer, int]] = []
    while len(found) < count:
        sizes = [
            int(rng.choice(choices))
            for choices in ((64, 128, 256, 512), (12, 24, 48, 96), (16, 32, 64, 128))
        ]
        counts = [int(rng.choice(divisors(size))) for size in sizes]
        elements = counts[0] * counts[1] * counts[2]
        if not 256 <= elements <= 32768 or counts[2] < 8:
            continue
        begins = [int(rng.integers(0, s // c)) * c for s, c in zip(sizes, counts, strict=True)]
        tensor, box = Tensor3d(DDR, *sizes, 4), Box(*begins, *counts)
        ddr = np.zeros(tensor.size_bytes, np.uint8)
        program = build_transfer(tensor, box, ON_CHIP, direction=direction, event=0)
        cycles, _ = run_program(
            program, ZYNQ_7020_DMAC, ddr, on_chip, ddr_base=DDR, on_chip_base=ON_CHIP
        )
        transfer = TimedTransfer(address_jumps(tensor, box), elements, cycles)
        found.append((transfer, counts[0] * counts[1]))
    return found


@pytest.mark.parametrize("direction", ["load", "store"])
def test_linear_cost_foretells_simulated_cycles(direction: Direction) -> None:
    cost = measure_linear_cost(ZYNQ_7020_DMAC, 4, direction)
    others = random_transfers(150, direction)
    errors = np.array([abs(cost.cycles(t.jumps, t.elements) / t.cycles - 1) for t, _ in others])
    assert errors.mean() < 0.03
    assert np.quantile(errors, 0.9) < 0.06
    assert errors.max() < 0.15


def test_constants_are_those_of_the_machine() -> None:
    cost = measure_linear_cost(ZYNQ_7020_DMAC)
    timing = ZYNQ_7020_DMAC
    assert timing.start_cycles < cost.start_cycles < 2 * timing.start_cycles
    assert timing.jump_cycles <= cost.jump_cycles < 2 * timing.jump_cycles
    assert 4 / timing.ddr_bytes_per_cycle < cost.element_cycles < 6 / timing.ddr_bytes_per_cycle
    slow = timing.model_copy(update={"jump_cycles": 40.0})
    assert measure_linear_cost(slow).jump_cycles - cost.jump_cycles == pytest.approx(28, rel=0.1)


def test_rows_that_follow_each_other_are_no_jumps() -> None:
    """Equation 2's one jump a row against the breaks that there are."""
    pairs = random_transfers(150, "load")

    def mean_error(transfers: list[TimedTransfer]) -> float:
        cost = fit(transfers)
        errors = [abs(cost.cycles(t.jumps, t.elements) / t.cycles - 1) for t in transfers]
        return float(np.mean(errors))

    rows = [TimedTransfer(jumps, t.elements, t.cycles) for t, jumps in pairs]
    assert mean_error(rows) > 3 * mean_error([t for t, _ in pairs])


def test_sample_and_fit() -> None:
    sample = sample_transfers(ZYNQ_7020_DMAC, 2)
    assert len(sample) > 40
    assert {t.jumps for t in sample} > {1, 3, 12, 48, 192}
    exact = [TimedTransfer(s, n, 100 + 7 * s + 0.5 * n) for s, n in ((1, 10), (5, 10), (3, 900))]
    cost = fit(exact)
    assert (cost.start_cycles, cost.jump_cycles, cost.element_cycles) == pytest.approx(
        (100, 7, 0.5)
    )
    with pytest.raises(DmacError, match="2 transfers to fit three constants"):
        fit(exact[:2])
    with pytest.raises(DmacError, match="a transfer of 0 cycles"):
        fit([*exact, TimedTransfer(1, 1, 0.0)])
