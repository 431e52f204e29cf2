"""The NMP's transfers, in plain Python integers: written from docs/isa-nmp.md."""

from __future__ import annotations

from tests.sim.nmp.interpreted_core import DMA_NAMES, MB2, Core, Fault, Unit, places
from tests.sim.nmp.rv32im_model import MASK, signed

_ANY_TRANSFER = (
    "BAD_CONFIGURATION", "TILE_TOO_LARGE", "DRAM_ACCESS", "MISALIGNED_ACCESS", "WRONG_MEMORY",
    "NO_RING",
)  # fmt: skip
"""What a transfer may be refused for when its extents cannot be used."""


class Transfers(Unit):
    def nmp_dcfg(self, core: Core, creg: int, rs1: int) -> None:
        core.dma[DMA_NAMES[creg]] = signed(core.x[rs1])

    def nmp_dcfgi(self, core: Core, creg: int, imm: int) -> None:
        core.dma[DMA_NAMES[creg]] = imm

    def nmp_load(self, core: Core, sem: int, mem: int, rs1: int, rs2: int) -> None:
        self._load(core, sem, mem, rs1, rs2, box=False, multicast=False)

    def nmp_load3d(self, core: Core, sem: int, mem: int, rs1: int, rs2: int) -> None:
        self._load(core, sem, mem, rs1, rs2, box=True, multicast=False)

    def nmp_mload(self, core: Core, sem: int, mem: int, rs1: int, rs2: int) -> None:
        self._load(core, sem, mem, rs1, rs2, box=False, multicast=True)

    def nmp_mload3d(self, core: Core, sem: int, mem: int, rs1: int, rs2: int) -> None:
        self._load(core, sem, mem, rs1, rs2, box=True, multicast=True)

    def _distances(self, core: Core, box: bool, faults: set[str]) -> list[int | None]:
        """Distance of each element's first byte from the address, in their order on chip; None:
        outside of the tensor."""
        r = core.dma
        self._dma_ranges(r, ["ELEMENT_BYTES"], 1, 2)
        size = r["ELEMENT_BYTES"]
        lengths = ["CHANNEL_STRIDE", "ROW_STRIDE"] if box else ["SEGMENT_BYTES", "SEGMENT_STRIDE"]
        if box:
            self._dma_ranges(r, ["CHANNELS", "ROWS", "COLUMNS", *lengths], 0, 1 << 28)
            self._dma_ranges(r, ["BOX_CHANNELS", "BOX_ROWS", "BOX_COLUMNS"], 0, 1 << 20)
            count = r["BOX_CHANNELS"] * r["BOX_ROWS"] * r["BOX_COLUMNS"]
        else:
            self._dma_ranges(r, ["SEGMENTS", *lengths], 0, 1 << 28)
            count = r["SEGMENTS"] * r["SEGMENT_BYTES"] // size
        if any(r[name] % size for name in lengths):
            faults.add("BAD_CONFIGURATION")
        if count > 4096:  # more than any memory here
            raise Fault(*_ANY_TRANSFER)
        if not box:
            return [k * r["SEGMENT_STRIDE"] + i * size for k in range(r["SEGMENTS"])
                    for i in range(r["SEGMENT_BYTES"] // size)]  # fmt: skip
        found: list[int | None] = []
        for box_place in places(r["BOX_CHANNELS"], r["BOX_ROWS"], r["BOX_COLUMNS"]):
            starts = (r["START_CHANNEL"], r["START_ROW"], r["START_COLUMN"])
            c, h, w = (start + at for start, at in zip(starts, box_place, strict=True))
            inside = 0 <= c < r["CHANNELS"] and 0 <= h < r["ROWS"] and 0 <= w < r["COLUMNS"]
            at = c * r["CHANNEL_STRIDE"] + h * r["ROW_STRIDE"] + w * size
            found.append(at if inside else None)
        return found

    def _dma_ranges(self, r: dict[str, int], names: list[str], low: int, high: int) -> None:
        if any(not low <= r[name] <= high for name in names):
            raise Fault(*_ANY_TRANSFER)

    def _inside(self, spots: list[int | None], size: int, begin: int, end: int) -> bool:
        known = [at for at in spots if at is not None]
        return not known or (begin + min(known) >= 0 and begin + max(known) + size <= end)

    def _on_chip(self, begin: int, size: int, count: int, limit: int, faults: set[str]) -> None:
        if begin < 0 or begin + size * count > limit:
            faults.add("TILE_TOO_LARGE")
        if begin % size:
            faults.add("MISALIGNED_ACCESS")

    def _load(
        self, core: Core, sem: int, mem: int, rs1: int, rs2: int, *, box: bool, multicast: bool
    ) -> None:
        faults = set[str]()
        spots = self._distances(core, box, faults)
        size, address, at = core.dma["ELEMENT_BYTES"], core.x[rs1], signed(core.x[rs2])
        if mem == MB2:
            raise Fault("WRONG_MEMORY", *faults)
        if address % size:
            faults.add("MISALIGNED_ACCESS")
        self._on_chip(at, size, len(spots), len(core.memory[mem]), faults)
        begin = address - self.machine.dram.base_address
        if not self._inside(spots, size, begin, len(self.dram)):
            faults.add("DRAM_ACCESS")
        everyone = (1 << self.machine.cores.tlts_per_tle) - 1 if multicast else 1 << core.tlt
        receivers = self._receivers(core, multicast, everyone, faults)
        if faults:
            raise Fault(*faults)
        fill = (core.dma["FILL"] % (1 << 8 * size)).to_bytes(size, "little")
        data = b"".join(
            fill if place is None else self.dram[begin + place : begin + place + size]
            for place in spots
        )
        self.touched.append((mem, at, at + len(data)))
        self._deliver(receivers, mem, at, data, sem)

    def _receivers(
        self, core: Core, named_tlts: bool, tlts: int, faults: set[str], forwards: bool = False
    ) -> list[Core]:
        r, cores = core.dma, self.machine.cores
        own = 1 << core.tle
        tles = r["RECEIVER_TLES"] & MASK or own
        tlts = (r["RECEIVER_TLTS"] & MASK or tlts) if named_tlts else tlts
        if tles >> cores.tles or tlts >> cores.tlts_per_tle:
            faults.add("BAD_CONFIGURATION")
        if self.machine.ring is None and (forwards or tles != own):
            faults.add("NO_RING")
        return [one for one in self.cores if tles >> one.tle & tlts >> one.tlt & 1]

    def _deliver(self, to: list[Core], mem: int, at: int, data: bytes, sem: int) -> None:
        for receiver in to:
            receiver.memory[mem][at : at + len(data)] = data
            self.signal(receiver, sem)

    def nmp_store(self, core: Core, sem: int, mem: int, rs1: int, rs2: int) -> None:
        self._store(core, sem, mem, rs1, rs2, box=False)

    def nmp_store3d(self, core: Core, sem: int, mem: int, rs1: int, rs2: int) -> None:
        self._store(core, sem, mem, rs1, rs2, box=True)

    def _store(self, core: Core, sem: int, mem: int, rs1: int, rs2: int, *, box: bool) -> None:
        faults = set[str]()
        spots = self._distances(core, box, faults)
        size, address, at = core.dma["ELEMENT_BYTES"], core.x[rs1], signed(core.x[rs2])
        if mem != MB2:
            faults.add("WRONG_MEMORY")
        if address % size:
            faults.add("MISALIGNED_ACCESS")
        self._on_chip(at * size, size, len(spots), self.machine.memories.mb2_bytes, faults)
        begin = address - self.machine.dram.base_address
        if not self._inside(spots, size, begin, len(self.dram)):
            faults.add("DRAM_ACCESS")
        known = [begin + place for place in spots if place is not None]
        if known and self.meets_code(min(known), max(known) + size):
            faults.add("READ_ONLY")
        if faults:
            raise Fault(*faults)
        self.touched.append((MB2, at, at + len(spots)))
        for k, place in enumerate(spots):
            if place is not None:
                data = (core.sums[at + k] % (1 << 8 * size)).to_bytes(size, "little")
                self.dram[begin + place : begin + place + size] = data
        self.signal(core, sem)

    def nmp_forward(self, core: Core, sem: int, rs1: int, rs2: int) -> None:
        self._forward(core, sem, rs1, rs2, box=False)

    def nmp_forward3d(self, core: Core, sem: int, rs1: int, rs2: int) -> None:
        self._forward(core, sem, rs1, rs2, box=True)

    def _forward(self, core: Core, sem: int, rs1: int, rs2: int, *, box: bool) -> None:
        faults = set[str]()
        spots = self._distances(core, box, faults)
        size, at, source = core.dma["ELEMENT_BYTES"], signed(core.x[rs1]), signed(core.x[rs2])
        memories = self.machine.memories
        self._on_chip(at, size, len(spots), memories.mb0_bytes, faults)
        if not self._inside(spots, size, source * size, memories.mb2_bytes):
            faults.add("TILE_TOO_LARGE")
        receivers = self._receivers(core, True, 1 << core.tlt, faults, forwards=True)
        if faults:
            raise Fault(*faults)
        values = [
            core.dma["FILL"] if place is None else core.sums[source + place // size]
            for place in spots
        ]
        data = b"".join((value % (1 << 8 * size)).to_bytes(size, "little") for value in values)
        inside = [source + place // size for place in spots if place is not None]
        if inside:
            self.touched.append((MB2, min(inside), max(inside) + 1))
        self.touched.append((0, at, at + len(data)))
        self._deliver(receivers, 0, at, data, sem)
