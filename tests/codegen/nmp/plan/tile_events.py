"""What the TLTs of a TLE do with a window behind a convolution, operation by operation: the slow
counterpart of `few_steps`, from the tiles of `plan_walk`."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product

from tests.codegen.nmp.plan.plan_walk import Step, Tle, Transfers

MOST_STEPS = 8
Name = tuple[object, ...]


@dataclass
class Program:
    """Operations (what, cycles, name, count) of a TLT: "work", "move" (the engine), "tell", and
    "until" so many of a name have been told or moved."""

    operations: list[tuple[str, float, Name, int]] = field(default_factory=list)
    at: int = 0
    time: float = 0.0

    def add(self, what: str, cycles: float = 0.0, name: Name = (), count: int = 1) -> None:
        self.operations.append((what, cycles, name, count))

    def may_go_at(self, told: dict[Name, list[float]]) -> float | None:
        if self.at == len(self.operations):
            return None
        what, _, name, count = self.operations[self.at]
        if what != "until" or count <= 0:
            return self.time
        times = told.get(name, [])
        return max(self.time, times[count - 1]) if len(times) >= count else None


def run(programs: list[Program]) -> float:
    """When all is done; always the operation that can go first goes next, and a program goes on as
    long as no time passes."""
    told: dict[Name, list[float]] = {}
    engine = 0.0
    while True:
        able = [(time, number) for number, one in enumerate(programs)
                if (time := one.may_go_at(told)) is not None]  # fmt: skip
        if not able:
            break
        now, number = min(able)
        one = programs[number]
        while one.may_go_at(told) == now:
            what, cycles, name, _ = one.operations[one.at]
            one.at, one.time = one.at + 1, now
            if what == "move":
                engine = max(engine, now) + cycles
                told.setdefault(name, []).append(engine)
            elif what == "tell":
                told.setdefault(name, []).append(now)
            elif what == "work":
                one.time = now + cycles
                break
    assert all(one.at == len(one.operations) for one in programs)
    return max(engine, *(one.time for one in programs))


@dataclass
class TileEvents:
    """Of a TLE that has work, under a plan with a window behind."""

    tle: Tle

    @property
    def channels(self) -> list[range]:
        size, depth = self.tle.plan.tile_n, self.tle.depth
        return [range(at, min(at + size, depth)) for at in range(0, depth, size)]

    @property
    def order(self) -> list[tuple[int, int, int]]:
        rows, columns, filters = (range(count) for count in self.tle.turns)
        if self.tle.plan.schedule == "WS":
            return [(r, c, m) for m in filters for r in rows for c in columns]
        return [(r, c, m) for r in rows for c in columns for m in filters]

    @property
    def steps(self) -> int:
        return len(self.order) * len(self.channels)

    def cycles(self) -> float:
        plan = self.tle.plan
        places = plan.tlt_rows * plan.tlt_columns
        parts = len(self.tle.tlts) // places
        programs = [self._program(*one) for one in product(range(places), range(parts))]
        return run([*programs[1:], programs[0]])

    def _moved(self, moved: Transfers) -> float:
        plan = self.tle.plan
        tles = plan.row_slices * plan.column_slices * plan.filter_slices
        mach = self.tle.mach
        return moved.engine_cycles(mach, tles) if moved.bytes else mach.dme.setup_cycles

    def _biases(self, items: int) -> list[Transfers]:
        window, loads = self.tle.p.window, [[items * 4]]
        assert window is not None
        if window.has_weights:
            kernels = items * window.kernel[0] * window.kernel[1] * self.tle.p.element_bytes
            loads = [[items * 4], [kernels], [items * 4]]
        result = []
        for lengths in loads:
            result.append(Transfers())
            result[-1].add(lengths, True)
        return result

    def _program(self, place: int, part: int) -> Program:
        tle, plan, one = self.tle, self.tle.plan, Program()
        tlts = len(tle.tlts)
        parts = tlts // (plan.tlt_rows * plan.tlt_columns)
        tlt = tle.tlts[place * parts + part]
        own = (place, part)
        filters = [m for _, _, m in self.order]
        steps = [(turn, channels) for turn in self.order for channels in self.channels]
        tiles = [tle.tiles(turn, tlt) for turn, _ in steps]
        ins = [turn[:2] if plan.keeps_in else number for number, (turn, _) in enumerate(steps)]
        ws = [turn[2] if plan.schedule == "WS" else number
              for number, (turn, _) in enumerate(steps)]  # fmt: skip
        kinds: dict[str, list[object]] = {"in": list(dict.fromkeys(ins)),
                                          "w": list(dict.fromkeys(ws))}  # fmt: skip
        halves = {name: min(plan.buffers, len(held)) for name, held in kinds.items()}
        out_halves = min(plan.buffers, len(filters))
        behind = 25 * tle.mach.cores.instruction_cycles
        overhead = self._overhead() - behind
        stores = 0

        def load(name: str, number: int, content: object) -> None:
            places = tlts // parts
            loader, others, ring = (part, places, plan.ring_in)
            if name == "w":
                loader, others, ring = (place, parts, plan.ring_weights)
            shared = ring or others < tlts
            together = ring or (shared and others > 1)
            held = ins if name == "in" else ws
            if number and held[number - 1] == content:
                return
            index = kinds[name].index(content)
            if index >= halves[name] and (together or (shared and not loader)):
                freed = kinds[name][index - halves[name]]
                one.add("until", name=(f"{name} free", freed), count=tlts)
            if loader:
                return
            rows, columns, items = tiles[number]
            step, turn, channels = Step(), *steps[number]
            if name == "in" and rows and columns:
                nobody = (range(0), range(0), range(0))
                alone = [tiles[number] if k == place * parts else nobody for k in range(tlts)]
                tle._load_in(step, alone, channels)
                one.add("move", self._moved(step.inputs), ("in", place, content))
            elif name == "w" and items:
                everybody = [(rows, columns, items if k == part else range(0))
                             for k in range(parts)]  # fmt: skip
                depth = range(tle.depth) if plan.schedule == "WS" else channels
                self._load_weights(step, everybody, depth, turn)
                one.add("move", self._moved(step.weights), ("w", part, content))

        def consume(number: int) -> None:
            nonlocal stores
            rows, columns, items = tiles[number]
            is_last = steps[number][1][-1] == tle.depth - 1
            if rows and columns:
                one.add("until", name=("in", place, ins[number]))
            if items:
                one.add("until", name=("w", part, ws[number]))
            ended = Step()
            if rows and columns and items:
                one.add("until", name=("stored", own), count=stores + 1 - out_halves)
                mac = tle._mac_cycles(tiles[number], len(steps[number][1]))
                one.add("work", mac - overhead)
                if is_last:
                    tle._end(ended, [tiles[number]])
                    one.add("work", ended.finish_cycles)
                    assert tle.mach.ring is not None
                    passed = ended.on_chip[0] / tle.mach.ring.bytes_per_cycle
                    one.add("move", tle.mach.dme.setup_cycles + passed, ("passed", own))
                    stores += 1
                    one.add("until", name=("passed", own), count=stores)
                    plain = 40 * tle.mach.cores.instruction_cycles
                    plain += 5 * tle.mach.cores.semaphore_cycles
                    one.add("work", ended.window_cycles - plain + behind)
            for name, held in (("in", ins), ("w", ws)):
                if held[number + 1 : number + 2] != [held[number]]:
                    one.add("tell", name=(f"{name} free", held[number]))
            if ended.on_chip:
                one.add("move", self._moved(ended.outputs), ("stored", own))

        comes_early = plan.buffers == 2 and parts == tlts and not plan.ring_weights
        loads = self._biases(len(tlt[2]))
        if comes_early:
            if tlt[2]:
                one.add("move", self._moved(loads[0]), ("once", own))
            load("w", 0, ws[0])
        if all(tlt):
            for number, moved in enumerate(loads):
                if number or not comes_early:
                    one.add("move", self._moved(moved), ("once", own))
                one.add("until", name=("once", own), count=number + 1)
        for number in range(len(steps)):
            if number:
                one.add("work", overhead)
            load("in", number, ins[number])
            if number or not comes_early:
                load("w", number, ws[number])
            if number >= plan.buffers - 1:
                consume(number - plan.buffers + 1)
        if plan.buffers == 2:
            consume(len(steps) - 1)
        return one

    def _load_weights(
        self, step: Step, tiles: list[tuple[range, ...]], channels: range, turn: tuple[int, ...]
    ) -> None:
        """`Tle._load_weights` takes the first TLT of each filter part."""
        places = self.tle.plan.tlt_rows * self.tle.plan.tlt_columns
        self.tle._load_weights(step, tiles * places, channels, turn)

    def _overhead(self) -> float:
        plan, cores = self.tle.plan, self.tle.mach.cores
        instructions = 40
        if plan.buffers == 2:
            instructions = 80 if plan.schedule == "WS" else 105
        return instructions * cores.instruction_cycles + 5 * cores.semaphore_cycles
