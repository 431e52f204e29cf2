"""The page says what the profile says, holds all it needs, and runs in a browser without errors."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("bokeh")
pytest.importorskip("jinja2")
onnx = pytest.importorskip("onnx")

from tests.report.pages import BROWSER, Visible, dom_of  # noqa: E402
from tests.report.small_runs import MACHINES, REFUSED, profiled, recorded  # noqa: E402
from tvm_npu.report.model_graph import graph_of_onnx, layers_of  # noqa: E402
from tvm_npu.report.page import PageError, make_page  # noqa: E402
from tvm_npu.report.page import comparison as page_comparison  # noqa: E402
from tvm_npu.report.page.comparison import comparison, read_profile  # noqa: E402
from tvm_npu.report.page.figures import figures  # noqa: E402
from tvm_npu.report.page.timelines import MOST_WORK, timelines  # noqa: E402


def page_of(name: str, **options: object) -> str:
    return make_page(profiled(name), [recorded(name)], **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", MACHINES)
def test_the_page_says_what_was_measured(name: str) -> None:
    page = page_of(name)
    assert len(page) < 5e6
    seen, profile = Visible(page), profiled(name)
    assert all(address.startswith("#") for address in seen.addresses)
    assert set(seen.text) >= {"summary", "placement", "layers", "roofline", "plans", "memory"}
    totals = profile.totals
    assert f"{totals.cycles:,.0f}" in seen.text["summary"]
    assert totals.bound_cycles is not None and totals.times_bound is not None
    assert totals.times_bound == totals.cycles / totals.bound_cycles > 1
    assert f"joined {totals.bound_cycles:,.0f} times that bound {totals.times_bound:.2f}" in (
        " ".join(seen.text["summary"].split())
    )
    assert "nn.softmax" in seen.text["placement"] and "soft" in seen.text["placement"]
    for row in profile.layers:
        assert row.breakdown is not None
        for shown in (row.name, f"{row.cycles:,.0f}", f"{row.breakdown.wait_cycles:,.0f}"):
            assert shown in seen.text["layers"]
        assert f"{row.dram_bytes:,}" in seen.text["layers"]
        for peak in row.peak_bytes.values():
            assert f"{peak:,}" in seen.text["memory"]
        assert f"{row.dram_live_bytes:,}" in seen.text["memory"]
    assert "accuracy" not in seen.text and "comparison" not in seen.text


def test_the_page_says_which_bytes_the_largest_region_has() -> None:
    profile = profiled("nmp")
    region = profile.report.regions[0]
    totals = replace(profile.totals, dram_peak_segments={"code": 2000, "constants": 1000})
    for regions, whose in (((region,), ""), ((region, region), " of the largest region")):
        report = replace(profile.report, regions=regions)
        page = make_page(replace(profile, totals=totals, report=report), [recorded("nmp")])
        text = " ".join(Visible(page).text["memory"].split())
        assert f"code{whose} 2.0 KB constants{whose} 1.0 KB all{whose}, aligned" in text


def test_sizes_have_the_units_that_they_say() -> None:
    from tvm_npu.report.page.numbers import data, memory

    assert [data(size) for size in (999, 1024, 1536, 5_000_000)] == [
        "999 bytes", "1.0 KB", "1.5 KB", "5.0 MB",
    ]  # fmt: skip
    assert [memory(size) for size in (1023, 8192, 5 << 20)] == ["1,023 bytes", "8.0 KiB", "5.0 MiB"]
    assert data(None) == memory(None) == "–"
    summary = Visible(page_of("nmp")).text["summary"]
    capacity = profiled("nmp").capacity_bytes["mb0"]
    assert f"peak mb0 of {capacity / 1024:.1f} KiB" in " ".join(summary.split())


def test_names_of_a_model_are_text() -> None:
    evil = "<script>alert(1)<script>"
    page = page_of("nmp", sqnr_db={("region", evil): (1.0, None)})
    assert evil not in page and html.escape(evil) in page


def test_layers_of_one_name_keep_their_figures() -> None:
    profile = profiled("nmp")
    name, region = profile.layers[0].name, profile.layers[0].region
    noises = {(region, name): (11.5, None), ("another", name): (77.5, None)}
    seen = Visible(page_of("nmp", sqnr_db=noises)).text["accuracy"]
    assert "11.5" in seen and "77.5" in seen
    mine = profile.to_dict()
    twice = {**mine, "layers": [{"name": "a", "time_us": one} for one in (1.0, 2.0)]}
    found = comparison(twice, [{**twice, "layers": twice["layers"][:1]}])
    assert found is not None and found["layers"] == [("a", [1.0, 1.0]), ("a", [2.0, None])]


def test_timelines_are_the_first_events() -> None:
    run = recorded("nmp")
    assert run.events is not None
    for number, found in enumerate(timelines([run])):
        layer = [event for event in run.events if event.layer == found["name"]]
        assert found["all"] == len(layer)
        assert sum(1 for one in found["slices"] if not one[3]) <= MOST_WORK
        for slice_, event in zip(found["slices"], layer, strict=False):
            assert found["units"][slice_[0]] == event.unit and bool(slice_[3]) == event.waits
            assert slice_[1] == pytest.approx(event.begin_cycles - layer[0].begin_cycles, abs=0.06)
        assert set(found["memory"]) == set(profiled("nmp").layers[number].peak_bytes)


def test_operators_become_layers_and_edges() -> None:
    def node(kind: str, name: str, read: str, made: str) -> object:
        return onnx.helper.make_node(kind, read.split(), made.split(), name=name)

    nodes = [node("Conv", "c1", "x w", "a"), node("Relu", "r1", "a", "b"),
             node("Softmax", "s", "b", "d"), node("Add", "add", "d a2", "z")]  # fmt: skip
    graph = onnx.helper.make_graph(nodes, "g", [], [])
    rows = [replace(profiled("nmp").layers[0], name="c1+r1", source=("c1", "r1"))]
    found = graph_of_onnx(onnx.helper.make_model(graph), rows, [replace(REFUSED, source="s")])
    assert [(n.name, n.layer, n.on_cpu) for n in found.nodes] == [
        ("c1+r1", 0, False), ("s", None, True), ("add", None, False),
    ]  # fmt: skip
    assert found.nodes[0].operators == ("Conv", "Relu")
    assert found.edges == ((0, 1), (1, 2))
    page = page_of("nmp", graph=found)
    assert page.count('class="edge"') == 2
    assert page.count('class="box cpu"') == page.count('class="box away"') == 1


def test_remedies_and_what_helps_a_layer_stand_on_the_page() -> None:
    mine = profiled("nmp")
    assert "what helps" not in Visible(make_page(mine, [])).text["placement"]
    told = replace(REFUSED, remedy="a & b", page="docs/rules.md#softmax")
    known = replace(mine, report=replace(mine.report, refusals=(told,)))
    layer = ("region", mine.layers[0].name)
    seen = Visible(make_page(known, [], sqnr_db={layer: (1.0, 2.0)}, advice={layer: "int<16"}))
    assert "what helps" in seen.text["placement"] and "a & b" in seen.text["placement"]
    assert "docs/rules.md#softmax" in seen.text["placement"]
    assert "what would help" in seen.text["accuracy"] and "int<16" in seen.text["accuracy"]


def test_what_does_not_depend_on_the_input_is_left_out_of_the_graph() -> None:
    """Exporters reshape biases and compute shapes with nodes of their own."""
    lines = (
        "Constant made= k", "Reshape k n = bias", "Conv x w = a", "Add a bias = b",
        "Shape b = s", "Slice s k = part", "Reshape b part = c", "Softmax bias = soft",
        "Cos c soft = d",
    )  # fmt: skip
    nodes = []
    for line in lines:
        kind, *read = line.split("=")[0].replace(" made", "").split()
        nodes.append(onnx.helper.make_node(kind, read, line.split("= ")[1].split(), name=line))
    body = onnx.helper.make_graph([], "body", [], [])
    nodes.append(onnx.helper.make_node("If", ["k"], ["e"], name="if", then_branch=body))
    stored = [onnx.helper.make_tensor(name, 1, [1], [0.0]) for name in "wn"]
    graph = onnx.helper.make_graph(nodes, "g", [], [], stored)
    rows = [replace(profiled("nmp").layers[0], source=(lines[2], lines[3]))]
    found = graph_of_onnx(onnx.helper.make_model(graph), rows, [replace(REFUSED, source=lines[7])])
    assert [" ".join(one.operators) for one in found.nodes] == [
        "Conv Add", "Reshape", "Softmax", "Cos", "If",
    ]  # fmt: skip
    assert found.edges == ((0, 1), (1, 3), (2, 3))


def test_nodes_of_one_name_have_layers_of_their_own() -> None:
    names = ("same", "same", "alone", "same", "cpu")
    nodes = [onnx.helper.make_node("Conv", ["x"], ["y"], name=name) for name in names]
    sources = (("same",), ("same", "alone"), ("other",))
    rows = [replace(profiled("nmp").layers[0], source=source) for source in sources]
    assert layers_of(nodes, rows) == [0, 1, 1, 1, None]


def test_a_node_that_became_several_layers_is_the_last_of_them() -> None:
    """Those before it prepare its maps."""
    nodes = [onnx.helper.make_node("Conv", ["x"], ["y"], name="conv")]
    rows = [replace(profiled("nmp").layers[0], source=("conv",)) for _ in range(2)]
    assert layers_of(nodes, rows) == [1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"machine": 3}, "'machine' is no text"),
        ({"layers": None}, "a list of 'layers'"),
        ({"totals": {"cycles": "many"}}, "'totals' has no number as 'cycles'"),
        ({"layers": [{"name": "a"}]}, "layer 0 has no number as 'time_us'"),
        ({"layers": ["a"]}, "layer 0 has no name"),
    ],
)
def test_a_damaged_profile_is_told(tmp_path: Path, change: dict[str, object], said: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(json.dumps({**profiled("nmp").to_dict(), **change}))
    with pytest.raises(PageError, match=f"is damaged: .*{said}"):
        read_profile(path)
    path.write_text("[" * 100_000)
    with pytest.raises(PageError, match="cannot read profile"):
        read_profile(path)
    path.write_bytes(b"{\xff")
    with pytest.raises(PageError, match=r"json': not text \(byte 1: .*; a profile is what"):
        read_profile(path)


def test_profiles_are_bounded_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "other.json"
    path.write_text("[" + "[]," * 100)
    monkeypatch.setattr(page_comparison, "MOST_PROFILE_VALUES", 200)
    monkeypatch.setattr(page_comparison.json, "loads", None)
    with pytest.raises(PageError, match="cannot read profile .*: 201 values.*; at most 200"):
        read_profile(path)


def test_runs_are_compared_by_layer(tmp_path: Path) -> None:
    mine, other = profiled("nmp").to_dict(), profiled("setup-a").to_dict()
    path = tmp_path / "other.json"
    path.write_text(json.dumps(other))
    found = comparison(mine, [read_profile(path)])
    assert found is not None and len(found["runs"]) == 2 and "setup-a" in found["runs"][1]
    times = dict(found["layers"])
    for layer in other["layers"]:
        assert times[layer["name"]][1] == layer["time_us"]
    assert dict(found["totals"])["cycles"] == [mine["totals"]["cycles"], other["totals"]["cycles"]]
    text = Visible(page_of("nmp", others=[read_profile(path)])).text["comparison"]
    assert f"{other['totals']['time_us']:,.1f}" in text and "several models" not in text
    path.write_text(json.dumps({**other, "model": "deep/other<1.onnx"}))
    text = Visible(page_of("nmp", others=[read_profile(path)])).text["comparison"]
    assert "several models" in text and "other<1.onnx" in text and Path(mine["model"]).name in text
    path.write_text('{"schema": "tvm-npu accuracy 1"}')
    with pytest.raises(PageError, match="is no profile"):
        read_profile(path)


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
def test_a_browser_runs_the_page(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page_of("nmp"))
    dom = dom_of(path, "plans")
    body = re.search(r"<body[^>]*>", dom)
    assert body is not None and 'data-ready="yes"' in body[0] and "data-error" not in body[0]
    assert re.search(r'aria-controls="plans" aria-selected="true"', dom)
    plots = len(figures(profiled("nmp"), []))
    assert f'data-painted="{plots}"' in body[0]  # their text has the theme's colour
    text = re.search(r'<p id="timeline-text"[^>]*>([^<]*)', dom)
    assert text is not None and "events" in text[1]
