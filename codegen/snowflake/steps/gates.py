"""Weights of recurrent layers as they lie in memory: for every tile of a time step what each vMAC
gets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.snowflake.plan.recurrent import RecurrentGeometry
from tvm_npu.codegen.snowflake.plan.tiling import line
from tvm_npu.codegen.snowflake.steps.kernels import Piece, bias_words
from tvm_npu.sim.snowflake.isa import LANES, VMACS, WORD_BYTES


@dataclass(frozen=True)
class Gates:
    """Weights [rows, elements] of a group of sums and its biases [rows] each."""

    input_weight: NDArray[Any] | None
    hidden_weight: NDArray[Any] | None
    biases: tuple[NDArray[Any], ...]


def arranged_gates(
    geometry: RecurrentGeometry, gates: Sequence[Sequence[Gates]]
) -> tuple[NDArray[np.int16], dict[tuple[int, int], tuple[Piece, ...]]]:
    """Words of all phases, and by (phase, tile) the pieces in them."""
    blocks: list[NDArray[np.int16]] = []
    pieces: dict[tuple[int, int], tuple[Piece, ...]] = {}
    at = 0
    for number, (phase, mine) in enumerate(zip(geometry.shape.phases, gates, strict=True)):
        arranged = [_arranged(one, geometry.together) for one in mine]
        for index, tile in enumerate(geometry.tiles(phase)):
            parts = [
                arranged[part.of][:, part.begin : part.begin + part.count].reshape(
                    geometry.together, -1
                )
                for part in tile
            ]
            found = []
            for vmac, words in enumerate(np.concatenate(parts, axis=1)):
                found.append(Piece(1 << vmac // VMACS, vmac % VMACS, WORD_BYTES * at, len(words)))
                blocks.append(words)
                at += len(words)
            pieces[number, index] = tuple(found)
    return np.concatenate(blocks), pieces


def _arranged(gates: Gates, together: int) -> NDArray[np.int16]:
    """[vMACs, groups, words of a sum]; sums that are missing are zeros."""
    parts = np.concatenate(list(_lines(gates)), axis=1)
    groups = -(-len(parts) // together)
    whole = np.pad(parts, ((0, groups * together - len(parts)), (0, 0)))
    return whole.reshape(groups, together, -1).transpose(1, 0, 2)


def _lines(gates: Gates) -> Iterator[NDArray[np.int16]]:
    """[rows, words], of whole lines."""
    for bias in gates.biases:
        words = bias_words(bias).reshape(len(bias), 2)
        yield np.pad(words, ((0, 0), (0, LANES - 2)))
    for weight in (gates.input_weight, gates.hidden_weight):
        if weight is not None:
            width = weight.shape[1]
            yield np.pad(weight.astype("<i2"), ((0, 0), (0, line(width) - width)))
