"""The page of a sweep says what the sweep found, and leads from a point to its figures."""

from __future__ import annotations

import html
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("bokeh")
pytest.importorskip("jinja2")

from tests.report.pages import BROWSER, Visible, dom_of  # noqa: E402
from tvm_npu.report.page import swept  # noqa: E402
from tvm_npu.report.page.swept import Links, machine_text, make_sweep_page, sweep_axes  # noqa: E402
from tvm_npu.sim.machine_file import load_machine  # noqa: E402
from tvm_npu.sweep import SweepResult  # noqa: E402
from tvm_npu.sweep.designs import DesignSpace  # noqa: E402
from tvm_npu.sweep.judged import Judged, promoted  # noqa: E402
from tvm_npu.sweep.outcome import Outcome  # noqa: E402
from tvm_npu.sweep.spec import spec_from_dict  # noqa: E402

EVIL = "</script><b>x"


def made_up(**changes: Any) -> SweepResult:
    """Four machines with figures of nobody's, of which a third fidelity has the front."""
    keys = {"cores.tles": [1, 2], "mac.setup_cycles": [4, 8]}
    values = {
        "models": ["lenet", EVIL],
        "machine": {"base": "nmp-4x8", "keys": keys},
        "planners": ["exact", "naive"],
        "fidelity": ["predicted", "checked"],
        "search": {"objectives": ["cycles", "dram_bytes"]},
        **changes,
    }
    spec = spec_from_dict(values)
    space = DesignSpace(spec)
    designs = [*space.of_files(), *space.grid()]
    first = [judged(design, at) for at, design in enumerate(designs)]
    front = promoted(first, spec.search.objectives, "front")
    last = [judged(one.design, designs.index(one.design), 1.25) for one in front]
    rows = [
        {"fault": outcome.fault} for stage in (first, last) for one in stage
        for outcome in one.outcomes
    ]  # fmt: skip
    sensitivity = {"cores.tles": (1.5, 2.0), "mac.setup_cycles": (None, 3e7)}
    return SweepResult(spec, tuple(rows), sensitivity, (tuple(first), tuple(last)), 0)


def judged(design: Any, at: int, factor: float = 1.0) -> Judged:
    """The third design has no outcome."""
    if at == 3:
        outcomes = (Outcome(fault="CapacityError: too small"),) * 2
        return Judged(design, "predicted", outcomes, ({}, {}), (math.nan, math.nan))
    cycles, moved = factor * (1000.5 + 37 * at), 900 - (100 * at if at < 3 else 0)
    outcomes = (Outcome(cycles, cycles / 500, moved, 17), Outcome(3 * cycles, 1.0, moved, 18, 0))
    return Judged(design, "predicted", outcomes, ({}, {}), (cycles * math.sqrt(3), float(moved)))


def contents(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="sweep">(.*?)</script>', page, re.S)
    assert found is not None
    values: dict[str, Any] = json.loads(found[1])
    return values


def test_the_page_has_all_designs_with_their_figures() -> None:
    result = made_up()
    page = make_sweep_page(result)
    seen, found = Visible(page), contents(page)
    assert all(address.startswith("#") for address in seen.addresses)
    assert EVIL not in page and EVIL in found["models"] and EVIL in seen.text[""]
    assert [axis["name"] for axis in found["axes"]] == [
        "cores.tles", "mac.setup_cycles", "planner", "cycles", "dram_bytes",
    ]  # fmt: skip
    for stage, points in zip(result.stages, found["stages"], strict=True):
        for one, point in zip(stage, points, strict=True):
            values = [
                None if at is None else axis["values"][at]
                for axis, at in zip(found["axes"], point["at"], strict=True)
            ]
            scores = [None if math.isnan(score) else score for score in one.scores]
            assert values == [*dict(one.design.changes).values(), one.design.planner, *scores]
            assert point["rows"][1][0] == one.outcomes[1].cycles
            assert point["faults"] == [outcome.fault for outcome in one.outcomes]
    best = result.front_designs()
    assert len(best) == 3
    assert [p["name"] for p in found["stages"][1] if p["front"]] == [b.design.name for b in best]
    for one in best:
        assert one.design.name in seen.text["best"] and f"{one.scores[0]:,.6g}" in seen.text["best"]
    assert all(text in seen.text["sensitivity"] for text in ("1.500", "2.000", "–", "3.00e+07"))
    assert "CapacityError: too small" in seen.text["faults"]
    assert "Objectives are geometric means over the models." in page


def test_places_on_axes_keep_the_order() -> None:
    for axis in sweep_axes(made_up()):
        assert axis.at[0] == 0 and axis.at[-1] == 1 and sorted(axis.at) == list(axis.at)
        assert sorted(axis.values) == list(axis.values)
    titles = [axis.title for axis in sweep_axes(made_up())]
    assert titles[:3] == ["cores.tles: 1 to 2", "mac.setup_cycles: 4 to 8",
                          "planner: exact to naive"]  # fmt: skip


def test_many_designs_are_thinned_but_for_the_front(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swept, "MOST_DESIGNS", 5)
    points = contents(make_sweep_page(made_up()))["stages"][0]
    assert len(points) < 8 and sum(point["front"] for point in points) == 3


def test_the_machine_file_of_a_point_is_its_machine(tmp_path: Path) -> None:
    for one in made_up().stages[0]:
        text = machine_text(one.design)
        assert text is not None and one.design.machine is not None
        (tmp_path / "swept.toml").write_text(text)
        made = load_machine(str(tmp_path / "swept.toml"))
        said = {"name": "swept", "description": ""}
        assert made.model_dump() == {**one.design.machine.model_dump(), **said}


def test_machines_that_are_files(tmp_path: Path) -> None:
    """Their call takes the file; one with changed keys stands in a file of its own, whole."""
    files = [tmp_path / "base.toml", tmp_path / "other.toml"]
    for file in files:
        file.write_text(f'extends = "nmp-4x8"\nname = "{file.stem}"\nmac.setup_cycles = 7\n')
    keys = {"cores.tles": [1, 2]}
    machine = {"base": str(files[0]), "keys": keys, "files": [str(files[1])]}
    result = made_up(machine=machine)
    points = contents(make_sweep_page(result))["stages"][0]
    for one, point in zip(result.stages[0], points, strict=True):
        assert one.design.machine is not None
        path = tmp_path / "swept.toml" if one.design.changes else Path(point["loaded_from"])
        assert (point["machine"] is not None) == bool(one.design.changes)
        (tmp_path / "swept.toml").write_text(point["machine"] or "")
        made = load_machine(path)
        assert made.model_dump(exclude={"name"}) == one.design.machine.model_dump(exclude={"name"})
    unchanged = made_up(machine={"base": str(files[0])})
    for point in contents(make_sweep_page(unchanged))["stages"][0]:
        assert (point["machine"], point["loaded_from"]) == (None, str(files[0]))


def test_a_machine_that_its_kind_refuses_has_no_call() -> None:
    result = made_up(machine={"base": "nmp-4x8", "keys": {"memories.mb0_bytes": [512, 8]}})
    points = contents(make_sweep_page(result))["stages"][0]
    assert [point["loaded_from"] for point in points] == ["nmp-4x8", "nmp-4x8", None, None]
    assert [point["machine"] is None for point in points] == [False, False, True, True]


CLICKS = """<script>(function click() {
  if (document.body.dataset.ready !== "yes") return setTimeout(click, 30);
  Page.figure("marks").selected.indices = [Page.figure("marks").data.design.indexOf(2)];
  limit();
})();
function limit() {
  if (document.getElementById("point").hidden) return setTimeout(limit, 30);
  const from = document.getElementById("from-0");
  from.value = 1;
  from.dispatchEvent(new Event("input"));
  document.body.dataset.drawn = Page.figure("threads").data.xs.length;
}</script></body>"""


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
def test_a_browser_leads_from_a_point_to_its_profile(tmp_path: Path) -> None:
    result = made_up()
    third = result.stages[0][2]
    links: Links = {(third.design, "lenet"): "sweep.profiles/a.html"}
    path = tmp_path / "page.html"
    path.write_text(make_sweep_page(result, links).replace("</body>", CLICKS))
    dom = dom_of(path, "parallel")
    body = re.search(r"<body[^>]*>", dom)
    assert body is not None and 'data-ready="yes"' in body[0] and "data-error" not in body[0]
    assert 'data-painted="2"' in body[0]
    assert 'data-shown="4"' in body[0] and 'data-drawn="4"' in body[0]  # with two TLEs
    point = dom[dom.index('id="point"') :]
    assert third.design.name in point and f"{third.outcomes[0].cycles:,}" in point
    assert 'href="sweep.profiles/a.html"' in point and "mac.setup_cycles = 8" in point
    assert "tvm_npu.profile(models.build('lenet')" in point


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
def test_a_browser_shows_the_call_with_the_machine_s_file(tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.toml" for name in ("first", "other")]
    for file in files:
        file.write_text('extends = "nmp-4x8"\nname = "mine"\n')
    result = made_up(machine={"files": [str(file) for file in files]})
    path = tmp_path / "page.html"
    path.write_text(make_sweep_page(result).replace("</body>", CLICKS))
    point = dom_of(path, "parallel").split('id="point"')[1]
    call = f"tvm_npu.profile(models.build('lenet'), \"{files[1]}\", planner=\"exact\")"
    assert call in html.unescape(point)


EDGE = """<script>(function look() {
  if (document.body.dataset.ready !== "yes") return setTimeout(look, 30);
  const { x, y } = Page.figure("edge").data;
  document.body.dataset.edge = JSON.stringify(x.map((one, at) => [one, y[at]]));
})();</script></body>"""


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
def test_a_browser_joins_what_is_best_where_more_is_better(tmp_path: Path) -> None:
    """The first fidelity's designs, whose scores are all different."""
    search = {"objectives": ["cycles", "frames_per_s"], "require": ["macs > 0"]}
    result = made_up(search=search, fidelity=["predicted"])
    result = replace(result, stages=result.stages[:1])
    path = tmp_path / "page.html"
    page = make_sweep_page(result)
    path.write_text(page.replace("</body>", EDGE))
    found = re.search(r'data-edge="([^"]*)"', dom_of(path, "pareto"))
    assert found is not None
    best = sorted(one.scores for one in result.front_designs())
    assert len(best) == 1 and best[0][0] == min(one.scores[0] for one in result.stages[0])
    assert json.loads(html.unescape(found[1])) == [list(one) for one in best]
    assert "More is better in frames_per_s, less in all else" in page
    assert "each has what is required: macs &gt; 0" in page


def test_batches_and_accuracies_stand_on_the_page() -> None:
    images = {"lenet": {"images": "a.npz"}, EVIL: {"images": "b.npz"}}
    result = made_up(planners=["naive"], batches=[1, 4], accuracy=images)
    found = contents(make_sweep_page(result))
    assert found["columns"][-4:] == ["top1", "top5", "agreement", "sqnr_db"]
    (batch,) = (axis for axis in found["axes"] if axis["name"] == "batch")
    assert (batch["kind"], batch["values"]) == ("use", [1, 4])
    first, second = found["stages"][0][:2]
    assert (first["use"], second["use"]) == ("naive", "naive batch 4")
    assert len(first["rows"][0]) == len(found["columns"])
