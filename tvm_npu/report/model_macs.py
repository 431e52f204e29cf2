"""One count of multiply-accumulates: those of the model's operators, spread over the layers that
compute them. What the compiler adds (rows that a cascade computes twice, averages as convolutions)
is work of the machine's, not of the model's."""

from __future__ import annotations

from collections.abc import Sequence

from tvm_npu.codegen.program.parts import LayerEntry
from tvm_npu.report.placement import RegionReport


def macs_by_layer(region: RegionReport, layers: Sequence[LayerEntry], images: int) -> list[int]:
    """For each layer of a region the MACs of one run of the model, ``images`` images together.

    An operator's count goes to the layers that name it as their source, by what the layers count
    themselves. Where an operator's layer cannot be told, all layers keep their own counts.
    """
    own = [layer.macs * images for layer in layers]
    if sum(own) == region.macs:
        return own
    found = [0] * len(layers)
    for (source, _), macs in zip(region.operators, region.operator_macs, strict=False):
        makers = [index for index, layer in enumerate(layers) if source in layer.source]
        if macs and not makers:
            return own
        for index, share in zip(makers, _split(macs, [own[k] for k in makers]), strict=True):
            found[index] += share
    return found if sum(found) == region.macs else own


def _split(total: int, weights: Sequence[int]) -> list[int]:
    """``total`` by ``weights``, whole numbers that add up; equal parts where none weighs."""
    if not any(weights):
        weights = [1] * len(weights)
    shares, left, weight = [], total, sum(weights)
    for one in weights:
        share = left * one // weight
        shares.append(share)
        left, weight = left - share, max(weight - one, 1)
    return shares
