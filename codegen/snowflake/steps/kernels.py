"""Weights as they lie in memory: for every tile what each vMAC gets, one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.snowflake.plan.tiling import Geometry
from tvm_npu.sim.snowflake.isa import LANES, VMACS, WORD_BYTES


@dataclass(frozen=True)
class Piece:
    """Words that one vMAC (of one CU, or of all) gets for a tile."""

    cus: int
    vmac: int
    offset: int
    """Bytes from the begin of the layer's weights."""
    words: int


Pieces: TypeAlias = Mapping[tuple[int, int], tuple[Piece, ...]]
"""Of a layer's words, by (tile of filters, part of the depth)."""


def bias_words(bias: NDArray[Any]) -> NDArray[np.int16]:
    """int32 as two words each, low word first."""
    return np.ascontiguousarray(bias, "<i4").reshape(-1).view("<i2")


def arranged(
    shape: Geometry, weight: NDArray[Any], bias: NDArray[Any]
) -> tuple[NDArray[np.int16], Pieces]:
    """The words of ``weight`` [filters, rows, columns, planes] (lane: [channels, rows, columns])
    and ``bias`` [filters] of one group, and the pieces in them."""
    blocks: list[NDArray[np.int16]] = []
    pieces: dict[tuple[int, int], tuple[Piece, ...]] = {}
    at = 0
    for tile, (begin, count) in enumerate(shape.filter_tiles):
        whole = _tile(shape, weight[begin : begin + count], bias[begin : begin + count])
        for part, block in enumerate(_depths(shape, whole)):
            found = []
            for v, words in enumerate(block):
                cus = 1 << v // VMACS if shape.plan.mode == "coop" else (1 << shape.cus) - 1
                found.append(Piece(cus, v % VMACS, WORD_BYTES * at, len(words)))
                blocks.append(words)
                at += len(words)
            pieces[tile, part] = tuple(found)
    return np.concatenate(blocks), pieces


def _tile(shape: Geometry, weight: NDArray[Any], bias: NDArray[Any]) -> NDArray[np.int16]:
    """[vMACs, groups, words] of a tile of filters; filters that are missing are zeros."""
    together, groups = shape.together, shape.groups_in(len(weight))
    lacking = groups * together - len(weight)
    taps = np.pad(weight.reshape(len(weight), -1), ((0, lacking), (0, 0))).astype("<i2")
    biases = np.pad(bias, (0, lacking)).astype("<i4")
    if shape.plan.mode == "coop":
        vmacs = together
        made = np.zeros((groups, vmacs, shape.kernel_words), "<i2")
        made[..., :2] = bias_words(biases).reshape(groups, vmacs, 2)
        end = shape.kernel_at + taps.shape[1]
        made[..., shape.kernel_at : end] = taps.reshape(groups, vmacs, -1)
    else:
        vmacs = VMACS
        made = np.zeros((groups, vmacs, shape.kernel_words), "<i2")
        made[..., : shape.kernel_at] = bias_words(biases).reshape(groups, vmacs, -1)
        lanes = taps.reshape(groups, vmacs, LANES, -1).transpose(0, 1, 3, 2)
        made[..., shape.kernel_at :] = lanes.reshape(groups, vmacs, -1)
    return made.transpose(1, 0, 2)


def _depths(shape: Geometry, whole: NDArray[np.int16]) -> list[NDArray[np.int16]]:
    """[vMACs, words] of each part of the depth; the first has the biases."""
    flat = whole.reshape(len(whole), -1)
    if shape.depth_parts == 1:
        return [flat]
    assert whole.shape[1] == 1
    first = shape.kernel_at + shape.depth_words
    size = shape.depth_words
    parts = [flat[:, :first]]
    parts += [flat[:, at : at + size] for at in range(first, flat.shape[1], size)]
    return [np.ascontiguousarray(part) for part in parts]


def used_vmacs(shape: Geometry, filters: int) -> int:
    """vMACs (of a CU, in mode coop of all) that one group of so few filters uses."""
    if shape.plan.mode == "coop":
        return min(shape.together, filters)
    return min(VMACS, -(-filters // LANES))
