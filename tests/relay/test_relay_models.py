"""Classic networks: how far their regions merge (partitioning alone, nothing is compiled)."""

from __future__ import annotations

import pytest

pytest.importorskip("tvm.relay", exc_type=ImportError)
pytest.importorskip("onnx")
from tests.relay.relay_cases import split  # noqa: E402
from tvm_npu.models.light import build_light  # noqa: E402
from tvm_npu.relay import import_region  # noqa: E402
from tvm_npu.relay.frontend import from_onnx  # noqa: E402

pytestmark = pytest.mark.relay


@pytest.mark.parametrize(
    ("name", "regions", "on_cpu"),
    [
        ("squeezenet", 1, set()),
        ("inception_v1", 3, {"nn.lrn"}),
        ("shufflenet", 1, set()),  # its shuffles of channels are moves
    ],
)
def test_regions_of_light_models(name: str, regions: int, on_cpu: set[str]) -> None:
    mod, _ = from_onnx(build_light(name))
    found = split(mod)
    assert len(found.regions) == regions
    assert {refusal.operator for refusal in found.refusals} == on_cpu
    assert sum(region.macs for region in found.regions) == found.total_macs > 1e8
    assert all(source for region in found.regions for source, _ in region.operators)
    for region in found.regions:
        import_region(found.mod[region.symbol], region.symbol)
