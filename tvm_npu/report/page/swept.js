"use strict";
(() => {
  const { figure, whenReady } = Page;
  const sweep = JSON.parse(document.getElementById("sweep").textContent);
  const byId = (name) => document.getElementById(name);
  const COLOURS = { front: "#4477aa", other: "#888888", chosen: "#cc8833" };
  const stageOf = byId("stage"), across = byId("across"), up = byId("up");
  const limits = sweep.axes.map((axis, k) => ({ from: byId("from-" + k), to: byId("to-" + k), text: byId("span-" + k) }));
  const number = (value) => typeof value !== "number" ? (value ?? "–")
    : value.toLocaleString("en", { maximumSignificantDigits: 7 });
  const valueOf = (design, k) => design.at[k] === null ? null : sweep.axes[k].values[design.at[k]];
  const objective = (name) => sweep.axes.findIndex((axis) => axis.kind === "objective" && axis.name === name);
  let chosen = null;

  const points = () => sweep.stages[Number(stageOf.value)];
  const fits = (design) => limits.every(({ from, to }, k) => design.at[k] === null
    ? Number(from.value) === 0 && Number(to.value) === Number(to.max)
    : design.at[k] >= Number(from.value) && design.at[k] <= Number(to.value));
  const isLarge = (name) => sweep.large.includes(name);
  const use = (design) => design.use;
  const text = (design) => use(design) + "; " + sweep.objectives
    .map((name) => `${name} ${number(valueOf(design, objective(name)))}`).join(", ");
  const isChosen = (design) => chosen && design.name === chosen.name && use(design) === use(chosen);
  const colour = (design) => isChosen(design) ? COLOURS.chosen : design.front ? COLOURS.front : COLOURS.other;

  function drawFront(shown) {
    const [x, y] = [objective(across.value), objective(up.value)];
    const marks = { x: [], y: [], label: [], text: [], colour: [], size: [], design: [] };
    const placed = shown.filter(([design]) => design.at[x] !== null && design.at[y] !== null);
    for (const [design, at] of placed) {
      marks.x.push(valueOf(design, x)); marks.y.push(valueOf(design, y));
      marks.label.push(design.name); marks.text.push(text(design)); marks.colour.push(colour(design));
      marks.size.push(isChosen(design) ? 16 : design.front ? 11 : 6); marks.design.push(at);
    }
    figure("marks").selected.indices = [];
    figure("marks").data = marks;
    const edge = { x: [], y: [] };
    const [alongX, alongY] = [isLarge(across.value) ? -1 : 1, isLarge(up.value) ? -1 : 1];
    const ordered = placed.map(([design]) => [valueOf(design, x), valueOf(design, y)])
      .sort((a, b) => alongX * (a[0] - b[0]) || alongY * (a[1] - b[1]));
    for (const [ours, other] of ordered) {
      if (edge.y.length && alongY * (other - edge.y[edge.y.length - 1]) >= 0) continue;
      edge.x.push(ours); edge.y.push(other);
    }
    figure("edge").data = edge;
    const plot = figure("front");
    plot.below[0].axis_label = across.value; plot.left[0].axis_label = up.value;
  }

  function drawLines(shown) {
    const lines = { xs: [], ys: [], label: [], text: [], colour: [], width: [], design: [] };
    for (const [design, at] of shown) {
      const known = sweep.axes.map((_, k) => k).filter((k) => design.at[k] !== null);
      lines.xs.push(known); lines.ys.push(known.map((k) => sweep.axes[k].at[design.at[k]]));
      lines.label.push(design.name); lines.text.push(text(design)); lines.colour.push(colour(design));
      lines.width.push(isChosen(design) ? 5 : design.front ? 2.5 : 1); lines.design.push(at);
    }
    figure("threads").selected.indices = [];
    figure("threads").data = lines;
  }

  function draw() {
    limits.forEach(({ from, to, text: span }, k) => {
      const values = sweep.axes[k].values;
      span.textContent = values.length ? `${number(values[from.value])} to ${number(values[to.value])}` : "–";
    });
    const all = points().map((design, at) => [design, at]), shown = all.filter(([design]) => fits(design));
    shown.sort(([a], [b]) => Number(isChosen(a)) - Number(isChosen(b)) || Number(a.front) - Number(b.front));
    byId("shown").textContent = `${shown.length.toLocaleString("en")} of ${all.length.toLocaleString("en")} designs`;
    document.body.dataset.shown = shown.length;
    drawFront(shown);
    drawLines(shown);
    for (const row of document.querySelectorAll("tr[data-name]")) {
      row.hidden = !shown.some(([design]) => design.name === row.dataset.name && use(design) === row.dataset.use);
    }
  }

  function cell(row, kind, content) {
    const made = row.appendChild(document.createElement(kind));
    if (content instanceof Node) made.append(content); else made.textContent = content;
    if (kind === "td") made.className = "n";
    return made;
  }

  function choose(design) {
    chosen = design;
    byId("point").hidden = false;
    byId("point-name").textContent = `${design.name}, ${use(design)}`;
    const rows = byId("point-rows");
    rows.replaceChildren();
    sweep.models.forEach((model, k) => {
      const row = rows.appendChild(document.createElement("tr"));
      cell(row, "th", model).scope = "row";
      if (design.faults[k]) cell(row, "td", design.faults[k]).colSpan = sweep.columns.length;
      else design.rows[k].forEach((value) => cell(row, "td", number(value)));
      const address = design.profiles[k];
      const link = document.createElement("a");
      link.href = address; link.textContent = "open";
      cell(row, "td", address ? link : "–");
    });
    byId("point-machine").textContent = design.machine ?? "";
    byId("point-file").hidden = design.machine === null;
    byId("point-call").hidden = design.loaded_from === null;
    const how = [design.machine === null ? design.loaded_from : "swept.toml"].map((file) => JSON.stringify(file));
    how.push("planner=" + JSON.stringify(design.planner));
    if (design.precision) how.push("precision=" + JSON.stringify(design.precision));
    byId("point-command").textContent = "import tvm_npu\nfrom tvm_npu import models\n" + sweep.sources
      .map((source, k) => `tvm_npu.profile(${source}, ${how.join(", ")}).write_html("profile-${k + 1}.html")`).join("\n");
    draw();
  }

  for (const part of [stageOf, across, up]) part.addEventListener("change", draw);
  for (const { from, to } of limits) {
    from.addEventListener("input", () => { if (Number(from.value) > Number(to.value)) to.value = from.value; draw(); });
    to.addEventListener("input", () => { if (Number(to.value) < Number(from.value)) from.value = to.value; draw(); });
  }
  byId("all").addEventListener("click", () => {
    for (const { from, to } of limits) { from.value = 0; to.value = to.max; }
    draw();
  });
  for (const row of document.querySelectorAll("tr[data-name]")) {
    row.querySelector("button").addEventListener("click", () => {
      stageOf.value = sweep.stages.length - 1;
      choose(points().find((design) => design.name === row.dataset.name && use(design) === row.dataset.use));
      byId("point").scrollIntoView();
    });
  }
  addEventListener("design", (event) => choose(points()[event.detail]));
  across.value = sweep.objectives[0];
  up.value = sweep.objectives[Math.min(1, sweep.objectives.length - 1)];
  whenReady("lines", draw);
})();
