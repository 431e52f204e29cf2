"""The page in a browser: by keyboard, for screen readers, in both themes, narrow, and printed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("bokeh")
pytest.importorskip("jinja2")
pytest.importorskip("onnx")

from tests.browser import BROWSER, Tab, browser  # noqa: E402
from tests.report.small_runs import profiled, recorded  # noqa: E402
from tvm_npu.report.model_graph import ModelGraph, Node  # noqa: E402
from tvm_npu.report.page import make_page  # noqa: E402

pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs Chromium")

TABS = (
    "Summary", "Placement", "Graph", "Layers", "Roofline", "Plans and tiles", "Memory",
    "Accuracy", "Comparison",
)  # fmt: skip
OPEN = """[...document.querySelectorAll('[role=tabpanel]')]
    .filter((one) => getComputedStyle(one).visibility === 'visible').map((one) => one.id)"""
FOCUS = """(() => { const one = document.activeElement, style = getComputedStyle(one);
    return {tag: one.tagName, text: one.textContent.trim(), id: one.id,
            panel: one.closest('[role=tabpanel]')?.id ?? '',
            outline: style.outlineStyle === 'none' ? 0 : parseFloat(style.outlineWidth)}; })()"""
CONTRAST = """(() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => {
    const [r, g, b] = numbers(colour).slice(0, 3).map((one) => one / 255)
      .map((one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) =>
    (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const behind = (element) => {
    const box = element.closest('g')?.querySelector('rect');
    if (box) return getComputedStyle(box).fill;
    for (let one = element; one; one = one.parentElement) {
      const colour = getComputedStyle(one).backgroundColor;
      if ((numbers(colour)[3] ?? 1) === 1) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const back = getComputedStyle(document.body).backgroundColor, found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.data.trim(), element = walker.currentNode.parentElement;
    if (!text || ['SCRIPT', 'STYLE', 'TITLE'].includes(element.tagName.toUpperCase())) continue;
    const style = getComputedStyle(element), svg = element instanceof SVGElement;
    found.push([ratio(svg ? style.fill : style.color, behind(element)), text]);
  }
  const painted = [];
  for (const plot of Bokeh.documents.flatMap((one) => one.roots())) {
    for (const part of [...plot.below, ...plot.left, ...plot.above]) {
      for (const key of ['axis_label_text_color', 'major_label_text_color', 'label_text_color',
                         'axis_line_color', 'major_tick_line_color', 'minor_tick_line_color']) {
        if (typeof part[key] !== 'string') continue;
        const hex = part[key].slice(1).match(/../g).map((one) => parseInt(one, 16));
        painted.push([ratio(`rgb(${hex.join(',')})`, back), `${plot.name}: ${key}`]);
      }
    }
  }
  return [...found, ...painted];
})()"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of a page with all its parts."""
    profile = profiled("nmp")
    nodes = [Node(row.name, (row.kind,), number) for number, row in enumerate(profile.layers)]
    nodes += [Node("soft", ("Softmax",), None, on_cpu=True), Node("flat", ("Flatten",), None)]
    edges = [(n, n + 1) for n in range(len(nodes) - 1)]
    for side in range(4):  # a row that is wider than a telephone
        edges.append((0, len(nodes)))
        nodes.append(Node(f"side{side}", ("Cos",), None, on_cpu=True))
    graph = ModelGraph(tuple(nodes), tuple(edges))
    noises = {("region", row.name): (30.0, 25.5) for row in profile.layers}
    other = profiled("setup-a").to_dict()
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(make_page(profile, [recorded("nmp")], graph, noises, [other]))
    return f"file://{path}"


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


def opened(tab: Tab, address: str, **options: Any) -> Tab:
    tab.open(address, **options)
    tab.wait("document.body.dataset.ready === 'yes'")
    return tab


def test_every_part_is_reached_by_arrow_keys(tab: Tab, address: str) -> None:
    opened(tab, address)
    tab.press("Tab")
    seen = []
    for _ in TABS:
        found = tab.run(FOCUS)
        (panel,) = tab.run(OPEN)
        title = tab.run(f"document.getElementById('tab-{panel}').textContent.trim()")
        assert title == found["text"]
        assert found["outline"] >= 2  # the focus is seen
        seen.append(found["text"])
        tab.press("ArrowRight")
    assert tuple(seen) == TABS and tab.run(FOCUS)["text"] == TABS[0]
    for key, name in (("End", TABS[-1]), ("ArrowRight", TABS[0]), ("ArrowLeft", TABS[-1]),
                      ("Home", TABS[0])):  # fmt: skip
        tab.press(key)
        assert tab.run(FOCUS)["text"] == name, key
    assert tab.complaints == []


def test_a_page_opened_at_a_part_begins_at_its_tab(tab: Tab, address: str) -> None:
    opened(tab, f"{address}#plans")
    assert tab.run(OPEN) == ["plans"]
    plans = tab.run("document.getElementById('tab-plans').textContent.trim()")
    assert tab.run(FOCUS)["text"] == plans
    assert tab.run("scrollY") == 0
    tab.press("ArrowLeft")
    assert tab.run(FOCUS)["text"] == TABS[TABS.index(plans) - 1]


def test_the_tab_key_goes_into_the_part_and_a_layer_leads_to_its_plan(
    tab: Tab, address: str
) -> None:
    opened(tab, address)
    for key in ("Tab", "ArrowRight", "ArrowRight", "Tab"):
        tab.press(key)
    assert tab.run(FOCUS)["id"] == "graph"
    for _ in range(2):  # to the first layer, to the second
        tab.press("Tab")
    found = tab.run(FOCUS)
    assert (found["tag"], found["panel"]) == ("a", "graph") and found["outline"] >= 2
    tab.press("Enter")
    assert tab.run(OPEN) == ["plans"]
    assert tab.run("document.getElementById('layer').value") == "1"
    shown = """[...document.querySelectorAll('.plan')]
        .filter((one) => !one.hidden).map((one) => one.id)"""
    assert tab.run(shown) == ["plan-1"]


TILES = """[...document.querySelectorAll('#shares .piece')].map((one) => {
  const {x, y, width, height} = one.getBoundingClientRect();
  return [one.querySelector('title').textContent, Math.round(width * height),
          x >= 0 && x + width <= innerWidth, one.classList.contains('chosen')];
})"""


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_tiles_are_drawn_over_the_units_that_made_them(
    tab: Tab, address: str, width: int, scheme: str
) -> None:
    opened(tab, f"{address}#plans", width=width, scheme=scheme)
    tiles = tab.run(TILES)
    makers = {text.split(",")[0] for text, *_ in tiles}
    assert makers == {f"core {number}" for number in range(4)}
    assert all(area > 0 and inside for _, area, inside, _ in tiles)
    tab.run("document.querySelector('.shares').focus()")
    assert tab.run(FOCUS)["outline"] >= 2
    told = "document.querySelector('.shares').ariaValueText"
    for at, key in ((1, "ArrowRight"), (len(tiles) - 1, "End"), (0, "Home")):
        tab.press(key)
        (chosen,) = [text for text, *_, chosen in tab.run(TILES) if chosen]
        assert tab.run(told) == chosen and f"tile {at + 1} of {len(tiles)}:" in chosen
    table = "[...document.querySelectorAll('#shares tbody th')].map((one) => one.textContent)"
    assert set(tab.run(table)) == makers
    assert tab.complaints == []


def test_a_screen_reader_is_told_of_tabs_tables_and_figures(tab: Tab, address: str) -> None:
    opened(tab, address)
    roles = tab.roles()
    assert [name for role, name, _ in roles if role == "tab"] == list(TABS)
    assert [name for role, name, of in roles if role == "tab" and of.get("selected")] == ["Summary"]
    assert [name for role, name, _ in roles if role == "tablist"] == ["parts of the report"]
    for name in TABS:
        tab.run(f"""[...document.querySelectorAll('[role=tab]')]
            .find((one) => one.textContent.trim() === '{name}').click()""")
        told = tab.roles()
        assert [one for role, one, _ in told if role == "tabpanel"] == [name]
        assert [one for role, one, _ in told if role == "heading"][1:], name
        for role, title, _ in told:
            assert role not in ("figure", "link", "combobox", "button") or title, (name, role)
    bare = """[...document.querySelectorAll('table')].filter((table) =>
        !table.querySelector('thead th[scope=col]') ||
        [...table.querySelectorAll('tbody tr')].some((row) => !row.querySelector('th[scope=row]'))
    ).length"""
    assert tab.run(bare) == 0
    plots = "[...document.querySelectorAll('.plot')].map((one) => one.ariaLabel ?? '')"
    assert all(tab.run(plots)) and tab.run("document.documentElement.lang") == "en"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out(tab: Tab, address: str, scheme: str) -> None:
    """4.5 to 1 is what the Web Content Accessibility Guidelines ask for at level AA."""
    opened(tab, address, scheme=scheme)
    found = tab.run(CONTRAST)
    assert len(found) > 100
    assert [one for one in found if one[0] < 4.5] == []
    dark = tab.run("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert dark == (scheme == "dark")


@pytest.mark.parametrize("width", [390, 1280])
def test_no_part_is_wider_than_the_window(tab: Tab, address: str, width: int) -> None:
    opened(tab, address, width=width)
    for panel in tab.run("[...document.querySelectorAll('[role=tabpanel]')].map((one) => one.id)"):
        tab.run(f"document.getElementById('tab-{panel}').click()")
        assert tab.run("document.documentElement.scrollWidth") <= width, panel
    tab.run("document.getElementById('tab-graph').click()")
    box = "document.querySelector('#graph rect').getBoundingClientRect()"
    assert tab.run(f"{box}.left") >= 0 and tab.run(f"{box}.right") <= width
    assert tab.complaints == []


def test_all_parts_are_printed(tab: Tab, address: str) -> None:
    opened(tab, address, width=760, scheme="dark")  # a page of A4, of a reader of dark pages
    tab.media("dark", "print")
    tab.wait("getComputedStyle(document.querySelector('[role=tablist]')).display === 'none'")
    assert tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert len(tab.run(OPEN)) == len(TABS)
    assert [one for one in tab.run(CONTRAST) if one[0] < 4.5] == []
    wide = """[...document.querySelectorAll('table, svg')].filter((one) =>
        one.getBoundingClientRect().right > innerWidth + 1)
        .map((one) => one.closest('section').id)"""
    assert tab.run(wide) == []
    tab.media()


COPIES = """[...document.querySelectorAll('.plot')].map((plot) => {
  const shown = [...plot.children].filter((one) => getComputedStyle(one).display !== 'none');
  if (shown.length !== 1 || !shown[0].matches('canvas.printed')) return plot.ariaLabel;
  const [copy] = shown, box = copy.getBoundingClientRect();
  const dots = copy.getContext('2d').getImageData(0, 0, copy.width, copy.height).data;
  let ink = 0;  // dots as dark as text on paper
  for (let k = 0; k < dots.length; k += 4)
    ink += dots[k + 3] > 200 && dots[k] < 80 && dots[k + 1] < 80 && dots[k + 2] < 80;
  return box.right <= innerWidth + 1 && box.height > 100 && ink > 50 ? '' : plot.ariaLabel + ink;
})"""


def test_plots_are_printed_as_wide_as_the_paper_and_dark_on_white(tab: Tab, address: str) -> None:
    opened(tab, address, scheme="dark")
    tab.run("dispatchEvent(new Event('beforeprint'))")
    tab.call("Emulation.setDeviceMetricsOverride", width=760, height=900, deviceScaleFactor=1,
             mobile=False)  # fmt: skip
    tab.media("dark", "print")
    found = tab.run(COPIES)
    assert len(found) == 6 and not any(found)
    tab.media("dark")
    tab.run("dispatchEvent(new Event('afterprint'))")
    assert tab.run("document.querySelectorAll('.printed').length") == 0
    assert tab.complaints == []
