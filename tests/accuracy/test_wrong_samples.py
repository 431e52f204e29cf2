"""What is no sample of the model is refused: TVM would run on whatever its memory holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tvm_npu.accuracy.measuring import measure
from tvm_npu.accuracy.results import Labelled
from tvm_npu.errors import AccuracyError

pytestmark = pytest.mark.relay

X = np.ones((1, 2, 6, 6), np.float32)


@pytest.fixture(scope="module")
def model() -> Any:
    from tests.relay.test_relay_opset import one_operator
    from tvm_npu.door.models import import_onnx
    from tvm_npu.options import make_options

    return import_onnx(one_operator("Conv", 13), {}).partition(make_options(), [{"x": X}])


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (None, "samples are a NoneType; expected an iterable"),
        ({"x": X}, "samples are a dict"),
        ([X], "sample 1 is a ndarray; expected a Labelled"),
        ([Labelled({})], "sample 1: there is no array for input 'x'"),
        ([Labelled({"x": X}), Labelled({"y": X})], "sample 2: the model has no input 'y'"),
        ([Labelled({"x": X[0]})], r"sample 1: input 'x' has shape \(2, 6, 6\)"),
        ([Labelled({"x": X * 1j})], "sample 1: input 'x' is complex"),
        ([Labelled({"x": X}, 3)], "labels of sample 1 are 3; expected a tuple"),  # type: ignore[arg-type]
        ([Labelled({"x": X}, (1.5,))], "labels of sample 1"),  # type: ignore[arg-type]
    ],
)
def test_samples_that_are_none(model: Any, samples: Any, message: str) -> None:
    with pytest.raises(AccuracyError, match=message):
        measure(model, samples)


@pytest.mark.parametrize(
    "wrong",
    [{"layer_samples": -1}, {"layer_samples": True}, {"simulated": -1}, {"simulated": "x"}],
)
def test_counts_that_are_none(model: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(AccuracyError, match="at least 0, a whole number"):
        measure(model, [Labelled({"x": X})], **wrong)
