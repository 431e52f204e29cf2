"""A table behind the requantize step: where it lies on chip, and who brings it there.

It lies at the end of the bias buffer, behind the biases. The first active TLT of each TLE loads it
for all that are active, once a layer, in front of everything else.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.codegen.graph import Table
from tvm_npu.codegen.nmp.emit.commands import Nodes, when
from tvm_npu.codegen.nmp.emit.conventions import TABLE_ARRIVED, wait
from tvm_npu.codegen.nmp.emit.expressions import Expression
from tvm_npu.codegen.nmp.emit.parameters import LayerParameters, Location
from tvm_npu.codegen.nmp.emit.transfers import OnChip, run_transfer
from tvm_npu.codegen.nmp.plan.tables import table_bytes
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.nmp.xnmp import Memory
from tvm_npu.sim.streams import Stream


@dataclass(frozen=True)
class TablePlace:
    """A table on chip: ``address`` is its first byte in the bias buffer, ``zoom`` the left shift of
    arguments."""

    address: int
    zoom: int


def table_place(table: Table | None, machine: NmpMachine, element_bytes: int) -> TablePlace | None:
    if table is None:
        return None
    address = machine.memories.bias_bytes - table_bytes(element_bytes)
    return TablePlace(address, -table.shift)


def load_table(
    table: Location | None, parameters: LayerParameters, machine: NmpMachine, element_bytes: int
) -> Nodes:
    """The commands in front of a layer with a table; none for one without."""
    if table is None:
        return ()
    tlts = machine.cores.tlts_per_tle
    leads, receivers = [], []
    for core, active in enumerate(parameters.active):
        first = core // tlts * tlts
        own = parameters.active[first : first + tlts]
        receivers.append(sum(1 << tlt for tlt, found in enumerate(own) if found))
        leads.append(int(active and not any(own[: core - first])))
    leader = parameters.number("table_leader", leads)
    place = OnChip(
        Expression(constant=machine.memories.bias_bytes - table_bytes(element_bytes)),
        tlts=parameters.number("table_receivers", receivers),
    )
    load = run_transfer(
        "nmp_mload", Stream.BIAS, Memory.BIAS, parameters.address("table", table), TABLE_ARRIVED,
        table_bytes(element_bytes), element_bytes, place,
    )  # fmt: skip
    return (*when(leader, "!=", (load,)), wait(TABLE_ARRIVED))
