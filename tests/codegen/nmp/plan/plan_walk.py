"""A walk over every tile of a plan, and random plans: the slow counterpart of the cost model."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product
from math import ceil
from typing import Any

from hypothesis import strategies as st

from tests.codegen.nmp.plan.plan_reference import dram_cycles, engine_cycles
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.plan.problem import ConvProblem, Window
from tvm_npu.sim.nmp.machine import NmpMachine


@dataclass
class Transfers:
    """Lengths in bytes of the contiguous pieces of each transfer; whether other TLEs get it;
    whether it is a 1-D one. ``chained``: how many follow another of the same tile."""

    pieces: list[list[int]] = field(default_factory=list)
    is_forwarded: list[bool] = field(default_factory=list)
    is_linear: list[bool] = field(default_factory=list)
    chained: int = 0

    def add(self, lengths: list[int], linear: bool, forwarded: bool = False) -> None:
        if sum(lengths):
            self.pieces.append(lengths)
            self.is_linear.append(linear)
            self.is_forwarded.append(forwarded)

    def extend(self, other: Transfers) -> None:
        self.pieces += other.pieces
        self.is_forwarded += other.is_forwarded
        self.is_linear += other.is_linear
        self.chained += other.chained

    @property
    def bytes(self) -> int:
        return sum(sum(lengths) for lengths in self.pieces)

    @property
    def ring_bytes(self) -> int:
        pairs = zip(self.pieces, self.is_forwarded, strict=True)
        return sum(sum(lengths) for lengths, forwarded in pairs if forwarded)

    def engine_cycles(
        self, mach: NmpMachine, rivals: float, in_step: bool = False, other_setup: float = 0.0
    ) -> float:
        """All of them, one after another, with so many engines at the DRAM, which serves the
        others while this one sets up a transfer (and others, for ``other_setup`` cycles), but where
        all do that in step."""
        total = engine_cycles(self.pieces, mach, self.is_linear) + other_setup
        shared = rivals * self.dram_cycles(mach)
        if in_step:
            shared += (len(self.pieces) - self.chained) * mach.dme.setup_cycles
        total = max(total, shared)
        if any(self.is_forwarded):
            assert mach.ring is not None
            total += sum(self.is_forwarded) * mach.ring.hop_cycles * (mach.cores.tles - 1)
        return total

    def dram_cycles(self, mach: NmpMachine) -> float:
        return dram_cycles(self.pieces, mach)


@dataclass
class Step:
    """One step of a TLE: what it loads before, its MAC time, what it stores after; ``ended``:
    elements of the largest tile that ends with it."""

    inputs: Transfers = field(default_factory=Transfers)
    weights: Transfers = field(default_factory=Transfers)
    outputs: Transfers = field(default_factory=Transfers)
    residuals: Transfers = field(default_factory=Transfers)
    on_chip: list[int] = field(default_factory=list)
    mac_cycles: float = 0.0
    finish_cycles: float = 0.0
    window_cycles: float = 0.0
    ended: int = 0
    brings_weights: bool = False

    def load_cycles(self, mach: NmpMachine, rivals: float) -> float:
        loads = (self.inputs, self.weights, self.residuals)
        return sum(one.engine_cycles(mach, rivals, in_step=True) for one in loads)

    def residual_cycles(self, mach: NmpMachine, rivals: float) -> float:
        return self.residuals.engine_cycles(mach, rivals, in_step=True)


@dataclass
class Shares:
    """What the TLTs of a TLE that have work share: filter parts and places; ``alone``: nothing, and
    ``parts`` are TLTs."""

    parts: int
    places: int
    alone: bool
    loads_all_each_step: bool
    keeps_in: bool
    ring_in: bool
    ring_weights: bool
    alone_with_weights: bool


@dataclass
class Walked:
    """What one TLE does: its biases, then its steps, ``each`` of them a tile. ``shares`` is None
    with a window behind; ``rate``: MACs a cycle."""

    biases: Transfers
    steps: list[Step]
    rivals: float
    each: int
    rate: int
    shares: Shares | None

    def total(self, *streams: str) -> Transfers:
        result = Transfers()
        for stream in streams:
            if stream == "weights":
                result.extend(self.biases)
            for step in self.steps:
                result.extend(getattr(step, stream))
                if stream == "inputs":
                    result.extend(step.residuals)
        return result

    def dma_cycles(self, mach: NmpMachine, rivals: float) -> float:
        """Stream by stream; biases wait with W where TLTs go on together through a window."""
        streams = [[step.inputs for step in self.steps], [step.residuals for step in self.steps],
                   [step.outputs for step in self.steps]]  # fmt: skip
        weights = [step.weights for step in self.steps]
        streams += [[self.biases, *weights]] if self.shares is None else [[self.biases], weights]
        return sum(self.engine(mach, *stream) for stream in streams) + self.chip_cycles(mach)

    def store_cycles(self, mach: NmpMachine) -> float:
        """Stores and transfers from MB2 to MB0, alone at the DRAM."""
        setup = sum(len(step.on_chip) for step in self.steps) * mach.dme.setup_cycles
        engine = self.total("outputs").engine_cycles(mach, 1, other_setup=setup)
        return engine - setup + self.chip_cycles(mach)

    @property
    def mac_cycles(self) -> float:
        """With the ends of tiles where a window is behind them."""
        total = sum(step.mac_cycles for step in self.steps)
        return total + sum(s.finish_cycles + s.window_cycles for s in self.steps if s.on_chip)

    def chip_cycles(self, mach: NmpMachine) -> float:
        """Transfers from MB2 to MB0."""
        sizes = [size for step in self.steps for size in step.on_chip]
        if not sizes:
            return 0.0
        assert mach.ring is not None
        return len(sizes) * mach.dme.setup_cycles + sum(sizes) / mach.ring.bytes_per_cycle

    def serial_cycles(self, mach: NmpMachine) -> float:
        """One buffer."""
        if self.shares is None:
            return self.dma_cycles(mach, self.rivals) + self.mac_cycles
        if self.shares.alone:
            return self._apart_cycles(mach, self.shares.parts)
        moved = self.dma_cycles(mach, self.rivals)
        macs = self._macs_with_ends(mach)
        return moved + macs - self._gain(mach, macs)

    def engine(self, mach: NmpMachine, *moved: Transfers) -> float:
        together = Transfers()
        for one in moved:
            together.extend(one)
        return together.engine_cycles(mach, self.rivals)

    def _stored(self, mach: NmpMachine) -> float:
        """With residual tiles."""
        residuals = self.engine(mach, *(step.residuals for step in self.steps))
        return self.engine(mach, self.total("outputs")) + residuals

    def _macs_with_ends(self, mach: NmpMachine) -> float:
        ends = [step.ended for step in self.steps if step.ended]
        beats = max(ceil(sum(ends) / self.rate), len(ends))
        end = beats / mach.mac.efficiency + len(ends) * mach.mac.setup_cycles
        has_residual = any(step.residuals.pieces for step in self.steps)
        return self.mac_cycles + end * (2 if has_residual else 1)

    def _gain(self, mach: NmpMachine, macs: float) -> float:
        """What TLTs do before others have their tiles, of those steps that end with a store."""
        shares = self.shares
        assert shares is not None
        if shares.loads_all_each_step:
            weights = self.engine(mach, *(step.weights for step in self.steps))
            if not shares.alone_with_weights or shares.parts == 1 or self.each == 1:
                return 0.0
            return min(weights / shares.parts, macs / 4)
        turns = len([step for step in self.steps if step.ended])
        by_part, by_place = 1 - 1 / shares.parts, 1 - 1 / shares.places
        late = by_part
        if shares.places == 1:
            late = min((1 + shares.ring_in) / shares.parts, by_part)
            late = 0.0 if shares.ring_weights else late
        inputs = self.engine(mach, *(step.inputs for step in self.steps))
        weights = self.engine(mach, *(step.weights for step in self.steps))
        stored, bringing = self._stored(mach) / turns, sum(s.brings_weights for s in self.steps)
        steps, gain = turns * self.each, 0.0  # without those in which nothing is made
        for step in (step for step in self.steps if step.ended):
            if shares.keeps_in:
                early, share = late * weights / turns, by_part
            elif step.brings_weights:
                early, share = late * weights / bringing, by_part
            else:
                early, share = by_place * inputs / steps, by_place
                early /= 1 + shares.ring_in
            gain += min(early, share * stored, macs / steps)
        return gain

    def _apart_cycles(self, mach: NmpMachine, tlts: int) -> float:
        """TLTs that share nothing go through their rounds of average length, one transfer of the
        engine after another: the time of the engine, which at its end has to wait for a last store
        when products take longer than the loads of the other TLTs, or that of one TLT."""
        moved, macs = self.dma_cycles(mach, self.rivals), self._macs_with_ends(mach)
        if tlts == 1:
            return moved + macs
        all_rounds = tlts * len(self.steps)
        before = self.engine(mach, self.biases)
        store = self.engine(mach, self.total("outputs")) / all_rounds
        load = (moved - before) / all_rounds - store
        mac = macs / len(self.steps)
        others = tlts - 1
        if len(self.steps) == 1:
            in_front = load + mac + tlts * store
            behind = tlts * load + mac + store
            return max(before + max(in_front, behind), moved)
        one = before + max(load + mac, load + others * load)
        one += tlts * (load + store)
        for _ in self.steps[2:]:
            one += max(load + store + mac, load + store + others * (load + store))
        return max(moved + max(0.0, mac - others * load), one + mac + store)

    def overlapped_cycles(self, mach: NmpMachine) -> float:
        """Two buffers, step by step: the loads of the next step and the store of the last tile
        run under the MACs of a step; of three or more a tile, the steps in the middle in which some
        TLT has its turn share the store and the residual of the tile."""
        loads = [step.load_cycles(mach, self.rivals) for step in self.steps]
        beside = [0.0] * len(self.steps)
        store = 0.0
        for begin in range(0, len(self.steps), self.each):
            last = begin + self.each - 1
            if self.each < 3:
                beside[begin] += store
            else:
                residual = self.steps[last].residual_cycles(mach, self.rivals)
                loads[last] -= residual
                tlts = mach.cores.tlts_per_tle
                turns = {1 + tlt * (self.each - 2) // tlts for tlt in range(tlts)}
                for turn in turns:
                    beside[begin + turn] += (store + residual) / len(turns)
            store = self.steps[last].outputs.engine_cycles(mach, self.rivals, in_step=True)
        total = self.biases.engine_cycles(mach, self.rivals, in_step=True) + loads[0]
        for step, following, other in zip(self.steps, [*loads[1:], 0.0], beside, strict=True):
            total += max(step.mac_cycles + step.finish_cycles, following + other)
        return total + store


def _cut(total: range, size: int) -> list[range]:
    return [total[at : at + size] for at in range(0, len(total), size)]


def _deal(items: range, parts: int) -> list[range]:
    """Contiguous runs of nearly equal length, longer ones first."""
    runs = [len(items) // parts + (index < len(items) % parts) for index in range(parts)]
    ends = [sum(runs[: index + 1]) for index in range(parts)]
    return [items[end - run : end] for run, end in zip(runs, ends, strict=True)]


def _slices(total: int, slices: int) -> list[range]:
    size = ceil(total / slices)
    return [range(total)[index * size : (index + 1) * size] for index in range(slices)]


def _segments(rows: range, columns: range, channels: int, width: int) -> list[int]:
    """Lengths of the contiguous pieces of a tile, never joined across channels."""
    if not rows or not columns:
        return []
    pieces: list[int] = []
    last_end = None
    for row in rows:
        begin = row * width + columns[0]
        if begin == last_end:
            pieces[-1] += len(columns)
        else:
            pieces.append(len(columns))
        last_end = begin + len(columns)
    return pieces * channels


class Tle:
    """TLE ``tle`` of a plan; ``group`` of a multicast plan is like all others."""

    def __init__(self, p: ConvProblem, plan: ConvPlan, mach: NmpMachine, tle: int) -> None:
        self.p, self.plan, self.mach = p, plan, mach
        self.grouped = plan.mode == "grouped"
        self.each = p.filters // p.groups if self.grouped else 1
        self.depth = p.channels // p.groups
        total = p.groups if self.grouped else p.filters // p.groups
        spatial, self.filter_slice = divmod(tle, plan.filter_slices)
        self.place = spatial
        row_slice, column_slice = divmod(spatial, plan.column_slices)
        rows = _slices(p.out_rows, plan.row_slices)
        columns = _slices(p.out_columns, plan.column_slices)
        items = _slices(total, plan.filter_slices)
        self.rows, self.columns = rows[row_slice], columns[column_slice]
        self.items = items[self.filter_slice]
        self.has_work = bool(self.rows and self.columns and self.items)
        filter_parts = mach.cores.tlts_per_tle // (plan.tlt_rows * plan.tlt_columns)
        tile = (plan.tile_r, plan.tile_c, plan.tile_m // self.each)
        parts = (plan.tlt_rows, plan.tlt_columns, filter_parts)
        runs = tuple(
            _deal(whole, count)
            for whole, count in zip((self.rows, self.columns, self.items), parts, strict=True)
        )
        # TLT k: its parts; tiles by turn, empty when its run has ended.
        self.tlts = list(product(*runs))
        shared = (plan.ring_weights, plan.ring_weights, plan.ring_in)
        wholes = (rows, columns, items)
        self.turns = [
            ceil(max(len(_deal(whole, count)[0]) for whole in (all_ if ring else [own])) / size)
            for all_, ring, own, count, size in zip(
                wholes, shared, (self.rows, self.columns, self.items), parts, tile, strict=True
            )
        ]
        self.tile = tile

    def walk(self) -> Walked:
        plan = self.plan
        biases = Transfers()
        for rows, columns, items in self.tlts:
            if rows and columns and items:
                biases.add([len(items) * self.each * 4], True)
                window = self.p.window
                if window is not None and window.has_weights:
                    taps = window.kernel[0] * window.kernel[1]
                    biases.add([len(items) * 4], True)
                    biases.add([len(items) * taps * self.p.element_bytes], True)
        places = list(product(range(self.turns[0]), range(self.turns[1])))
        filters = range(self.turns[2])
        if plan.schedule == "WS":
            order = [(r, c, m) for m in filters for r, c in places]
        else:
            order = [(r, c, m) for r, c in places for m in filters]
        steps = []
        loaded_w, loaded_in = None, None
        for turn in order:
            tiles = [self.tiles(turn, tlt) for tlt in self.tlts]
            for channels in _cut(range(self.depth), plan.tile_n):
                step = Step()
                if plan.schedule != "WS":
                    self._load_weights(step, tiles, channels, turn)
                elif loaded_w != turn[2]:
                    loaded_w, step.brings_weights = turn[2], True
                    self._load_weights(step, tiles, range(self.depth), turn)
                if not plan.keeps_in or loaded_in != turn[:2]:
                    loaded_in = turn[:2]
                    self._load_in(step, tiles, channels)
                step.mac_cycles = max(self._mac_cycles(tile, len(channels)) for tile in tiles)
                steps.append(step)
            self._end(steps[-1], tiles)
        tles = plan.row_slices * plan.column_slices * plan.filter_slices
        return Walked(
            biases, steps, tles, len(steps) // len(order),
            16 // self.p.element_bytes, None if self.p.window else self._shares(),
        )  # fmt: skip

    def _shares(self) -> Shares:
        plan = self.plan
        parts = {items for _, _, items in self.tlts if items}
        places = {(rows, columns) for rows, columns, _ in self.tlts if rows and columns}
        every = plan.schedule != "WS" and not plan.keeps_in
        return Shares(len(parts), len(places), self.grouped, every, plan.keeps_in, plan.ring_in,
                      plan.ring_weights, plan.tlt_rows * plan.tlt_columns == 1
                      and not (plan.ring_in or plan.ring_weights))  # fmt: skip

    def tiles(self, turn: tuple[int, ...], tlt: tuple[range, ...]) -> tuple[range, ...]:
        return tuple(
            run[at * size : (at + 1) * size]
            for at, size, run in zip(turn, self.tile, tlt, strict=True)
        )

    def _middle(self, out: range, axis: int) -> range:
        """Positions of the convolution's OFM under ``out`` positions of what is stored."""
        window, total = self.p.window, (self.p.rows, self.p.columns)[axis]
        if window is None:
            return out
        under = {
            at * window.stride[axis] - window.padding[axis] + tap
            for at in out
            for tap in range(window.kernel[axis])
        }
        inside = [at for at in range(total) if at in under]
        return range(inside[0], inside[-1] + 1) if inside else range(0)

    def _seen(self, out: range, axis: int) -> range:
        """IFM positions inside the tensor under ``out`` positions."""
        p = self.p
        out = self._middle(out, axis)
        if not out:
            return range(0)
        first = out[0] * p.stride[axis] - p.padding[axis]
        last = out[-1] * p.stride[axis] - p.padding[axis] + (p.kernel[axis] - 1) * p.dilation[axis]
        return range(max(0, first), min((p.in_rows, p.in_columns)[axis], last + 1))

    def _load_in(self, step: Step, tiles: list[tuple[range, ...]], channels: range) -> None:
        p, plan = self.p, self.plan
        if plan.ring_in:
            size = ceil(plan.tile_n / plan.filter_slices)
            channels = channels[self.filter_slice * size : (self.filter_slice + 1) * size]
        known = set()
        for (rows, columns, items), (row_part, column_part, _) in zip(
            tiles, self.tlts, strict=True
        ):
            if self.grouped:
                count = len(items) * len(channels)
            else:
                key = (row_part, column_part)
                if key in known:
                    continue
                known.add(key)
                count = len(channels)
            if not rows or not columns:
                continue
            seen = self._seen(rows, 0), self._seen(columns, 1)
            flat = p.in_rows * p.in_columns * p.rows * p.columns == 1
            flat = flat and p.in_tile_rows(1) * p.in_tile_columns(1) == 1
            wide = plan.linear_maps and p.padding == (0, 0, 0, 0) and len(seen[1]) == p.in_columns
            transfers = 1
            if flat or (wide and len(seen[0]) == p.in_rows):
                pieces = [count * len(seen[0]) * len(seen[1])]
            elif plan.in_by_channels and not wide:
                pieces = [len(seen[1])] * len(seen[0])
                if len(seen[0]) == p.in_rows:
                    pieces *= count
                else:
                    transfers = count
                    step.inputs.chained += max(0, count - 1)
            else:
                pieces = _segments(seen[0], seen[1], count, p.in_columns)
            linear = flat or wide or plan.in_by_channels
            for _ in range(transfers):
                step.inputs.add([n * p.element_bytes for n in pieces], linear, plan.ring_in)

    def _load_weights(
        self, step: Step, tiles: list[tuple[range, ...]], channels: range, turn: tuple[int, ...]
    ) -> None:
        """One load for each filter part: what its first TLT has, whatever its rows are."""
        p, plan = self.p, self.plan
        one = len(channels) * p.kernel[0] * p.kernel[1] * p.element_bytes
        parts = len(tiles) // (plan.tlt_rows * plan.tlt_columns)
        for part in range(parts):
            filters = range(len(tiles[part][2]) * self.each)
            if plan.ring_weights:
                sharing = plan.row_slices * plan.column_slices
                size = ceil(plan.tile_m / sharing)
                run = (self.place + part) % sharing
                filters = filters[run * size : (run + 1) * size]
            whole = len(channels) == self.depth or plan.weights == "tiles"
            pieces = [len(filters) * one] if whole else [one] * len(filters)
            step.weights.add(pieces, True, plan.ring_weights)

    def _mac_cycles(self, tile: tuple[range, ...], channels: int) -> float:
        p, mach = self.p, self.mach
        rows, columns, items = tile
        filters = len(items) * self.each
        if not (rows and columns and items):
            return 0.0
        rate = 16 // p.element_bytes
        if p.is_dense:
            units = filters * ceil(channels / rate)
        else:
            taps = p.kernel[0] * p.kernel[1]
            area = len(self._middle(rows, 0)) * len(self._middle(columns, 1))
            units = filters * channels * ceil(area * taps / rate)
        instructions = 40
        if self.plan.buffers == 2:
            instructions = 80 if self.plan.schedule == "WS" else 105
        own = mach.mac.setup_cycles + instructions * mach.cores.instruction_cycles
        return units / mach.mac.efficiency + own + 5 * mach.cores.semaphore_cycles

    def _end(self, step: Step, tiles: list[tuple[range, ...]]) -> None:
        p, mach = self.p, self.mach
        for rows, columns, items in tiles:
            if not (rows and columns and items):
                continue
            filters = len(items) * self.each
            wide = self.plan.linear_maps and len(columns) == p.out_columns
            linear = wide or p.out_rows * p.out_columns == 1
            if linear and len(rows) == p.out_rows:
                pieces = [filters * len(rows) * len(columns)]
            else:
                pieces = _segments(rows, columns, filters, p.out_columns)
            lengths = [n * p.element_bytes for n in pieces]
            step.outputs.add(lengths, linear)
            if p.has_residual:
                step.residuals.add(lengths, linear)
            middle = filters * len(self._middle(rows, 0)) * len(self._middle(columns, 1))
            step.ended = max(step.ended, middle)
            one = self._passes(middle)
            finish = one * 2 if p.has_residual else one
            step.finish_cycles = max(step.finish_cycles, finish)
            if p.window is not None:
                step.on_chip.append(middle * p.element_bytes)
                taps = p.window.kernel[0] * p.window.kernel[1]
                through = self._passes(len(rows) * len(columns) * taps, filters)
                if p.window.has_weights:
                    through += self._passes(filters * len(rows) * len(columns))
                through += 40 * mach.cores.instruction_cycles + 5 * mach.cores.semaphore_cycles
                step.window_cycles = max(step.window_cycles, through)

    def _passes(self, elements: int, times: int = 1) -> float:
        beats = times * ceil(elements * self.p.element_bytes / 16)
        return beats / self.mach.mac.efficiency + self.mach.mac.setup_cycles


def walk(p: ConvProblem, plan: ConvPlan, mach: NmpMachine) -> list[Walked]:
    """Every TLE that has work, for one group in the multicast mode, for all in the grouped."""
    return [tle.walk() for tle in working_tles(p, plan, mach)]


def working_tles(p: ConvProblem, plan: ConvPlan, mach: NmpMachine) -> list[Tle]:
    count = plan.row_slices * plan.column_slices * plan.filter_slices
    tles = [Tle(p, plan, mach, tle) for tle in range(count)]
    return [tle for tle in tles if tle.has_work]


@st.composite
def windowed(draw: st.DrawFn, problem: ConvProblem) -> ConvProblem:
    """``problem`` with a pool or a depthwise convolution behind it."""
    kernel, stride, padding, extent = [], [], [], []
    for total in (problem.rows, problem.columns):
        size, step = draw(st.integers(1, min(3, total))), draw(st.integers(1, 3))
        pad = draw(st.integers(0, size - 1))
        kernel.append(size)
        stride.append(step)
        padding.append(pad)
        extent.append((total + pad - size) // step + 1)
    window = Window(
        extent[0], extent[1], (kernel[0], kernel[1]), (stride[0], stride[1]),
        (padding[0], padding[1]), draw(st.booleans()),
    )  # fmt: skip
    return replace(problem, window=window)


@st.composite
def plans(draw: st.DrawFn, problem: ConvProblem, mach: NmpMachine, plain: bool = False) -> ConvPlan:
    """Any choices that do not contradict each other and tiles within what they cut; they may not
    fit the memories. ``plain``: rows and filters over TLEs, filters over TLTs, no more."""
    each, channels = problem.filters // problem.groups, problem.channels // problem.groups
    tles, tlts = mach.cores.tles, mach.cores.tlts_per_tle
    grouped = problem.groups > 1 and draw(st.booleans())
    fields: dict[str, Any] = {}
    if not plain:
        fields["linear_maps"] = draw(st.booleans())
        fields["weights"] = draw(st.sampled_from(("filters", "tiles")))
    rows = draw(st.integers(1, tles))
    columns = 1 if grouped or plain else draw(st.integers(1, tles // rows))
    filters = draw(st.integers(1, tles // (rows * columns)))
    parts = (1, 1)
    schedule: Any = draw(st.sampled_from(("OS", "WS") if grouped else ("IS", "OS", "WS")))
    tile_n = channels if grouped else draw(st.integers(1, channels))
    if not grouped and not plain:
        choices = [
            (r, c) for r in range(1, tlts + 1) for c in range(1, tlts + 1) if tlts % (r * c) == 0
        ]
        parts = draw(st.sampled_from(choices))
        if schedule == "OS" and draw(st.booleans()):
            fields["keeps_in"], tile_n = True, channels
        if mach.ring is not None:
            full = _all_full(each, filters)
            fields["ring_in"] = filters > 1 and full and draw(st.booleans())
            full = _all_full(problem.out_rows, rows) and _all_full(problem.out_columns, columns)
            fields["ring_weights"] = rows * columns > 1 and full and draw(st.booleans())
        if mach.memories.ports == 2:
            fields["buffers"] = draw(st.sampled_from((1, 2)))
    unit, items = (each, problem.groups) if grouped else (1, each)
    most = ceil(ceil(items / filters) / (tlts // (parts[0] * parts[1])))
    tile_m = unit * (most if schedule == "IS" else draw(st.integers(1, most)))
    tile_r = draw(st.integers(1, ceil(ceil(problem.out_rows / rows) / parts[0])))
    tile_c = draw(st.integers(1, ceil(ceil(problem.out_columns / columns) / parts[1])))
    return ConvPlan(
        "grouped" if grouped else "multicast", "KS&OFM", rows, filters, schedule,
        tile_m, tile_n, tile_r, tile_c,
        column_slices=columns, tlt_rows=parts[0], tlt_columns=parts[1], **fields,
    )  # fmt: skip


def _all_full(total: int, slices: int) -> bool:
    """No slice is empty."""
    return (slices - 1) * ceil(total / slices) < total
