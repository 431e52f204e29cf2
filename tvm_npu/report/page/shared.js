"use strict";
addEventListener("error", (event) => {
  if (event.message.startsWith("ResizeObserver loop")) return;  // no error: sizes settle a frame later
  document.body.dataset.error = event.message;
});
// What all pages with plots share: tabs, the theme's colours, and when plots are there.
const Page = (() => {
  const tabs = [...document.querySelectorAll("[role=tab]")];
  const panels = [...document.querySelectorAll("[role=tabpanel]")];
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

  const figure = (name) => Bokeh.documents.map((doc) => doc.get_model_by_name(name)).find((one) => one);

  // Plots would keep the window's width on paper: it gets copies, as wide as the paper.
  function copyPlots() {
    for (const copy of document.querySelectorAll(".plot .printed")) copy.remove();
    if (!printing) return;
    for (const view of Bokeh.index.roots) {
      const place = view.el.closest(".plot");
      if (!place) continue;  // Bokeh's own notes
      const { canvas } = view.export("png");
      canvas.className = "printed";
      place.append(canvas);
    }
  }

  const dark = matchMedia("screen and (prefers-color-scheme: dark)");
  let printing = false;
  function paint() {
    const colour = dark.matches && !printing ? "#e0e0e0" : "#222222";
    let painted = 0;
    for (const doc of Bokeh.documents) {
      for (const plot of doc.roots()) {
        painted += 1;
        for (const side of [plot.below, plot.left, plot.above]) {
          for (const part of side) {
            for (const key of ["axis_label_text_color", "major_label_text_color", "label_text_color",
              "axis_line_color", "major_tick_line_color", "minor_tick_line_color"]) {
              if (key in part) part[key] = colour;
            }
          }
        }
      }
    }
    document.body.dataset.painted = painted;
  }
  dark.addEventListener("change", paint);
  for (const when of ["beforeprint", "afterprint"]) {
    addEventListener(when, () => { printing = when === "beforeprint"; paint(); copyPlots(); });
  }
  const name = location.hash.slice(1);
  open(known(name) ? name : panels[0].id);
  addEventListener("load", () => {  // the browser has gone to the part: back to its tab
    if (known(name)) { open(name, true); scrollTo(0, 0); }
  });
  addEventListener("hashchange", () => { if (known(location.hash.slice(1))) open(location.hash.slice(1)); });
  function whenReady(plot, begin) {
    if (!window.Bokeh || !Bokeh.documents.length || !figure(plot)) return setTimeout(whenReady, 30, plot, begin);
    paint();
    begin();
    document.body.dataset.ready = "yes";
  }
  return { figure, show, whenReady };
})();
