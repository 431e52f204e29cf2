"use strict";
(() => {
  const { figure, show, whenReady } = Page;
  const COLOURS = ["#4477aa", "#cc8833", "#228855", "#aa4488", "#66aacc", "#777777"];
  const layers = JSON.parse(document.getElementById("timelines").textContent);
  const chooser = document.getElementById("layer");
  for (const link of document.querySelectorAll("a[data-layer]")) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      chooser.value = link.dataset.layer;
      show("plans", true);
      choose();
    });
  }

  // A wide graph begins in the middle, where the first box is.
  const graph = document.querySelector("#graph .wide"), first = graph?.querySelector("rect");
  if (first) graph.scrollLeft = Number(first.getAttribute("x")) + 95 - graph.clientWidth / 2;

  function choose() {
    const number = Number(chooser.value);
    for (const plan of document.querySelectorAll(".plan")) plan.hidden = plan.id !== "plan-" + number;
    Shares.draw(layers[number].shares);
    const layer = layers[number], units = [...layer.units].reverse();
    const plot = figure("timeline"), source = figure("slices"), tiles = new Map();
    const columns = { y: [], left: [], right: [], colour: [], alpha: [], label: [], tile: [], unit: [] };
    for (const [unit, begin, cycles, waits, label, tile] of layer.slices) {
      const key = tile || label.split(" ")[0];
      if (!waits && !tiles.has(key)) tiles.set(key, COLOURS[tiles.size % (COLOURS.length - 1)]);
      columns.y.push(layer.units[unit]); columns.unit.push(layer.units[unit]);
      columns.left.push(begin); columns.right.push(begin + cycles);
      columns.colour.push(waits ? "#999999" : tiles.get(key)); columns.alpha.push(waits ? 0.15 : 0.9);
      columns.label.push(label); columns.tile.push(tile || "–");
    }
    plot.y_range.factors = units.length ? units : ["-"];
    plot.height = Math.max(160, 90 + 17 * units.length);
    source.data = columns;
    plot.x_range.setv({ start: 0, end: Math.max(1, ...columns.right) });
    const work = layer.slices.filter((one) => !one[3]).length;
    document.getElementById("timeline-text").textContent = layer.slices.length
      ? `The layer's first ${layer.slices.length.toLocaleString("en")} of ` +
        `${layer.all.toLocaleString("en")} events: ${work} of work, each colour a tile (or a kind ` +
        `of instruction, where the machine does not name tiles), the others waits, in grey.`
      : "Nothing was recorded for this layer.";
    const shares = { xs: [], ys: [], part: [], colour: [] };
    Object.entries(layer.memory).forEach(([part, share], k) => {
      shares.xs.push(share.map((_, step) => (step + 0.5) * layer.cycles / share.length));
      shares.ys.push(share); shares.part.push(part); shares.colour.push(COLOURS[k % COLOURS.length]);
    });
    figure("shares").data = shares;
    figure("fill").x_range.setv({ start: 0, end: Math.max(1, layer.cycles ?? 1) });
  }
  chooser.addEventListener("change", choose);
  whenReady("timeline", choose);
})();
