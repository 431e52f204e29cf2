"""What the thesis prints: Tables 4.1, 8.4 and 8.5, and the averages of section 8.3."""

from __future__ import annotations

SETUPS = ("A", "B", "C", "D")
MODELS = ("vgg16", "resnet50", "alexnet", "squeezenet", "yolov2")
"""In the order of `tvm_npu.models.eplanner.NETWORKS`."""

TRAFFIC_REDUCTION = 21.14
"""Per cent, over five networks, four set-ups and three baselines."""
REDUCTION_BY_MODEL = {"yolov2": 52.07, "alexnet": 2.67}
REDUCTION_BY_SETUP = {"A": 26.36, "B": 16.57}

SPEED_UPS = {
    "A": (3.435, 4.023, 1.536, 9.450, 23.068),
    "B": (1.767, 2.608, 1.213, 2.630, 7.929),
    "C": (2.569, 3.770, 1.304, 9.106, 17.083),
    "D": (2.458, 3.632, 1.257, 8.982, 14.573),
}
"""Table 8.4, by set-up, in the order of `MODELS`."""
SPEED_UP = 6.120

SPACE_MILLIONS = (3541.530, 298.074, 645.980, 49.388, 4104.669)
SPACE_KEPT = {
    "A": (27552, 41040, 5310, 4596, 89937),
    "B": (25536, 21984, 405, 1530, 83409),
    "C": (25536, 23232, 645, 4596, 89937),
    "D": (23184, 12864, 645, 4530, 80133),
}
"""Table 8.5."""
