"""How often a model on the NPU is right, how far its outputs are from float, and which layer is to
blame.

Regions run by the reference, which every simulator equals to the bit, so that hundreds of images
take seconds; the simulator runs the first ones and must agree.
"""

from __future__ import annotations

from tvm_npu.accuracy.measuring import check_can_be_sent, measure
from tvm_npu.accuracy.results import LOW_SQNR_DB, Accuracy, BesideSource, Labelled, RegionErrors

__all__ = [
    "LOW_SQNR_DB",
    "Accuracy",
    "BesideSource",
    "Labelled",
    "RegionErrors",
    "check_can_be_sent",
    "measure",
]
