"""From scores and boxes to a list of detections, and how far two lists agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Float = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Detection:
    """One object: its score and its corners (left, top, right, bottom) in units of the image."""

    score: float
    box: tuple[float, float, float, float]


ULTRAFACE_SIZE = (320, 240)
_STRIDES = (8, 16, 32, 64)
_ANCHOR_SIZES = ((10, 16, 24), (32, 48), (64, 96), (128, 192, 256))
_CENTRE_VARIANCE = 0.1
_SIZE_VARIANCE = 0.2


def ultraface_anchors() -> Float:
    """The 4420 anchors [A, 4] (centre x, centre y, width, height), image size = 1, clipped.

    Centres divide the image evenly by the feature map's size, also where a stride does not
    divide the image (240 rows at stride 32: 8 rows of 30 pixels).
    """
    width, height = ULTRAFACE_SIZE
    anchors = []
    for stride, sizes in zip(_STRIDES, _ANCHOR_SIZES, strict=True):
        rows, columns = math.ceil(height / stride), math.ceil(width / stride)
        anchors += [
            ((column + 0.5) / columns, (row + 0.5) / rows, size / width, size / height)
            for row in range(rows)
            for column in range(columns)
            for size in sizes
        ]
    return np.clip(np.array(anchors, dtype=np.float32), 0.0, 1.0)


def ultraface_boxes(offsets: Float) -> Float:
    """The network's output `boxes` [1, A, 4] -> corners [1, A, 4] in pixels.

    Output values are SSD offsets: centre = anchor centre + 0.1 * offset * anchor size, size =
    anchor size * exp(0.2 * offset).
    """
    anchors = ultraface_anchors()
    centre = anchors[:, :2] + _CENTRE_VARIANCE * offsets[..., :2] * anchors[:, 2:]
    size = anchors[:, 2:] * np.exp(_SIZE_VARIANCE * offsets[..., 2:])
    corners = np.concatenate([centre - size / 2.0, centre + size / 2.0], axis=-1)
    return (corners * np.array(ULTRAFACE_SIZE * 2, dtype=np.float32)).astype(np.float32)


def detections(
    scores: Float,
    boxes: Float,
    *,
    threshold: float = 0.7,
    maximum_iou: float = 0.5,
    object_class: int = 1,
) -> list[Detection]:
    """Scores [1, A, classes] and boxes [1, A, 4] -> detections, best first.

    Anchors above `threshold` are taken in order of falling score (ties: lower index first);
    one that overlaps a taken one by more than `maximum_iou` is dropped.
    """
    score = scores[0, :, object_class]
    order = np.argsort(-score, kind="stable")
    taken: list[Detection] = []
    for index in order[: int((score > threshold).sum())]:
        left, top, right, bottom = (float(edge) for edge in boxes[0, index])
        candidate = Detection(float(score[index]), (left, top, right, bottom))
        if all(iou(candidate, other) <= maximum_iou for other in taken):
            taken.append(candidate)
    return taken


def iou(a: Detection, b: Detection) -> float:
    """Area of the intersection over area of the union."""
    width = min(a.box[2], b.box[2]) - max(a.box[0], b.box[0])
    height = min(a.box[3], b.box[3]) - max(a.box[1], b.box[1])
    common = max(width, 0.0) * max(height, 0.0)
    union = _area(a) + _area(b) - common
    return common / union if union > 0.0 else 0.0


def matched(
    expected: Sequence[Detection], found: Sequence[Detection], *, minimum_iou: float = 0.7
) -> int:
    """How many of `expected` have a partner in `found`, each partner used once, best first."""
    free = list(found)
    count = 0
    for wanted in expected:
        best = max(free, key=lambda candidate: iou(wanted, candidate), default=None)
        if best is not None and iou(wanted, best) >= minimum_iou:
            free.remove(best)
            count += 1
    return count


def _area(detection: Detection) -> float:
    left, top, right, bottom = detection.box
    return max(right - left, 0.0) * max(bottom - top, 0.0)
