"""Random graphs, each on a machine, with a planner and a precision that are drawn with it."""

from __future__ import annotations

import numpy as np

from studies.conformance.random_models import random_model
from studies.conformance.rows import Row
from studies.conformance.running import run_case

MACHINES = (
    "nmp-4x8", "nmp-4x8", "nmp-4x8-dual", "nmp-4x8-paper", "setup-a", "setup-c", "zynq-7020",
    "snowflake-1cc", "snowflake-2cc",
)  # fmt: skip
PRECISIONS = ("int16", "int16", "int8")
PLANNERS = ("exact", "exact", "tso", "fixed-os", "fixed-ws", "naive", "double-buffer")


def run_random_case(name: str) -> Row:
    """``name``: "random-" and a seed. Stock TVM is asked where the NPU is not right."""
    import onnxruntime

    seed = int(name.rpartition("-")[2])
    model, x = random_model(seed)
    onnxruntime.set_default_logger_severity(3)
    options = onnxruntime.SessionOptions()
    # Optimised models may be refused: a padding in front of a pool becomes the pool's.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    rng = np.random.default_rng([seed, 1])
    machine, planner = str(rng.choice(MACHINES)), str(rng.choice(PLANNERS))
    precision = "int16" if machine.startswith("snowflake") else str(rng.choice(PRECISIONS))
    return run_case(
        name, "random", model, {"x": x}, session.run(None, {"x": x}), machine,
        always_stock=False, planner=planner, precision=precision,
    )  # fmt: skip
