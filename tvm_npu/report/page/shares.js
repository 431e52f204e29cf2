"use strict";
// Which unit made which part of a layer's output: a panel for each range of channels, in it rows
// down and columns across; or a bar, where tiles are ranges of channels alone.
const Shares = (() => {
  const SVG = "http://www.w3.org/2000/svg", MOST_PANELS = 64, MOST_ROWS = 200;
  const number = (value) => value.toLocaleString("en");
  const range = (from, to, name) => to - from === 1 ? `${name} ${from}` : `${name}s ${from} to ${to - 1}`;

  function element(name, attributes, ...children) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }
  const html = (name, text) => Object.assign(document.createElement(name), { textContent: text });

  // Rectangles of pieces of one tile, by range of channels: [panel, maker, tile, rows, columns].
  function pieces(share) {
    const [channels, rows, columns] = share.cuts, found = [];
    for (let c = 0; c < channels.length; c += 1) {
      const boxes = new Map();
      for (let r = 0; r < rows.length; r += 1) {
        for (let k = 0; k < columns.length; k += 1) {
          const at = (c * rows.length + r) * columns.length + k, tile = share.tile[at];
          const box = boxes.get(tile);
          if (!box) boxes.set(tile, { c, tile, maker: tile < 0 ? -1 : share.maker_of[tile], r, k, r1: r + 1, k1: k + 1, cells: [[r, k]] });
          else {
            [box.r, box.r1] = [Math.min(box.r, r), Math.max(box.r1, r + 1)];
            [box.k, box.k1] = [Math.min(box.k, k), Math.max(box.k1, k + 1)];
            box.cells.push([r, k]);
          }
        }
      }
      for (const box of boxes.values()) {
        if (box.cells.length === (box.r1 - box.r) * (box.k1 - box.k)) found.push(box);
        else for (const [r, k] of box.cells) found.push({ ...box, r, k, r1: r + 1, k1: k + 1 });
      }
    }
    return found;
  }

  function place(share, box) {
    const end = (axis, at) => share.cuts[axis][at] ?? share.shape[axis];
    return [[share.cuts[0][box.c], end(0, box.c + 1)], [share.cuts[1][box.r], end(1, box.r1)],
            [share.cuts[2][box.k], end(2, box.k1)]];
  }

  function words(share, box) {
    const [c, r, k] = place(share, box), flat = share.shape[1] * share.shape[2] === 1;
    const where = flat ? range(...c, "element")
      : `${range(...c, "channel")}, ${range(...r, "row")}, ${range(...k, "column")}`;
    const who = box.maker < 0 ? "nobody" : share.makers[box.maker];
    return box.tile < 0 ? `${where}: not stored by this layer`
      : `${who}${share.exact ? `, tile ${number(box.tile + 1)} of ${number(share.tiles)}` : ""}: ${where}`;
  }

  // Whether there was room for the number.
  function label(piece, shown, [left, right], [top, bottom]) {
    if (!shown || right - left < 9 * shown.length + 3 || bottom - top < 14) return false;
    piece.append(element("text", { x: (left + right) / 2, y: (top + bottom) / 2 + 4, class: "small" }, shown));
    return true;
  }

  // One drawing; `boxes` get their rectangles.
  function drawing(share, boxes, x, y, width, height) {
    const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" });
    const whole = new Map();
    for (const box of boxes) {
      const [left, right] = x(box), [top, bottom] = y(box);
      const shown = box.maker < 0 ? "" : share.makers[box.maker].split(" ").pop();
      const hue = box.maker < 0 ? 0 : Math.round(box.maker * 137.5) % 360;
      const rectangle = element("rect", { x: left, y: top, width: Math.max(right - left, 0.5),
        height: Math.max(bottom - top, 0.5), class: box.maker < 0 ? "piece none" : "piece", style: `--hue:${hue}` });
      rectangle.append(element("title", {}, words(share, box)));
      box.rectangle = rectangle;
      const piece = element("g", {}, rectangle), fits = label(piece, shown, [left, right], [top, bottom]);
      svg.append(piece);
      const one = whole.get(box.maker) ?? { piece, shown, fits: false, area: 0, x: [left, right], y: [top, bottom] };
      whole.set(box.maker, { ...one, piece, fits: one.fits || fits, area: one.area + (right - left) * (bottom - top),
        x: [Math.min(one.x[0], left), Math.max(one.x[1], right)], y: [Math.min(one.y[0], top), Math.max(one.y[1], bottom)] });
    }
    for (const { piece, shown, fits, area, x: across, y: down } of whole.values()) {  // tiles too small for a number
      const full = area > 0.98 * (across[1] - across[0]) * (down[1] - down[0]);
      if (!fits && full) label(piece, shown, across, down);
    }
    return svg;
  }

  function panels(share, boxes, room) {
    const [channels, rows, columns] = share.shape;
    const place_ = (axis, from, to, size, extent) =>
      [from, to].map((at) => size * (share.cuts[axis][at] ?? extent) / extent);
    if (share.cuts[1].length * share.cuts[2].length === 1) {
      const bar = drawing(share, boxes, (box) => place_(0, box.c, box.c + 1, room, channels),
        () => [0, 40], room, 40);
      return [[`all ${number(channels)} ${rows * columns === 1 ? "elements" : "channels"}, from left to right`, bar]];
    }
    const count = Math.min(share.cuts[0].length, MOST_PANELS);
    const width = Math.min(room, count === 1 ? 340 : count <= 4 ? 200 : 124);
    const height = Math.round(Math.min(Math.max(width * rows / columns, 24), 1.5 * width));
    return share.cuts[0].slice(0, count).map((from, c) => [
      range(from, share.cuts[0][c + 1] ?? channels, "channel"),
      drawing(share, boxes.filter((box) => box.c === c), (box) => place_(2, box.k, box.k1, width, columns),
        (box) => place_(1, box.r, box.r1, height, rows), width, height)]);
  }

  function table(share) {
    const rows = share.made.slice(0, MOST_ROWS).map(([tiles, percent], maker) => {
      const row = document.createElement("tr"), name = html("th", share.makers[maker]);
      name.scope = "row";
      const cells = [number(tiles), `${percent.toFixed(1)} %`].map((text) => html("td", text));
      for (const cell of cells) cell.className = "n";
      row.append(name, ...cells);
      return row;
    });
    const made = document.createElement("table"), head = document.createElement("tr");
    head.append(...["unit", "tiles", "of the output"].map((text, k) =>
      Object.assign(html("th", text), { scope: "col", className: k ? "n" : "" })));
    made.append(document.createElement("thead"), document.createElement("tbody"));
    made.tHead.append(head); made.tBodies[0].append(...rows);
    const details = document.createElement("details");
    details.append(html("summary", "how much each unit makes"), made);
    return details;
  }

  function picture(share, room) {
    const boxes = pieces(share).sort((a, b) => a.tile - b.tile || a.c - b.c);
    const drawn = panels(share, boxes, room), shown = boxes.filter((box) => box.rectangle);
    const chooser = document.createElement("div"), text = html("p", "");
    chooser.className = "shares";
    Object.assign(chooser, { tabIndex: 0, role: "slider", ariaLabel: `tiles of ${share.tensor}, in the order of their stores`,
      ariaValueMin: "1", ariaValueMax: String(shown.length) });
    let now = 0;
    const choose = (at) => {
      shown[now].rectangle.classList.remove("chosen");
      now = Math.min(Math.max(at, 0), shown.length - 1);
      shown[now].rectangle.classList.add("chosen");
      text.textContent = words(share, shown[now]);
      Object.assign(chooser, { ariaValueNow: String(now + 1), ariaValueText: text.textContent });
    };
    chooser.addEventListener("keydown", (event) => {
      const to = { ArrowRight: now + 1, ArrowDown: now + 1, ArrowLeft: now - 1, ArrowUp: now - 1,
        Home: 0, End: shown.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      choose(to);
    });
    shown.forEach((box, at) => box.rectangle.addEventListener("pointerenter", () => choose(at)));
    for (const [title, svg] of drawn) {
      const panel = document.createElement("div");
      panel.append(svg, html("span", title));
      chooser.append(panel);
    }
    choose(0);
    const size = share.shape.map(number).join(" x ");
    const intro = `The output ${share.tensor}, ${size} (channels, rows, columns), in ${number(share.tiles)} ` +
      `tile${share.tiles === 1 ? "" : "s"} by ${share.makers.length} unit${share.makers.length === 1 ? "" : "s"}.` +
      (share.exact ? "" : " The picture is coarser than the tiles are.") +
      (share.cuts[0].length > drawn.length && drawn.length === MOST_PANELS
        ? ` Shown are the first ${MOST_PANELS} of ${share.cuts[0].length} ranges of channels.` : "");
    return [html("p", intro), chooser, text, table(share)];
  }

  function draw(shares) {
    const target = document.getElementById("shares");
    const room = Math.min(Math.max(target.clientWidth || 340, 240), 720);
    const drawn = shares.flatMap((share) => picture(share, room));
    target.replaceChildren(...(drawn.length ? drawn
      : [html("p", "It is not known which bytes this layer's stores write, or it stores nothing.")]));
  }
  return { draw };
})();
