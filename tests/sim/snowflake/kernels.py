"""Hand-written convolutions: what a compiler would emit for one layer, by a small generator.

Maps lie [row][column][plane], results likewise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tests.sim.snowflake.programs import packed
from tvm_npu.sim.snowflake.machine import SnowflakeMachine
from tvm_npu.sim.snowflake.simulator import Segment, SnowflakeSimulator

LINE = 16


@dataclass(frozen=True)
class Layer:
    """A convolution with square kernels, stride 1 or more, and zero padding on all sides."""

    size: int
    planes: int
    filters: int
    kernel: int
    pad: int
    stride: int = 1
    shift: int = 8

    @property
    def out(self) -> int:
        return (self.size + 2 * self.pad - self.kernel) // self.stride + 1

    def window(self, at: int) -> tuple[int, int, int]:
        """First kernel index, first input index and how many are inside, of output index ``at``."""
        begin = at * self.stride - self.pad
        first, last = max(0, -begin), min(self.kernel, self.size - begin)
        return first, begin + first, last - first

    @property
    def macs(self) -> int:
        """MACs that touch no padding."""
        side = sum(self.window(at)[2] for at in range(self.out))
        return side * side * self.planes * self.filters


def reference(layer: Layer, maps: np.ndarray, weights: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """int16 [out, out, filters] for int16 maps [size, size, planes], weights [filters, kernel,
    kernel, planes] and int32 biases."""
    pad, out, stride = layer.pad, layer.out, layer.stride
    padded = np.pad(maps.astype(np.int64), ((pad, pad), (pad, pad), (0, 0)))
    acc = np.zeros((out, out, layer.filters), np.int64) + bias
    for y in range(layer.kernel):
        for x in range(layer.kernel):
            part = padded[y : y + out * stride : stride, x : x + out * stride : stride][:out, :out]
            acc += part @ weights[:, y, x].astype(np.int64).T
    half = 1 << (layer.shift - 1)
    return np.clip((acc + half) >> layer.shift, -(1 << 15), (1 << 15) - 1).astype(np.int16)


def _bias_words(bias: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(bias, "<i4").reshape(-1).view(np.int16)


@dataclass(frozen=True)
class Built:
    """A program with what its memory holds at the begin."""

    code: np.ndarray
    maps_at: int
    constants: np.ndarray
    results_at: int
    memory_bytes: int


def run(
    built: Built, layer: Layer, machine: SnowflakeMachine, maps: np.ndarray, timing: bool = True
) -> tuple[SnowflakeSimulator, float, np.ndarray]:
    """(simulator, cycles, results)."""
    base = machine.dram.base_address
    segments = [
        Segment(base, built.maps_at, False),
        Segment(base + built.maps_at, built.memory_bytes - built.maps_at, True),
    ]
    found = SnowflakeSimulator(
        machine, [built.code], segments, built.memory_bytes, layer_names=["conv"],
        layer_of=[np.zeros(len(built.code), np.int32)],
    )  # fmt: skip
    found.write(base, built.constants)
    found.write(base + built.maps_at, maps)
    statistics = found.run(timing=timing)
    assert statistics.macs == layer.macs
    size = 2 * layer.out * layer.out * layer.filters
    results = found.dram[built.results_at : built.results_at + size].view(np.int16)
    return found, statistics.cycles, results.reshape(layer.out, layer.out, layer.filters)


@dataclass(frozen=True)
class Share:
    """A cluster's share of a layer: where constants and maps lie and where its results go, how far
    the results of one place are from those of the next (words), and whether all clusters load the
    maps together."""

    constants_at: int
    maps_at: int
    results_at: int
    place_words: int
    loads: str = "own"


def coop(
    layer: Layer, machine: SnowflakeMachine, weights: np.ndarray, bias: np.ndarray, parts: int,
    reuse_weights: bool = False,
) -> Built:
    """A whole layer, see `coop_chunks`."""
    constants_bytes = 2 * layer.filters * (LINE + layer.kernel**2 * layer.planes)
    maps_at = -(-constants_bytes // 64) * 64
    results_at = -(-(maps_at + 2 * layer.size**2 * layer.planes) // 64) * 64
    share = Share(0, maps_at, results_at, layer.filters)
    chunks, constants = coop_chunks(layer, machine, weights, bias, parts, share, reuse_weights)
    size = results_at + 2 * layer.out**2 * layer.filters
    return Built(packed([*chunks, "sync end, 0\n"]), maps_at, constants, results_at, size)


def coop_chunks(
    layer: Layer, machine: SnowflakeMachine, weights: np.ndarray, bias: np.ndarray, parts: int,
    share: Share, reuse_weights: bool = False,
) -> tuple[list[str], np.ndarray]:
    """(code in pieces, constants). Rows in ``parts``, kernels in tiles that fill half of a WBuf;
    loads of the next step and the store of the last one run under the traces of this one. All parts
    with one tile of kernels (``reuse_weights``), or all tiles with one part. A tile's results lie
    in the MBuf of CU 0, the filters of a tile beside each other."""
    together = 4 * machine.clusters.cus
    kernel_words = LINE + layer.kernel**2 * layer.planes
    groups = layer.filters // together
    per_tile = min(groups, machine.wbuf_words // 2 // kernel_words)
    assert layer.filters % together == 0 and layer.planes % LINE == 0
    tiles = [range(g, min(g + per_tile, groups)) for g in range(0, groups, per_tile)]

    kernels = np.zeros((layer.filters, kernel_words), np.int16)
    kernels[:, :2] = _bias_words(bias).reshape(-1, 2)
    kernels[:, LINE:] = weights.reshape(layer.filters, -1)
    arranged = kernels.reshape(groups, together, kernel_words)
    pieces, address, at = [], {}, share.constants_at // 2
    for number, tile in enumerate(tiles):
        for v in range(together):
            address[number, v] = 2 * at
            pieces.append(arranged[tile.start : tile.stop, v].reshape(-1))
            at += len(pieces[-1])
    constants = np.concatenate(pieces)
    row_words = layer.size * layer.planes
    rows = np.array_split(np.arange(layer.out), parts)

    def in_rows(part: int) -> tuple[int, int]:
        first, last = layer.window(rows[part][0]), layer.window(rows[part][-1])
        return int(first[1]), int(last[1] + last[2])

    half = max(b - a for a, b in map(in_rows, range(parts))) * row_words
    tile_words = max(map(len, rows)) * layer.out * per_tile * together
    out_at = [2 * half, 2 * half + tile_words]
    assert out_at[1] + tile_words <= machine.mbuf_words
    steps = [(part, tile) for part in range(parts) for tile in range(len(tiles))]
    if reuse_weights:
        steps.sort(key=lambda step: step[::-1])
    # Which half of its buffer a step's maps and kernels lie in: each load takes the other one.
    maps_half, weights_half = [0], [0]
    for (part, tile), (last_part, last_tile) in zip(steps[1:], steps, strict=False):
        maps_half.append(maps_half[-1] ^ (part != last_part))
        weights_half.append(weights_half[-1] ^ (tile != last_tile))

    def loads(step: int) -> list[str]:
        part, tile = steps[step]
        last_part, last_tile = steps[step - 1] if step else (None, None)
        texts = []
        if part != last_part:
            begin, end = in_rows(part)
            texts.append(
                _address("r20", share.maps_at + 2 * begin * row_words)
                + f"movi r21, {maps_half[step] * half}\nmovi r22, {(end - begin) * row_words}\n"
                + f"ld mbuf, r20, r21, r22, {(1 << machine.clusters.cus) - 1}, all, {share.loads}, "
                "in\n"
            )
        if tile == last_tile:
            return texts
        # The first step's loads come group by group, so that its first group can begin early.
        groups = len(tiles[tile])
        begin = weights_half[step] * machine.wbuf_words // 2
        pieces = [(g, 1) for g in range(groups)] if step == 0 else [(0, groups)]
        for g, count in pieces:
            for v in range(together):
                texts.append(
                    _address("r20", address[tile, v] + 2 * g * kernel_words)
                    + f"movi r21, {begin + g * kernel_words}\n"
                    + f"movi r22, {count * kernel_words}\n"
                    + f"ld wbuf, r20, r21, r22, {1 << v // 4}, v{v % 4}, own, weight\n"
                )
        return texts

    def stores(step: int) -> str:
        part, tile = steps[step]
        count = len(tiles[tile]) * together
        first = int(rows[part][0]) * layer.out * share.place_words + tiles[tile].start * together
        return (
            _address("r20", share.results_at + 2 * first)
            + f"movi r21, {out_at[step % 2]}\nmovi r22, {count}\n"
            + f"movi st_runs, {len(rows[part]) * layer.out}\nmovi st_buffer_step, {count}\n"
            + f"movi st_memory_step, {2 * share.place_words}\ntmov r20, r21, r22, 0, out\n"
        )

    chunks = [f"movi shift, {layer.shift}\nmovi outputs, {together}\n", *loads(0)]
    for step, (part, tile) in enumerate(steps):
        transfers = [stores(step - 1)] if step else []
        transfers += loads(step + 1) if step + 1 < len(steps) else []
        # Transfers go between the rows of a step's first half, so that the other half hides them.
        each = -(-len(transfers) // max(1, len(tiles[tile]) * len(rows[part]) // 2))
        count = len(tiles[tile]) * together
        chunks.append(f"sync load, 0\nsync store, 0\nmovi out_step, {count}\n" if step else
                      f"movi out_step, {count}\n")  # fmt: skip
        for g in range(len(tiles[tile])):
            if step == 0:
                chunks.append(f"sync load, {(len(tiles[tile]) - 1 - g) * together}\n")
            for local, y in enumerate(rows[part].tolist()):
                at = out_at[step % 2] + local * layer.out * count + g * together
                where = weights_half[step] * machine.wbuf_words // 2 + g * kernel_words
                maps = maps_half[step] * half - in_rows(part)[0] * row_words
                chunks.append(f"movi out, {at}\n" + _coop_row(layer, y, maps, where))
                # Vector instructions of the step before are complete when those of this row alone
                # are left; then what they used can be stored and loaded anew.
                issued = layer.out * (1 + layer.window(y)[2])
                if g == local == 0:
                    chunks.append(f"sync vector, {min(255, issued)}\n")
                now, transfers = transfers[:each], transfers[each:]
                chunks.extend(now)
    chunks.append("sync vector, 0\n" + stores(len(steps) - 1))
    return chunks, constants


def _address(register: str, value: int) -> str:
    return f"movi {register}, {value >> 8}\nmov {register}, {register}, 8\n" + (
        f"addi {register}, {register}, {value & 255}\n"
    )


def _coop_row(layer: Layer, y: int, maps: int, weights: int) -> str:
    """A row of results of one group of kernels: columns at the edges alone, the others in a loop.
    r1.. are the rows' addresses in MBuf, r8.. in WBuf, r15 that of the bias."""
    first_row, row, rows = layer.window(y)
    text = f"movi r15, {weights}\n"
    x = 0
    while x < layer.out:
        first, column, columns = layer.window(x)
        same = 1
        if columns == layer.kernel:
            while x + same < layer.out and layer.window(x + same)[2] == layer.kernel:
                same += 1
        for k in range(rows):
            place = ((row + k) * layer.size + column) * layer.planes
            kernel = ((first_row + k) * layer.kernel + first) * layer.planes
            text += f"movi r{1 + k}, {maps + place}\nmovi r{8 + k}, {weights + LINE + kernel}\n"
        text += f"movi r16, 2\nmovi r17, {same}\n"
        label = f"column{x}"
        text += f"{label}: vmov bias, coop, r15\n"
        for k in range(rows):
            last = "result" if k == rows - 1 else "keep"
            text += f"mac coop, {last}, r{1 + k}, r{8 + k}, {columns * layer.planes}\n"
        if same > 1:
            steps = [f"addi r{1 + k}, r{1 + k}, {layer.stride * layer.planes}" for k in range(rows)]
            slots = ["addi r16, r16, 1", *steps]
            slots += ["movi r31, 0"] * (4 - len(slots))
            text += "\n".join(slots[4:] + [f"ble r16, r17, {label}"] + slots[:4]) + "\n"
        x += same
    return text


def network(
    layers: Sequence[Layer], machine: SnowflakeMachine, weights: Sequence[np.ndarray],
    biases: Sequence[np.ndarray], parts: int,
) -> tuple[list[np.ndarray], np.ndarray, list[int], int]:
    """(code a cluster, constants, where the maps of each layer and the last results lie, bytes of
    memory). Layers one after another, each one's filters over all clusters; all load the same maps
    together and meet at a barrier behind each layer."""
    count = machine.clusters.count
    codes: list[list[str]] = [[] for _ in range(count)]
    constants: list[np.ndarray] = []
    sizes = [layer.filters * (LINE + layer.kernel**2 * layer.planes) for layer in layers]
    places = [-(-2 * sum(sizes) // 64) * 64]
    for layer in layers:
        places.append(places[-1] + -(-2 * layer.size**2 * layer.planes // 64) * 64)
    for number, layer in enumerate(layers):
        for c in range(count):
            each = layer.filters // count
            mine = slice(c * each, (c + 1) * each)
            share = Share(
                2 * sum(map(len, constants)), places[number], places[number + 1] + 2 * c * each,
                layer.filters, "shared" if count > 1 else "own",
            )  # fmt: skip
            chunks, words = coop_chunks(
                replace(layer, filters=each), machine, weights[number][mine], biases[number][mine],
                parts, share,
            )  # fmt: skip
            codes[c] += [*chunks, "sync clusters, 0\n"]
            constants.append(words)
    end = places[-1] + 2 * layers[-1].out ** 2 * layers[-1].filters
    programs = [packed([*chunks, "sync end, 0\n"]) for chunks in codes]
    return programs, np.concatenate(constants), places, end


def indp(
    layer: Layer, machine: SnowflakeMachine, weights: np.ndarray, bias: np.ndarray
) -> Built:
    """All kernels (at most 64) at once; each CU has the rows of a part of the image. A CU without
    a row, or whose row of the kernel is padding, is masked out."""
    cus, filters = machine.clusters.cus, layer.filters
    vmacs = -(-filters // LINE)
    trace = layer.kernel**2 * layer.planes
    lanes = np.zeros((vmacs, trace * LINE + 2 * LINE), np.int16)
    for v in range(vmacs):
        mine = weights[v * LINE : (v + 1) * LINE].reshape(-1, trace)
        biases = np.zeros(LINE, np.int32)
        biases[: len(mine)] = bias[v * LINE : (v + 1) * LINE]
        lanes[v, : 2 * LINE] = _bias_words(biases)
        lanes[v, 2 * LINE :].reshape(trace, LINE)[:, : len(mine)] = mine.T
    maps_at = -(-lanes.nbytes // 64) * 64
    row_words = layer.size * layer.planes
    results_at = -(-(maps_at + 2 * layer.size * row_words) // 64) * 64
    share = -(-layer.out // cus)
    mine = [range(min(u * share, layer.out), min((u + 1) * share, layer.out)) for u in range(cus)]
    text = f"movi shift, {layer.shift}\nmovi outputs, {filters}\nmovi out_step, {filters}\n"
    for v in range(vmacs):
        text += _address("r20", v * lanes.shape[1] * 2)
        text += f"movi r21, 0\nmovi r22, {lanes.shape[1]}\n"
        text += f"ld wbuf, r20, r21, r22, {(1 << cus) - 1}, v{v}, own, weight\n"
    # In MBuf a CU's input rows begin at the one that its first output row would begin at without
    # padding, so that all CUs have the same addresses.
    for u, outs in enumerate(mine):
        if len(outs):
            begin = outs.start * layer.stride - layer.pad
            last = layer.window(outs.stop - 1)
            first = max(begin, 0)
            text += _address("r20", maps_at + 2 * first * row_words)
            text += f"movi r21, {(first - begin) * row_words}\n"
            text += f"movi r22, {(last[1] + last[2] - first) * row_words}\n"
            text += f"ld mbuf, r20, r21, r22, {1 << u}, all, own, in\n"
    out_at = ((share - 1) * layer.stride + layer.kernel) * row_words
    chunks = [text + f"movi out, {out_at}\nsync load, 0\nmovi r15, 0\n"]
    for local in range(share):
        for x in range(layer.out):
            first, column, columns = layer.window(x)
            active = sum(1 << u for u, outs in enumerate(mine) if local < len(outs))
            text = f"movi cus, {active}\nvmov bias, indp, r15\n"
            # The row of the kernel that is never padding comes last and ends all CUs' sums.
            middle = layer.kernel // 2
            for k in [*(k for k in range(layer.kernel) if k != middle), middle]:
                mask = 0
                for u, outs in enumerate(mine):
                    if local < len(outs):
                        top, _, count = layer.window(outs.start + local)
                        mask |= (top <= k < top + count) << u
                if mask:
                    place = ((local * layer.stride + k) * layer.size + column) * layer.planes
                    at = 2 * LINE + (k * layer.kernel + first) * layer.planes * LINE
                    text += f"movi cus, {mask}\nmovi r1, {place}\nmovi r2, {at}\n"
                    last = "result" if k == middle else "keep"
                    text += f"mac indp, {last}, r1, r2, {columns * layer.planes}\n"
            chunks.append(text)
    for u, outs in enumerate(mine):
        if len(outs):
            text = "sync vector, 0\n" + _address(
                "r20", results_at + 2 * outs.start * layer.out * filters
            )
            count = len(outs) * layer.out * filters
            text += f"movi r21, {out_at}\nmovi r22, {count}\ntmov r20, r21, r22, {u}, out\n"
            chunks.append(text)
    chunks.append("sync end, 0\n")
    size = results_at + 2 * layer.out**2 * filters
    return Built(packed(chunks), maps_at, lanes.reshape(-1), results_at, size)
