"use strict";
(() => {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const narrow = matchMedia("(max-width: 40rem)");
  const many = () => (narrow.matches ? 8 : 16); // lines: a box with the values of more would cover the chart
  const chosen = () => document.documentElement.dataset.theme;
  const isDark = () => (chosen() ? chosen() === "dark" : system.matches);

  // Plotly reads a little HTML in texts; here none is meant.
  const literal = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  const faint = (colour) => {
    const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
    return `rgba(${red},${green},${blue},0.15)`;
  };

  function traces(chart, hidden, dark) {
    const bands = [];
    const lines = [];
    for (const line of chart.lines) {
      const colour = dark ? line.dark : line.light;
      const shared = { type: "scatter", visible: !hidden.has(line.name), showlegend: false };
      if (line.band) {
        bands.push({ ...shared, ...line.band, mode: "lines", line: { width: 0 }, fill: "toself",
          fillcolor: faint(colour), hoverinfo: "skip" });
      }
      lines.push({ ...shared, name: literal(chart.names[line.name]), x: line.x, y: line.y,
        mode: line.x.length > 30 ? "lines" : "lines+markers",
        line: { color: colour, dash: line.dash, width: 2 }, marker: { color: colour, size: 5 } });
    }
    return [...bands, ...lines];
  }

  function axis({ title, log, range, ticks }, text, rule) {
    return { title: { text: literal(title), standoff: 8, font: { size: 13 } }, type: log ? "log" : "linear",
      ...(ticks ? { tickvals: ticks, ticktext: ticks.map(String) } : {}),
      ...(range ? { range: log ? range.map(Math.log10) : range } : {}),
      exponentformat: "power", hoverformat: ".4~g", automargin: true, gridcolor: rule, linecolor: rule, zerolinecolor: rule,
      ticklabeloverflow: "hide past div", color: text, minor: { ticks: "", showgrid: false } };
  }

  function layout(chart, place) {
    const { color: text, borderTopColor: rule, backgroundColor: page } = getComputedStyle(place);
    return { autosize: true, uirevision: "kept", showlegend: false, paper_bgcolor: page, plot_bgcolor: page,
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: text },
      margin: { l: 8, r: 12, t: 8, b: 8, autoexpand: true },
      hovermode: chart.lines.length > many() ? "closest" : "x unified",
      hoverlabel: { bgcolor: page.replace("rgb(", "rgba(").replace(")", ",0.9)"), bordercolor: rule, namelength: -1,
        font: { color: getComputedStyle(document.body).color, size: 12 } },
      dragmode: narrow.matches ? false : "zoom",
      xaxis: axis(chart.x, text, rule), yaxis: axis(chart.y, text, rule) };
  }

  const figures = [...document.querySelectorAll("figure.chart")].map((figure) => {
    const chart = JSON.parse(figure.querySelector("script").textContent);
    const place = figure.querySelector(".plot");
    const buttons = [...figure.querySelectorAll(".legend button")];
    const hidden = new Set();
    const draw = () => Plotly.react(place, traces(chart, hidden, isDark()), layout(chart, place),
      { displayModeBar: false, responsive: true, displaylogo: false });
    const changed = () => {
      buttons.forEach((button, name) => button.setAttribute("aria-pressed", String(!hidden.has(name))));
      draw();
    };
    buttons.forEach((button, name) => {
      button.title = "Click to hide or show; double click for this alone";
      button.addEventListener("click", () => {
        if (!hidden.delete(name)) hidden.add(name);
        changed();
      });
      // By then both of its clicks have undone each other.
      button.addEventListener("dblclick", () => {
        const alone = !hidden.has(name) && hidden.size === buttons.length - 1;
        hidden.clear();
        if (!alone) buttons.forEach((_, other) => other !== name && hidden.add(other));
        changed();
      });
    });
    return draw;
  });

  const toggle = document.getElementById("theme");
  const redraw = () => {
    toggle.textContent = isDark() ? "Light" : "Dark";
    figures.forEach((draw) => draw());
  };
  toggle.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    redraw();
  });
  system.addEventListener("change", redraw);
  narrow.addEventListener("change", redraw);
  redraw();

  // A link to a run opens it.
  const reveal = () => {
    const target = document.getElementById(location.hash.slice(1));
    if (target instanceof HTMLDetailsElement) target.open = true;
  };
  addEventListener("hashchange", reveal);
  reveal();
})();
