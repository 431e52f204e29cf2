"""What all NMP programs agree on: semaphore numbers, the variables of the frame, and the commands
that wait for stores and for the other cores."""

from __future__ import annotations

from tvm_npu.codegen.nmp.emit.commands import Assign, If, Nodes, Semaphore, when
from tvm_npu.codegen.nmp.emit.expressions import ONE, Expression, Operand, Variable
from tvm_npu.sim.nmp.xnmp import Level

MAC_DONE, W_ARRIVED, IN_ARRIVED, STORE_DONE, SECOND_ARRIVED, RELEASED, IN_GO, W_GO = range(1, 9)
OTHER_W_ARRIVED, OTHER_IN_ARRIVED, POINT_W_ARRIVED, POINT_GO = range(9, 13)
OTHER_SECOND_ARRIVED, POINT_RESIDUAL_ARRIVED = 13, 14
TABLE_ARRIVED = MAC_DONE
"""Semaphores of a TLT. SECOND: a residual, a second operand, biases, what a crew passes on;
RELEASED: layer barrier; GO: `shared_buffer`; OTHER: the second half of a buffer that several
engines fill, whose transfers may overtake one another; POINT: of the pointwise convolution of a
block. A table arrives before the layer's first MAC operation."""
ARRIVED = 1
"""Global semaphore: every core adds 1 when it has finished a layer."""
IN_FREE, W_FREE, POINT_FREE = (2, 3), (4, 5), (6, 7)
"""Semaphores of a TLE, or global ones: `shared_buffer`."""

CORE = Variable("core", 0, 511)
TLT = Variable("tlt", 0, 31)
PENDING_STORES = Variable("pending_stores", 0, 1 << 16)
"""Stores of this TLT that it has not waited for yet."""


def wait(number: int, count: Operand = 1) -> Semaphore:
    """Waits for ``count`` of a semaphore of the own TLT."""
    return Semaphore("wait", Level.TLT, number, Expression.of(count))


def wait_store() -> Nodes:
    """MB2 may be overwritten: the last store from it is complete."""
    return (wait(STORE_DONE, PENDING_STORES),)


def stored() -> Nodes:
    return (Assign(PENDING_STORES, ONE),)


def wait_older_store() -> Nodes:
    """The half of MB2 that was stored from first may be overwritten: at most one store is left."""
    older = Expression.of(PENDING_STORES) - 1
    return (If(older, ">", (wait(STORE_DONE), Assign(PENDING_STORES, ONE))),)


def stored_one_more() -> Nodes:
    return (Assign(PENDING_STORES, Expression.of(PENDING_STORES) + 1),)


def barrier(core_count: int) -> Nodes:
    """All stores of all cores are complete before any core goes on."""
    collect = (
        Semaphore("wait", Level.GLOBAL, ARRIVED, Expression.of(core_count)),
        Semaphore("release", Level.GLOBAL, RELEASED),
    )
    return (
        *wait_store(),
        Assign(PENDING_STORES, Expression()),
        Semaphore("signal", Level.GLOBAL, ARRIVED),
        *when(CORE, "==", collect),
        wait(RELEASED),
    )
