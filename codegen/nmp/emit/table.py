"""What a requantize step needs beside the biases of a layer: a table, slopes or scale words; where
that lies on chip, and who brings it there.

It lies at the end of the bias buffer, behind the biases. The first active TLT of each TLE loads it
for all that are active, once a layer, in front of everything else.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.codegen.graph import Halves, Requantized, Table
from tvm_npu.codegen.nmp.emit.commands import Nodes, when
from tvm_npu.codegen.nmp.emit.conventions import TABLE_ARRIVED, wait
from tvm_npu.codegen.nmp.emit.expressions import Expression, Operand
from tvm_npu.codegen.nmp.emit.layer import ConstantsPlace
from tvm_npu.codegen.nmp.emit.parameters import LayerParameters
from tvm_npu.codegen.nmp.emit.transfers import OnChip, run_transfer
from tvm_npu.codegen.nmp.emit.weights import scale_words
from tvm_npu.codegen.nmp.plan.tables import table_bytes
from tvm_npu.sim.machine_parts import BIAS_BYTES
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.nmp.xnmp import Activation, MacRegister, Memory, Rescale
from tvm_npu.sim.streams import Stream

ExtendedForm = tuple[str, int, dict[MacRegister, Operand]]
"""An instruction in place of nmp_activation, its sub, and the registers that it takes more."""
EXTENDED = "nmp_activationx"


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
        return EXTENDED, int(Activation.TABLE), values


@dataclass(frozen=True)
class SlopesPlace:
    """Slopes of negative accumulators: one ``slope``, or from byte ``address`` of the bias buffer
    on those of all filters."""

    slope: int | None
    address: int = 0

    def form(self, first_filter: Expression | None = None) -> ExtendedForm:
        """Of a tile that begins with a filter of the layer."""
        if self.slope is not None:
            return EXTENDED, int(Activation.LEAKY), {MacRegister.FACTOR: self.slope}
        assert first_filter is not None
        address = first_filter * BIAS_BYTES + self.address
        return EXTENDED, int(Activation.PRELU), {MacRegister.TABLE_ADDRESS: address}


@dataclass(frozen=True)
class ScalesPlace:
    """Scale words of accumulators, and the zero point of results: one ``word``, or from byte
    ``address`` of the bias buffer on those of all filters."""

    word: int | None
    zero_point: int
    halves: Halves
    address: int = 0

    def form(self, first_filter: Expression | None = None) -> ExtendedForm:
        """Of a tile that begins with a filter of the layer."""
        values: dict[MacRegister, Operand] = {MacRegister.SHIFT: self.zero_point}
        to_even = self.halves == "even"
        if self.word is not None:
            sub = Rescale.ONE_EVEN if to_even else Rescale.ONE
            return "nmp_rescale", int(sub), {**values, MacRegister.FACTOR: self.word}
        assert first_filter is not None
        address = first_filter * BIAS_BYTES + self.address
        sub = Rescale.CHANNEL_EVEN if to_even else Rescale.CHANNEL
        return "nmp_rescale", int(sub), {**values, MacRegister.TABLE_ADDRESS: address}


FinishPlace = TablePlace | SlopesPlace | ScalesPlace


def table_place(table: Table | None, machine: NmpMachine, element_bytes: int) -> TablePlace | None:
    if table is None:
        return None
    address = machine.memories.bias_bytes - table_bytes(element_bytes)
    return TablePlace(address, -table.shift)


def finish_place(
    layer: Requantized, machine: NmpMachine, element_bytes: int
) -> FinishPlace | None:
    """The table, the slopes or the scale words of a layer; None for one that has none."""
    if layer.rescaling is not None:
        words = scale_words(layer.rescaling)
        zero_point, halves = layer.rescaling.zero_point, layer.rescaling.halves
        if len(words) == 1:
            return ScalesPlace(int(words[0]), zero_point, halves)
        address = machine.memories.bias_bytes - words.nbytes
        return ScalesPlace(None, zero_point, halves, address)
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
    """The commands in front of a layer with something in the bias buffer beside the biases;
    none for one without."""
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
