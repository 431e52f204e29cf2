"""Placed steps to code of one cluster: transfers between the vector instructions that hide them,
and a `sync` wherever something is touched that may not be complete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.program.parts import Segment
from tvm_npu.codegen.snowflake.code.banks import CodeBlock, too_long
from tvm_npu.codegen.snowflake.code.block import BlockCompiler, Words
from tvm_npu.codegen.snowflake.code.nodes import Value, Writer
from tvm_npu.codegen.snowflake.code.registers import OutOfRegisters
from tvm_npu.codegen.snowflake.pace import together
from tvm_npu.codegen.snowflake.pace.items import Item, memory_units
from tvm_npu.codegen.snowflake.steps.chunks import (
    LEAST_TOGETHER,
    MOST_TRANSFERS,
    TRANSFER_CYCLES,
)
from tvm_npu.codegen.snowflake.steps.objects import Access, Chunk, Move, Place, Specials
from tvm_npu.codegen.snowflake.steps.passes import PlacedStep
from tvm_npu.sim.snowflake.isa import MEMORY_UNIT_BYTES, WORD_BYTES, Buffer, Shared, Special, Wait
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

VECTOR, LOAD, STORE = Wait.VECTOR, Wait.LOAD, Wait.STORE
MOST_PENDING = 255
NEAR_BYTES = 1 << 16


class _Transfers:
    """The block of transfers that is being written: addresses, places and sizes that it has in
    registers are used again."""

    def __init__(self, layer: int) -> None:
        self.layer = layer
        self.writer = Writer()
        self.count = 0
        self.items: list[Item] = []
        self._constants: dict[int, int] = {}
        self._address: tuple[Segment, int, int] | None = None

    def constant(self, value: int) -> int:
        if value not in self._constants:
            self._constants[value] = self.writer.held(Value(None, value))
        return self._constants[value]

    def address(self, segment: Segment, offset: int, base_address: int) -> int:
        """A register with an address, from the last one where that is near."""
        register = -1
        if self._address is not None and self._address[0] is segment:
            distance = offset - self._address[1]
            if abs(distance) < NEAR_BYTES:
                register = self.writer.held(Value(self._address[2], distance))
        if register < 0:
            register = self.writer.address(segment, offset, base_address)
        self._address = (segment, offset, register)
        return register


@dataclass(frozen=True)
class _Pending:
    """An object that may not be complete. ``number`` counts the unit's instructions up to it."""

    unit: Wait
    number: int
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]


def _meet(ones: Sequence[Access], others: Sequence[Access]) -> bool:
    for one in ones:
        for other in others:
            if one.meets(other):
                return True
    return False


def _units(move: Move, offset: int) -> int:
    """Of memory that a transfer from byte ``offset`` on touches."""
    return memory_units(offset, WORD_BYTES * move.words, move.runs, move.memory_step)


class Sequencer:
    """Writes a cluster's code, object after object."""

    def __init__(
        self, machine: SnowflakeMachine, compiler: BlockCompiler,
        further: Mapping[Segment, int] = {},
    ) -> None:  # fmt: skip
        """``further``: bytes by which what lies in a segment lies behind where moves say."""
        self.blocks: list[CodeBlock] = []
        self._further = further
        self._machine, self._compiler = machine, compiler
        self._issued = {VECTOR: 0, LOAD: 0, STORE: 0}
        self._known = {VECTOR: 0, LOAD: 0, STORE: 0}
        self._pending: list[_Pending] = []
        self._stored = 0
        """Stores that were issued before the step before."""
        self._delayed: list[tuple[int, Move]] = []
        """Stores that are to be issued later, in order."""
        self._transfers: _Transfers | None = None
        self._special: dict[Special, int] = {}
        self._depth = {
            VECTOR: machine.vector.queue_depth, LOAD: machine.load.queue_depth,
            STORE: machine.store.queue_depth,
        }  # fmt: skip

    # --- steps ---------------------------------------------------------------------------------

    def steps(
        self, steps: Iterable[PlacedStep], barriers: AbstractSet[int] = frozenset()
    ) -> None:
        """All of a region's steps; in front of those of ``barriers`` clusters wait for each
        other."""
        begun = 0
        for number, step in enumerate(steps):
            layer = step.step.layer
            self._stored, begun = begun, self._issued[STORE]
            if number in barriers:
                self._barrier(layer)
            chunks = step.step.compute(step.bases)
            first = [move for load in step.loads for move in load.moves]
            for move in (*first, *step.in_place):
                self.move(layer, move, is_load=True)
            self._interleaved(layer, chunks, step.during)
            self._delayed += [(layer, move) for move in step.stores]
        self._store(len(self._delayed))

    def _interleaved(
        self, layer: int, chunks: Sequence[Chunk], loads: Sequence[tuple[int, Move]]
    ) -> None:
        """The stores of the step before and the loads of the one behind, evenly behind the chunks
        of the first half (`_hiding`), or sooner where a full queue hides them. Loads that wait for
        stores come behind the last chunk but one: until then the stores are done, and the core can
        go on. Shared ones keep their order."""
        left, late = self._by_stores(loads)
        hiding = self._hiding(chunks, [move for _, move in (*self._delayed, *loads)])
        even = -(-(len(self._delayed) + len(left)) // hiding)
        for number, chunk in enumerate(chunks):
            self.chunk(layer, chunk)
            each = max(even, self._hidden(chunk))
            count = min(each, len(self._delayed))
            self._store(count)
            if number + 1 == len(chunks):
                break
            count = max(0, each - count)
            if number + 2 == len(chunks):
                left, late, count = left + late, [], len(left) + len(late)
            share, left = left[:count], left[count:]
            for owner, move in share:
                self.move(owner, move, is_load=True)
        self._store(len(self._delayed))
        for owner, move in (*left, *late):
            self.move(owner, move, is_load=True)

    def _hiding(self, chunks: Sequence[Chunk], moves: Sequence[Move]) -> int:
        """Chunks behind which ``moves`` are issued: the first half. Where that would be more than a
        block of them behind each, and the memory takes a larger part of the step for them, that
        part: so it has something to do until the step ends."""
        half = max(1, (len(chunks) + 1) // 2)
        if len(moves) <= MOST_TRANSFERS * half:
            return half
        moved = MEMORY_UNIT_BYTES * sum(_units(move, move.offset) for move in moves)
        share = self._machine.memory_bytes_per_cycle / self._machine.clusters.count
        served_cycles = moved / share
        part = served_cycles / max(1, sum(chunk.cycles for chunk in chunks))
        return max(half, min(len(chunks) - 1, int(part * len(chunks))))

    def _hidden(self, chunk: Chunk) -> int:
        """Transfers that are issued while the queue behind ``chunk`` is worked off."""
        queued = self._depth[VECTOR] * chunk.cycles // max(1, chunk.vectors)
        return max(LEAST_TOGETHER, queued // TRANSFER_CYCLES)

    def _by_stores(
        self, loads: Sequence[tuple[int, Move]]
    ) -> tuple[list[tuple[int, Move]], list[tuple[int, Move]]]:
        """Those that can come now, and those that wait for stores."""
        now: list[tuple[int, Move]] = []
        late: list[tuple[int, Move]] = []
        for one in loads:
            behind = one[1].shared and any(other.shared for _, other in late)
            (late if behind or self._waits_for_stores(one[1]) else now).append(one)
        return now, late

    def _waits_for_stores(self, move: Move) -> bool:
        """A load goes where a store takes its words from that was issued in this step or the one
        before, or will be: older ones are complete when the load comes."""
        target = (move.in_buffer,)
        if any(_meet((one.in_buffer,), target) for _, one in self._delayed):
            return True
        done = max(self._known[STORE], self._stored)
        return any(
            one.unit == STORE and one.number > done and _meet(one.reads, target)
            for one in self._pending
        )

    def _store(self, count: int) -> None:
        """Issues the first ``count`` delayed stores."""
        now, self._delayed = self._delayed[:count], self._delayed[count:]
        for owner, move in now:
            self._transfer(owner, move, is_load=False)

    def _store_before(self, reads: Sequence[Access], writes: Sequence[Access]) -> None:
        """Issues the delayed stores that something which is issued now must not overtake."""
        for number in range(len(self._delayed), 0, -1):
            move = self._delayed[number - 1][1]
            touched = (move.in_memory,)
            if _meet(touched, reads) or _meet(touched, writes) or _meet((move.in_buffer,), writes):
                self._store(number)
                return

    def _barrier(self, layer: int) -> None:
        """Everything is complete behind it."""
        self._store(len(self._delayed))
        self._flush()
        writer = Writer()
        writer.sync(Wait.CLUSTERS)
        self._add(layer, writer, (Item(together.SYNC, Wait.CLUSTERS),))
        self._known = dict(self._issued)
        self._pending = []

    def end(self) -> None:
        self._flush()
        writer = Writer()
        writer.sync(Wait.END)
        self._add(-1, writer, (Item(together.SYNC, Wait.END),))

    # --- objects -------------------------------------------------------------------------------

    def move(self, layer: int, move: Move, is_load: bool) -> None:
        """A transfer, behind the delayed stores that it hangs on."""
        if is_load:
            self._store_before((move.in_memory,), (move.in_buffer,))
        self._transfer(layer, move, is_load)

    def _transfer(self, layer: int, move: Move, is_load: bool) -> None:
        """One `ld` or `tmov`."""
        unit = LOAD if is_load else STORE
        reads, writes = (move.in_memory,), (move.in_buffer,)
        if not is_load:
            reads, writes = writes, reads
        block = self._block(layer)
        writer = block.writer
        block.items += self._wait(writer, unit, reads, writes)
        runs, memory_step, buffer_step = (
            (Special.LD_RUNS, Special.LD_MEMORY_STEP, Special.LD_BUFFER_STEP)
            if is_load
            else (Special.ST_RUNS, Special.ST_MEMORY_STEP, Special.ST_BUFFER_STEP)
        )
        self._set(writer, {runs: move.runs})
        if move.runs > 1:
            self._set(writer, {memory_step: move.memory_step, buffer_step: move.buffer_step})
        offset = move.offset + self._further.get(move.segment, 0)
        address = block.address(move.segment, offset, self._machine.dram.base_address)
        place, words = block.constant(move.place), block.constant(move.words)
        if is_load:
            buffer = Buffer.WBUF if move.buffer is Place.WBUF else Buffer.MBUF
            shared = Shared.SHARED if move.shared else Shared.OWN
            writer.ld(buffer, address, place, words, move.cus, move.vmac, shared, move.stream)
        else:
            writer.tmov(address, place, words, move.cus.bit_length() - 1, move.stream)
        units = _units(move, offset)
        kind = together.LOAD if is_load else together.STORE
        block.items.append(Item(kind, units, int(move.shared)))
        block.count += 1
        self._issued[unit] += 1
        self._pending.append(_Pending(unit, self._issued[unit], reads, writes))

    def _block(self, layer: int) -> _Transfers:
        """The block that a layer's next transfer goes to."""
        block = self._transfers
        if block is None or block.layer != layer or block.count >= MOST_TRANSFERS:
            self._flush()
            block = self._transfers = _Transfers(layer)
        return block

    def _flush(self) -> None:
        if self._transfers is not None:
            self._add(self._transfers.layer, self._transfers.writer, self._transfers.items)
            self._transfers = None

    def chunk(self, layer: int, chunk: Chunk) -> None:
        """Vector instructions, with as many loops as registers and banks allow."""
        self._store_before(chunk.reads, chunk.writes)
        self._flush()
        writer = Writer()
        items = self._wait(writer, VECTOR, chunk.reads, chunk.writes)
        self._set(writer, chunk.specials)
        words = self._chunk_words(layer, chunk, writer)
        self.blocks.append(CodeBlock(layer, words, tuple(items)))
        for special in chunk.changes:
            self._special.pop(special, None)
        self._issued[VECTOR] += chunk.vectors
        self._pending.append(
            _Pending(VECTOR, self._issued[VECTOR], chunk.reads, chunk.writes)
        )

    def _chunk_words(self, layer: int, chunk: Chunk, writer: Writer) -> Words:
        """The chunk behind what ``writer`` has already."""
        head = len(writer.nodes)
        for straight in range(chunk.levels):
            chunk.write(writer, straight)
            try:
                words = self._compiler.words(writer.nodes, chunk.specials)
            except OutOfRegisters:
                words = None
            if words is not None and not too_long(words):
                return words
            del writer.nodes[head:]
        raise EmitError(f"layer {layer}: a chunk's innermost loop fits no instruction bank")

    # --- waiting -------------------------------------------------------------------------------

    def _wait(
        self, writer: Writer, unit: Wait, reads: Sequence[Access], writes: Sequence[Access]
    ) -> list[Item]:
        """Waits for what the next object of ``unit`` must not meet."""
        items = []
        needed: dict[Wait, int] = {}
        for other, depth in self._depth.items():
            # A queue that is full has waited.
            self._known[other] = max(self._known[other], self._issued[other] - depth)
        self._pending = [one for one in self._pending if one.number > self._known[one.unit]]
        touched = (*reads, *writes)
        for one in self._pending:
            if one.unit != unit:
                meets = _meet(one.writes, touched) or _meet(one.reads, writes)
            else:
                meets = unit == VECTOR and _meet(one.writes, reads)
            if meets:
                needed[one.unit] = max(needed.get(one.unit, 0), one.number)
        for other, number in needed.items():
            pending = min(self._issued[other] - number, MOST_PENDING)
            writer.sync(other, pending)
            items.append(Item(together.SYNC, other, pending))
            self._known[other] = max(self._known[other], self._issued[other] - pending)
        return items

    def _set(self, writer: Writer, specials: Specials) -> None:
        for special, value in specials.items():
            if self._special.get(special) != value:
                writer.set(special, value)
                self._special[special] = value

    def _add(self, layer: int, writer: Writer, items: Sequence[Item]) -> None:
        words = self._compiler.words(writer.nodes)
        self.blocks.append(CodeBlock(layer, words, tuple(items)))
