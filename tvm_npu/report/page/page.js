"use strict";
addEventListener("error", (event) => { document.body.dataset.error = event.message; });
(() => {
  const COLOURS = ["#4477aa", "#cc8833", "#228855", "#aa4488", "#66aacc", "#777777"];
  const layers = JSON.parse(document.getElementById("timelines").textContent);
  const tabs = [...document.querySelectorAll("[role=tab]")];
  const panels = [...document.querySelectorAll("[role=tabpanel]")];
  const chooser = document.getElementById("layer");
  document.body.classList.add("scripted");

  function open(name, focus) {
    for (const tab of tabs) {
      const mine = tab.getAttribute("aria-controls") === name;
      tab.setAttribute("aria-selected", String(mine));
      tab.tabIndex = mine ? 0 : -1;
      if (mine && focus) tab.focus();
    }
    for (const panel of panels) panel.classList.toggle("open", panel.id === name);
  }
  const known = (name) => panels.some((panel) => panel.id === name);
  const show = (name, focus) => { open(name, focus); history.replaceState(null, "", "#" + name); };
  for (const tab of tabs) tab.addEventListener("click", () => show(tab.getAttribute("aria-controls")));
  document.querySelector("[role=tablist]").addEventListener("keydown", (event) => {
    const now = tabs.findIndex((tab) => tab.getAttribute("aria-selected") === "true");
    const to = { ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    show(tabs[(to + tabs.length) % tabs.length].getAttribute("aria-controls"), true);
  });
  for (const link of document.querySelectorAll("a[data-layer]")) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      chooser.value = link.dataset.layer;
      show("plans", true);
      choose();
    });
  }

  const figure = (name) => Bokeh.documents.map((doc) => doc.get_model_by_name(name)).find((one) => one);
  function choose() {
    const number = Number(chooser.value);
    for (const plan of document.querySelectorAll(".plan")) plan.hidden = plan.id !== "plan-" + number;
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

  const dark = matchMedia("(prefers-color-scheme: dark)");
  function paint() {
    const colour = dark.matches && !matchMedia("print").matches ? "#e0e0e0" : "#222222";
    let painted = 0;
    for (const doc of Bokeh.documents) {
      for (const plot of doc.roots()) {
        painted += 1;
        for (const side of [plot.below, plot.left, plot.above]) {
          for (const part of side) {
            for (const key of ["axis_label_text_color", "major_label_text_color", "label_text_color"]) {
              if (key in part) part[key] = colour;
            }
          }
        }
      }
    }
    document.body.dataset.painted = painted;
  }
  dark.addEventListener("change", paint);
  const name = location.hash.slice(1);
  open(known(name) ? name : "summary");
  addEventListener("load", () => {  // the browser has gone to the part: back to where its tab is
    if (known(name)) { document.activeElement.blur(); scrollTo(0, 0); }
  });
  addEventListener("hashchange", () => { if (known(location.hash.slice(1))) open(location.hash.slice(1)); });
  (function whenReady() {
    if (!window.Bokeh || !Bokeh.documents.length || !figure("timeline")) return setTimeout(whenReady, 30);
    paint();
    choose();
    document.body.dataset.ready = "yes";
  })();
})();
