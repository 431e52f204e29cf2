"""A PL-330 DMA controller that executes channel programs, bytes and cycles.

`Dmac` holds two byte memories, DDR and on-chip, that it shares with whoever simulates the
processor. The processor drives it by time:

    dmac = Dmac(timing, ddr, on_chip)
    dmac.start(0, program, now_cycles=100.0)        # DMAGO; the program ends with DMASEV 0
    now_cycles = dmac.wait(0, now_cycles=250.0)     # when event 0 is there, at least 250
    now_cycles = dmac.wait_stopped(0, now_cycles)   # DMAEND comes behind the event

Channels that run at the same time share the execution unit and the memories. `start` and `wait`
first do everything that begins earlier, so a processor whose times never go back sees the same
cycles and bytes however its work is cut into calls, and a processor that touches a buffer only
between the event behind the last transfer of it and the start of the next one sees exact values.
`run` goes on until nothing moves any more, `run_program` is one program alone.

`tvm_npu.codegen.parts.pl330` makes programs; `tvm_npu.sim.parts.pl330.code` assembles and lists
them.
"""

from typing import TYPE_CHECKING, Any

from tvm_npu.sim.parts.pl330.timing import ZYNQ_7020_DMAC, DmacTiming
from tvm_npu.sim.parts.pl330.traps import DmacError, DmacTrapCode

if TYPE_CHECKING:
    from tvm_npu.sim.parts.pl330.dmac import ChannelStatistics, Dmac, Transfer, run_program
    from tvm_npu.sim.parts.pl330.linear_cost import LinearCost, TimedTransfer, fit

__all__ = [
    "ZYNQ_7020_DMAC",
    "ChannelStatistics",
    "Dmac",
    "DmacError",
    "DmacTiming",
    "DmacTrapCode",
    "LinearCost",
    "TimedTransfer",
    "Transfer",
    "fit",
    "run_program",
]


def __getattr__(name: str) -> Any:
    """Imports what simulates, with its compiler, when it is first asked for: descriptions of
    machines need `DmacTiming` alone."""
    if name in __all__:
        from tvm_npu.sim.parts.pl330 import dmac, linear_cost

        for module in (dmac, linear_cost):
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
