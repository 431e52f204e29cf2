"""What a requantize step needs beside the biases of a layer: a table or slopes; where that lies on
chip, and who brings it there.

It lies at the end of the bias buffer, behind the biases. The first active TLT of each TLE loads it
for all that are active, once a layer, in front of everything else.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.codegen.graph import Requantized, Table
from tvm_npu.codegen.nmp.emit.commands import Nodes, when
from tvm_npu.codegen.nmp.emit.conventions import TABLE_ARRIVED, wait
from tvm_npu.codegen.nmp.emit.expressions import Expression, Operand
from tvm_npu.codegen.nmp.emit.layer import ConstantsPlace
from tvm_npu.codegen.nmp.emit.parameters import LayerParameters
from tvm_npu.codegen.nmp.emit.transfers import OnChip, run_transfer
from tvm_npu.codegen.nmp.plan.tables import table_bytes
from tvm_npu.sim.machine_parts import BIAS_BYTES
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.nmp.xnmp import Activation, MacRegister, Memory
from tvm_npu.sim.streams import Stream

ExtendedForm = tuple[Activation, dict[MacRegister, Operand]]
"""A form of nmp_activationx and the registers that it takes more than nmp_activation."""


@dataclass(frozen=True)
class TablePlace:
    """A table on chip: ``address`` is its first byte in the bias buffer, ``zoom`` the left shift of
    arguments."""

    address: int
    zoom: int

    def form(self, first_filter: Expression | None = None) -> ExtendedForm:
        values: dict[MacRegister, Operand] = {
            MacRegister.TABLE_ADDRESS: self.address,
            MacRegister.FACTOR: self.zoom,
        }
        return Activation.TABLE, values


@dataclass(frozen=True)
class SlopesPlace:
    """Slopes of negative accumulators: one ``slope``, or from byte ``address`` of the bias buffer
    on those of all filters."""

    slope: int | None
    address: int = 0

    def form(self, first_filter: Expression | None = None) -> ExtendedForm:
        """Of a tile that begins with a filter of the layer."""
        if self.slope is not None:
            return Activation.LEAKY, {MacRegister.FACTOR: self.slope}
        assert first_filter is not None
        return Activation.PRELU, {
            MacRegister.TABLE_ADDRESS: first_filter * BIAS_BYTES + self.address
        }


FinishPlace = TablePlace | SlopesPlace


def table_place(table: Table | None, machine: NmpMachine, element_bytes: int) -> TablePlace | None:
    if table is None:
        return None
    address = machine.memories.bias_bytes - table_bytes(element_bytes)
    return TablePlace(address, -table.shift)


def finish_place(
    layer: Requantized, machine: NmpMachine, element_bytes: int
) -> FinishPlace | None:
    """The table or the slopes of a layer; None for one that has neither."""
    if layer.slopes is None:
        return table_place(layer.table, machine, element_bytes)
    if len(layer.slopes) == 1:
        return SlopesPlace(int(layer.slopes[0]))
    return SlopesPlace(None, machine.memories.bias_bytes - len(layer.slopes) * BIAS_BYTES)


def load_table(
    table: ConstantsPlace | None,
    parameters: LayerParameters,
    machine: NmpMachine,
    element_bytes: int,
) -> Nodes:
    """The commands in front of a layer with a table or slopes in the bias buffer; none for one
    without."""
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
        Expression(constant=machine.memories.bias_bytes - table.size_bytes),
        tlts=parameters.number("table_receivers", receivers),
    )
    address = parameters.address("table", table.location)
    load = run_transfer(
        "nmp_mload", Stream.BIAS, Memory.BIAS, address, TABLE_ARRIVED, table.size_bytes,
        element_bytes, place,
    )  # fmt: skip
    return (*when(leader, "!=", (load,)), wait(TABLE_ARRIVED))
