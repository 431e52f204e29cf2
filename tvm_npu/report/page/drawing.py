"""Where the nodes of a model's graph stand in the picture: rows by the longest way from the input,
edges as curves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tvm_npu.report.model_graph import ModelGraph, Node
from tvm_npu.report.page.numbers import decimal
from tvm_npu.report.profile import Profile

WIDTH, HEIGHT, GAP_X, GAP_Y = 190, 46, 24, 22
LONGEST_NAME = 22


@dataclass(frozen=True)
class Box:
    """A node in pixels; ``kind`` is its bound, ``cpu``, ``away`` without work of its own, or
    ``plain`` without the cycle model."""

    x: int
    y: int
    title: str
    name: str
    text: str
    kind: str
    layer: int | None


@dataclass(frozen=True)
class Drawing:
    """``curves`` are paths of SVG."""

    width: int
    height: int
    boxes: tuple[Box, ...]
    curves: tuple[str, ...]


def draw(
    graph: ModelGraph,
    profile: Profile,
    sqnr_db: Mapping[tuple[str, str], tuple[float | None, float | None]],
) -> Drawing:
    rows = _rows(graph)
    widest = max((len(row) for row in rows), default=1)
    width = max(widest * (WIDTH + GAP_X) + GAP_X, WIDTH + 4 * GAP_X)
    places: dict[int, tuple[int, int]] = {}
    for depth, row in enumerate(rows):
        first = (width - len(row) * (WIDTH + GAP_X) + GAP_X) // 2
        for column, number in enumerate(row):
            places[number] = first + column * (WIDTH + GAP_X), GAP_Y + depth * (HEIGHT + GAP_Y)
    boxes = tuple(
        _box(node, places[number], profile, sqnr_db) for number, node in enumerate(graph.nodes)
    )
    curves = tuple(_curve(places[one], places[other]) for one, other in graph.edges)
    return Drawing(width, GAP_Y + len(rows) * (HEIGHT + GAP_Y), boxes, curves)


def _rows(graph: ModelGraph) -> list[list[int]]:
    """Numbers of nodes by depth. A layer may stand behind nodes that come later in the model."""
    readers: dict[int, list[int]] = {}
    waiting = dict.fromkeys(range(len(graph.nodes)), 0)
    for one, other in graph.edges:
        readers.setdefault(one, []).append(other)
        waiting[other] += 1
    rows: list[list[int]] = []
    ready = [number for number, count in waiting.items() if not count]
    seen = set(ready)
    while ready:
        rows.append(ready)
        following = []
        for number in ready:
            for reader in readers.get(number, ()):
                waiting[reader] -= 1
                if not waiting[reader]:
                    following.append(reader)
        seen.update(following)
        ready = sorted(following)
    in_circles = [number for number in waiting if number not in seen]
    return [*rows, in_circles] if in_circles else rows


def _box(
    node: Node,
    place: tuple[int, int],
    profile: Profile,
    sqnr_db: Mapping[tuple[str, str], tuple[float | None, float | None]],
) -> Box:
    name = node.name
    if len(name) > LONGEST_NAME:
        name = f"{name[: LONGEST_NAME // 2 - 1]}…{name[-LONGEST_NAME // 2 :]}"
    operators = ", ".join(dict.fromkeys(node.operators))
    if node.layer is None and not node.on_cpu:
        title = f"{node.name}: {operators}, no work of its own"
        return Box(*place, title, name, "no work of its own", "away", None)
    if node.layer is None:
        title = f"{node.name}: {operators}, on the CPU"
        return Box(*place, title, name, f"CPU: {operators}"[:LONGEST_NAME], "cpu", None)
    row = profile.layers[node.layer]
    kind = "plain" if row.breakdown is None else row.breakdown.bound
    text = "" if row.time_us is None else f"{decimal(row.time_us)} us, {kind}"
    own = sqnr_db.get((row.region, row.name), (None, None))[0]
    noise = "" if own is None else f", {own:.1f} dB"
    title = f"{row.name}: {row.kind} of {operators}, {text or 'not timed'}{noise}"
    return Box(*place, title, name, f"{text}{noise}", kind, node.layer)


def _curve(one: tuple[int, int], other: tuple[int, int]) -> str:
    x0, y0 = one[0] + WIDTH // 2, one[1] + HEIGHT
    x1, y1 = other[0] + WIDTH // 2, other[1]
    far = abs(y1 - y0) > HEIGHT + 2 * GAP_Y
    if far and x0 == x1:  # around the boxes between
        side = x0 + WIDTH // 2
        return f"M{side},{y0 - HEIGHT // 2} C{side + 40},{y0} {side + 40},{y1} {side},{y1 + 12}"
    middle = (y0 + y1) // 2
    return f"M{x0},{y0} C{x0},{middle} {x1},{middle} {x1},{y1}"
