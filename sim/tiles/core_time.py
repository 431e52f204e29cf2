"""How long a scalar core takes for a command: its arithmetic, and where its operands come from.

Without a cache every access goes to the memory where the operand lies. With one, every access costs
a hit, and each line that the command touches is fetched once, because the caches are empty when it
begins (the double-buffer paper flushes them after every unit of work); an operand that is walked
several times and does not fit the cache is fetched anew each time.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.sim.tiles.machine import Core


@dataclass(frozen=True)
class Touched:
    """How a command uses one operand: accesses, distinct bytes, walks over all of these."""

    accesses: int
    size_bytes: int
    walks: int = 1
    on_chip: bool = True


def access_cycles(core: Core, touched: Touched) -> float:
    """What all accesses of a command to one operand cost."""
    if core.cache_bytes == 0:
        each = core.chip_access_cycles if touched.on_chip else core.dram_access_cycles
        return touched.accesses * each
    miss = core.chip_miss_cycles if touched.on_chip else core.dram_miss_cycles
    walks = touched.walks if touched.size_bytes > core.cache_bytes else 1
    lines = walks * -(-touched.size_bytes // core.line_bytes)
    return touched.accesses * core.hit_cycles + lines * miss


@dataclass(frozen=True)
class CoreConvolution:
    """One tconv as a core sees it: a loop over filters around one over places and products; a
    place's sum stays in a register. Bytes are those of the whole operands."""

    filters: int
    products: int
    outputs: int
    in_bytes: int
    weight_bytes: int
    out_bytes: int
    in_on_chip: bool = True
    weights_on_chip: bool = True
    out_on_chip: bool = True


def conv_cycles(core: Core, work: CoreConvolution) -> float:
    """The input is walked once a filter, a filter's weights once, each sum is read and written."""
    return (
        core.setup_cycles
        + work.products * core.mac_cycles
        + access_cycles(
            core, Touched(work.products, work.in_bytes, work.filters, work.in_on_chip)
        )
        + access_cycles(
            core, Touched(work.products, work.weight_bytes, on_chip=work.weights_on_chip)
        )
        + access_cycles(
            core, Touched(2 * work.outputs, work.out_bytes, on_chip=work.out_on_chip)
        )
    )


def element_cycles(core: Core, operations: int, *operands: Touched) -> float:
    """tfinish, tpool, tvec and tfill."""
    return (
        core.setup_cycles
        + operations * core.operation_cycles
        + sum(access_cycles(core, one) for one in operands)
    )
