"""The reproduction: chains of the papers' networks, its figures, its files and its errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the relay extra is not installed")

from studies.harness.command import main
from studies.harness.errors import StudyError
from studies.pipelines import pipe_study, shisha_study
from studies.pipelines import rows as rows_module
from studies.pipelines.cases import Case, best_cut, case_of, chain_of
from studies.pipelines.chains import onnx_chain
from studies.pipelines.figures import faster_share, find, slower
from studies.pipelines.published import SETTINGS, SYNTH_OPTIMA
from studies.pipelines.rows import Row
from studies.pipelines.rows import row_of as row_or_none
from studies.pipelines.study import STUDY
from tvm_npu.models import ModelShapeError, build, macs
from tvm_npu.pipelines import Configuration
from tvm_npu.pipelines.search.space import all_stages

Run = Callable[..., tuple[int, str, str]]


def row_of(case: Case, search: str, seeds: int) -> Row:
    row = row_or_none(case, search, seeds)
    assert row is not None
    return row


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            code = main(STUDY, [str(argument) for argument in arguments])
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.mark.parametrize(
    ("model", "layers", "gmacs"),
    [("synthnet", 18, 3.754), ("resnet50", 50, 3.858), ("resnet50-pools", 52, 3.858)],
)
def test_networks_have_the_papers_numbers_of_layers(model: str, layers: int, gmacs: float) -> None:
    chain = chain_of(model)
    assert len(chain) == layers and chain.model == model
    assert sum(layer.macs for layer in chain.layers) / 1e9 == pytest.approx(gmacs, abs=1e-3)


def test_squeezenet_s_branches_stay_together() -> None:
    model = build("squeezenet1.0", input_size=64)
    chain = onnx_chain(model, "squeezenet", pools=True)
    assert sum(layer.macs for layer in chain.layers) == macs(model)
    parameters = sum(int(np.prod(tensor.dims)) for tensor in model.graph.initializer)
    assert sum(layer.parameter_bytes for layer in chain.layers) == 4 * parameters
    expand = [layer for layer in chain.layers if any("expand1x1" in one for one in layer.source)]
    assert expand and all(any("expand3x3" in one for one in layer.source) for layer in expand)
    assert chain.input_bytes == 4 * 3 * 64 * 64


def test_skip_tensors_cross_cuts_inside_a_residual_block() -> None:
    """ResNet-50's second block at 56x56: the block's input (256 channels) waits for the addition
    while 64 and 64 channels pass."""
    layers = chain_of("resnet50").layers
    plane = 4 * 56 * 56
    inside = [layer.activation_bytes for layer in layers[3:6]]
    assert inside == [plane * 256, plane * (256 + 64), plane * (256 + 64)]


def test_weights_follow_equations_1_and_2() -> None:
    first, second, *_, last = chain_of("resnet50-pools").layers
    assert first.weight == 224 * 224 * 3 * 7 * 7 * 64
    assert first.macs == 112 * 112 * 3 * 7 * 7 * 64
    assert second.weight == 112 * 112 * 64 and second.macs == 0
    assert last.weight == last.macs == 2048 * 1000


def test_a_model_without_shapes() -> None:
    model = build("lenet")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    with pytest.raises(ModelShapeError, match="no static shape"):
        onnx_chain(model, "lenet", pools=False)


def test_best_cut_is_the_best_of_all_cuts() -> None:
    case = case_of("synthnet", "shisha-c2")
    for places in ((0, 1, 2, 3), (3, 0, 2, 1), (2, 0), (1,)):
        every = [
            case.table.times(Configuration(stages, places)).bottleneck_s
            for stages in all_stages(18, len(places))
        ]
        assert best_cut(case.table, places) == pytest.approx(min(every), rel=1e-12)


def test_guided_and_shisha_on_synthnet() -> None:
    """The published claims on four and eight places."""
    for platform in ("shisha-c2", "shisha-c5"):
        case = case_of("synthnet", platform)
        guided, own = row_of(case, "guided", 1), row_of(case, "shisha-h1", 1)
        whole = row_of(case, "exhaustive", 1)
        assert whole.trials == whole.space and whole.share_of_best == 1.0
        assert guided.trials <= 12 and guided.share_of_best >= 0.99
        assert own.share_of_best >= 0.999 and 10 <= own.executions <= 35
        assert own.convergence_s < whole.convergence_s / 100
        assert shisha_study.own_places(case, "shisha-h1").share == pytest.approx(1.0)


def test_latency_matters_only_when_it_is_large() -> None:
    case = case_of("synthnet", "shisha-c2")
    slow = shisha_study.with_latency(case, 1.0)
    micro = shisha_study.with_latency(case, 1e-6)
    assert micro.optimum[1] == pytest.approx(case.optimum[1], rel=1e-4)
    assert slow.optimum[1] > 1.2 * case.optimum[1]


def test_published_ranks_of_vgg16_s_cuts() -> None:
    """Table 6: the order of cuts by their coefficient of variation is the paper's."""
    weights: list[float] = []
    channels, size = 3, 224
    for count, filters in ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)):
        for _ in range(count):
            weights.append(size * size * channels * 9 * filters)
            channels = filters
        weights.append(size * size * channels)
        size //= 2
    weights += [7 * 7 * 512 * 4096, 4096 * 4096, 4096 * 1000]
    assert len(weights) == 21
    for setting in SETTINGS:
        assert pipe_study.rank_of(weights, setting.stages)[0] == setting.rank


@pytest.mark.parametrize("paper", SYNTH_OPTIMA, ids=lambda one: f"{one.network}-{one.setting}")
def test_published_ranks_of_synthetic_cuts(paper: object) -> None:
    """Table 7: within the cuts of equal variation."""
    found = pipe_study.synthetic(paper)  # type: ignore[arg-type]
    first, last = found.paper_rank_here
    assert first <= found.paper.rank <= last
    assert found.paper_variation_here == pytest.approx(found.paper.variation, abs=0.4)
    assert found.share_of_best > 0.95


def test_bands() -> None:
    assert pipe_study.bands_of([1.0, 1.2, 1.6, 3.0, 6.0], 1.0) == (40.0, 20.0, 20.0, 20.0)


def test_figures_of_rows() -> None:
    case = case_of("synthnet", "shisha-c5")
    base = row_of(case, "shisha-h1", 1)
    rows = [base, replace(base, search="annealing", convergence_s=3 * base.convergence_s)]
    (ratio,) = slower(rows, "shisha-h1")
    assert (ratio.search, ratio.mean, ratio.geometric) == pytest.approx(("annealing", 3.0, 3.0))
    assert find(rows, "synthnet", "shisha-c5", "guided") is None
    assert faster_share(rows, "shisha-h1", "annealing") == 1.0
    assert faster_share(rows, "annealing", "shisha-h1") == 0.0


def test_proofs_that_differ_are_an_error() -> None:
    case = Case(chain_of("synth1"), case_of("synth1", "tx2-6core-setting1").platform)
    assert case.enumeration is not None
    case.__dict__["enumeration"] = replace(case.enumeration, bottleneck_s=1e-9)
    with pytest.raises(StudyError, match="synth1 on tx2-6core-setting1: dynamic"):
        _ = case.optimum


def test_the_command_on_a_small_network(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_module, "BUDGET", 40)
    path, plot = tmp_path / "rows.json", tmp_path / "rows.svg"
    code, out, err = run("--models", "synth1", "--seeds", "1", "--json", path, "--plot", plot)
    assert (code, err) == (0, "")
    assert "Synth 1-3 on six cores" in out and "guided from cold" not in err
    rows = json.loads(path.read_text())
    keys = {(row["model"], row["platform"], row["search"]) for row in rows}
    assert len(keys) == len(rows) and {row["model"] for row in rows} == {"synth1"}
    for row in rows:
        assert set(row) == set(Row.__dataclass_fields__)
        assert 1 <= row["trials"] and row["throughput"] <= row["best_throughput"] * (1 + 1e-12)
        if row["search"] == "guided":
            assert row["trials"] <= 12 and row["share_of_best"] >= 0.99
    assert plot.read_bytes().startswith(b"<?xml")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--models", "lenet"), 2, "unknown model 'lenet'; known: synthnet"),
        (("--seeds", "0"), 2, "'0' is not a number from 1 to 100"),
        (("--json", "/nowhere/rows.json"), 1, "there is no folder"),
        (("--plot", "rows.bmp"), 1, "its suffix must be one of"),
    ],
)
def test_mistakes(run: Run, arguments: tuple[str, ...], code: int, message: str) -> None:
    found, _, err = run(*arguments)
    assert found == code and message in err
