"""Sums of products of 16-bit words: exact in 64 bits, in vectors of the host.

A product has up to 31 bits, so a 32-bit sum of several is exact only modulo 2**32. A second sum,
of the products' or one factor's high parts, says which multiple of 2**32 is missing. LLVM does not
find that by itself, so these loops are written in its vectors; it makes of them what the host has.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from tvm_npu.sim.compiled import device
from tvm_npu.sim.snowflake.isa import LANES, VMACS
from tvm_npu.sim.snowflake.state import Array

BLOCK = 256
"""Words of a trace for which sums of (word >> 8) * weight and (word & 255) * weight fit 32 bits."""

_I16, _I32, _I64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)


def _vector(of: ir.IntType, lanes: int = LANES) -> ir.VectorType:
    return ir.VectorType(of, lanes)


def _splat(of: ir.IntType, value: int, lanes: int = LANES) -> ir.Constant:
    return ir.Constant(_vector(of, lanes), [value] * lanes)


def _load_line(builder: Any, data: Any, at: Any) -> Any:
    """16 words from word ``at`` on."""
    place = builder.bitcast(builder.gep(data, [at]), _vector(_I16).as_pointer())
    return builder.load(place, align=2)


def _pairs(builder: Any, a: Any, b: Any) -> Any:
    """Sums of the products of 2 neighbours: what many hosts have as one instruction."""
    wide = _vector(_I32)
    products = builder.mul(builder.sext(a, wide), builder.sext(b, wide))
    halves = [
        builder.shuffle_vector(products, products, ir.Constant(_vector(_I32, LANES // 2), which))
        for which in (list(range(0, LANES, 2)), list(range(1, LANES, 2)))
    ]
    return builder.add(*halves)


def _total(builder: Any, vector: Any) -> Any:
    kind = ir.FunctionType(_I32, [vector.type])
    name = f"llvm.vector.reduce.add.v{vector.type.count}i32"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [vector])


@intrinsic
def _dots(typing_context: Any, maps: Any, a: Any, weights: Any, b: Any, lines: Any) -> Any:
    """Of ``lines`` whole lines of maps [N] from word a and weights [4, N] from word b: for each
    row, sum of products and sum of (word of maps >> 8) * weight, both modulo 2**32."""
    result = types.UniTuple(types.int32, 2 * VMACS)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x = make_array(maps)(context, builder, arguments[0]).data
        matrix = make_array(weights)(context, builder, arguments[2])
        row_words = builder.extract_value(matrix.shape, 1)
        rows = [
            builder.gep(matrix.data, [builder.mul(row_words, ir.Constant(_I64, v))])
            for v in range(VMACS)
        ]
        half = _vector(_I32, LANES // 2)
        sums = [cgutils.alloca_once_value(builder, ir.Constant(half, None)) for _ in result]
        with cgutils.for_range(builder, arguments[4]) as loop:
            word = builder.mul(loop.index, ir.Constant(loop.index.type, LANES))
            line = _load_line(builder, x, builder.add(arguments[1], word))
            high = builder.ashr(line, _splat(_I16, 8))
            for v, row in enumerate(rows):
                weight = _load_line(builder, row, builder.add(arguments[3], word))
                for place, factor in ((sums[2 * v], line), (sums[2 * v + 1], high)):
                    more = _pairs(builder, factor, weight)
                    builder.store(builder.add(builder.load(place), more), place)
        totals = [_total(builder, builder.load(place)) for place in sums]
        return context.make_tuple(builder, result, totals)

    i64 = types.int64
    return result(maps, i64, weights, i64, i64), generate


@device
def _whole(total: int, high: int) -> int:
    """The sum whose value modulo 2**32 is ``total``; ``high`` is that of the high parts."""
    rest = np.int32(np.int64(total) - (np.int64(high) << 8))
    return (np.int64(high) << 8) + np.int64(rest)  # type: ignore[return-value]


@device
def dot(maps: Array, weights: Array, sums: Array, count: int, a: int, b: int, length: int) -> None:
    """Adds to the first ``count`` sums: of maps [N] from word a and weights [4, N] from word b."""
    t0, t1, t2, t3 = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    done = 0
    while length - done >= LANES:
        lines = min(BLOCK, length - done) // LANES
        d: Any = _dots(maps, a + done, weights, b + done, lines)  # type: ignore[call-arg]
        t0 += _whole(d[0], d[1])
        t1 += _whole(d[2], d[3])
        t2 += _whole(d[4], d[5])
        t3 += _whole(d[6], d[7])
        done += LANES * lines
    for i in range(done, length):
        word = np.int64(maps[a + i])
        t0 += word * np.int64(weights[0, b + i])
        t1 += word * np.int64(weights[1, b + i])
        t2 += word * np.int64(weights[2, b + i])
        t3 += word * np.int64(weights[3, b + i])
    sums[0] += t0
    sums[1] += t1 if count > 1 else 0
    sums[2] += t2 if count > 2 else 0
    sums[3] += t3 if count > 3 else 0


def _lane_products(one_word: bool) -> Any:
    """Makes `lanes_of_word` and `lanes_of_line`."""

    @intrinsic
    def products(
        typing_context: Any, maps: Any, a: Any, step: Any, weights: Any, row: Any, b: Any,
        length: Any, sums: Any, first: Any, count: Any,
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            x = make_array(maps)(context, builder, arguments[0]).data
            matrix = make_array(weights)(context, builder, arguments[3])
            row_words = builder.extract_value(matrix.shape, 1)
            w = builder.gep(matrix.data, [builder.mul(row_words, arguments[4])])
            wide = _vector(_I32)
            low, high = (
                cgutils.alloca_once_value(builder, ir.Constant(wide, None)) for _ in range(2)
            )
            with cgutils.for_range(builder, arguments[6]) as loop:
                at = builder.add(arguments[1], builder.mul(loop.index, arguments[2]))
                if one_word:
                    word = builder.sext(builder.load(builder.gep(x, [at]), align=2), _I32)
                    alone = builder.insert_element(
                        ir.Constant(wide, ir.Undefined), word, ir.Constant(_I32, 0)
                    )
                    words = builder.shuffle_vector(alone, alone, _splat(_I32, 0))
                else:
                    words = builder.sext(_load_line(builder, x, at), wide)
                line = builder.mul(loop.index, ir.Constant(loop.index.type, LANES))
                weight = _load_line(builder, w, builder.add(arguments[5], line))
                product = builder.mul(words, builder.sext(weight, wide))
                upper = builder.ashr(product, _splat(_I32, 16))
                builder.store(builder.add(builder.load(low), product), low)
                builder.store(builder.add(builder.load(high), upper), high)
            # What the high halves leave, sums of low halves, is not negative and below 2**32.
            up = builder.load(high)
            rest = builder.sub(builder.load(low), builder.shl(up, _splat(_I32, 16)))
            longer = _vector(_I64)
            up = builder.shl(builder.sext(up, longer), _splat(_I64, 16))
            total = cgutils.alloca_once_value(
                builder, builder.add(up, builder.zext(rest, longer))
            )
            numbers = builder.bitcast(total, _I64.as_pointer())
            target = make_array(sums)(context, builder, arguments[7]).data
            with cgutils.for_range(builder, arguments[9]) as loop:
                place = builder.gep(target, [builder.add(arguments[8], loop.index)])
                more = builder.load(builder.gep(numbers, [loop.index]))
                builder.store(builder.add(builder.load(place), more), place)
            return context.get_dummy_value()

        i64 = types.int64
        shape = types.void(maps, i64, i64, weights, i64, i64, i64, sums, i64, i64)
        return shape, generate

    return products


lanes_of_word = _lane_products(one_word=True)
"""(maps, a, step, weights, row, b, length, sums, first, count): adds to sums first + i, i < count
<= 16: step t multiplies word a + t * step of maps with word b + 16 t + i of a row of weights."""

lanes_of_line = _lane_products(one_word=False)
"""The same with words a + t * step + i of maps, of which 16 are read in each step."""
