"use strict";
(() => {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const narrow = matchMedia("(max-width: 40rem)");
  const mostHovered = () => (narrow.matches ? 8 : 16); // a box with the values of more lines would cover the chart
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
      const visible = !hidden.names.has(line.name) && !hidden.dashes.has(line.dash);
      const shared = { type: "scatter", visible, showlegend: false };
      if (line.band) {
        bands.push({ ...shared, ...line.band, mode: "lines", line: { width: 0 }, fill: "toself",
          fillcolor: faint(colour), hoverinfo: "skip" });
      }
      const meaning = chart.dashes[line.dash];
      const name = chart.names[line.name] + (meaning ? `, ${meaning}` : "");
      lines.push({ ...shared, name: literal(name), x: line.x, y: line.y,
        mode: line.points ? "markers" : line.x.length > 30 ? "lines" : "lines+markers",
        ...(line.spread ? { error_y: { type: "data", symmetric: false, array: line.spread.high,
          arrayminus: line.spread.low, color: colour, width: 0, thickness: 1.5 } } : {}),
        line: { color: colour, dash: line.dash, width: 2 }, marker: { color: colour, size: line.points ? 8 : 5 } });
    }
    return [...bands, ...lines];
  }

  function axis({ title, log, range, ticks, labels }, text, rule) {
    return { title: { text: literal(title), standoff: 8, font: { size: 13 } }, type: log ? "log" : "linear",
      ...(ticks ? { tickvals: ticks, ticktext: labels.map(literal) } : {}),
      ...(range ? { range: log ? range.map(Math.log10) : range } : {}),
      exponentformat: "power", hoverformat: ".4~g", automargin: true, gridcolor: rule, linecolor: rule, zerolinecolor: rule,
      ticklabeloverflow: "hide past div", color: text, minor: { ticks: "", showgrid: false } };
  }

  function layout(chart, place) {
    const { color: text, borderTopColor: rule, backgroundColor: page } = getComputedStyle(place);
    return { autosize: true, uirevision: "kept", showlegend: false, paper_bgcolor: page, plot_bgcolor: page,
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: text },
      margin: { l: 8, r: 12, t: 8, b: 8, autoexpand: true },
      hovermode: chart.lines.length > mostHovered() ? "closest" : "x unified",
      hoverlabel: { bgcolor: page.replace("rgb(", "rgba(").replace(")", ",0.9)"), bordercolor: rule, namelength: -1,
        font: { color: getComputedStyle(document.body).color, size: 12 } },
      dragmode: narrow.matches ? false : "zoom",
      xaxis: axis(chart.x, text, rule), yaxis: axis(chart.y, text, rule) };
  }

  const figures = [...document.querySelectorAll("figure.chart")].map((figure) => {
    const chart = JSON.parse(figure.querySelector("script").textContent);
    const place = figure.querySelector(".plot");
    const hidden = { names: new Set(), dashes: new Set() };
    const draw = () => Plotly.react(place, traces(chart, hidden, isDark()), layout(chart, place),
      { displayModeBar: false, responsive: true, displaylogo: false });

    // One group of buttons for the names, one for the kinds of lines; each button hides or shows its lines.
    const connect = (attribute, off, read) => {
      const buttons = [...figure.querySelectorAll(`.legend button[data-${attribute}]`)];
      const values = buttons.map((button) => read(button.dataset[attribute]));
      const update = () => {
        buttons.forEach((button, index) => button.setAttribute("aria-pressed", String(!off.has(values[index]))));
        draw();
      };
      buttons.forEach((button, index) => {
        const value = values[index];
        button.title = "Click to hide or show; double click for this alone";
        button.addEventListener("click", () => {
          if (!off.delete(value)) off.add(value);
          update();
        });
        // By then both of its clicks have undone each other.
        button.addEventListener("dblclick", () => {
          const alone = !off.has(value) && off.size === buttons.length - 1;
          off.clear();
          if (!alone) values.forEach((other) => other !== value && off.add(other));
          update();
        });
      });
    };
    connect("name", hidden.names, Number);
    connect("dash", hidden.dashes, String);
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

  // What continues to the right fades out there.
  document.querySelectorAll(".scroll").forEach((box) => {
    const update = () => box.classList.toggle("more", box.scrollLeft + box.clientWidth < box.scrollWidth - 2);
    box.addEventListener("scroll", update, { passive: true });
    new ResizeObserver(update).observe(box);
  });

  // A link to a run opens it.
  const reveal = () => {
    const target = document.getElementById(location.hash.slice(1));
    if (target instanceof HTMLDetailsElement) target.open = true;
  };
  addEventListener("hashchange", reveal);
  reveal();
})();
