// Draws the figures of the page and keeps them in the colours of its style, also when the scheme changes or it is printed.
// Figures name tones; a tone is the CSS variable of that name. Charts over the stream are zoomed together.
"use strict";
(() => {
  const root = document.documentElement;
  const charts = [...document.querySelectorAll(".chart")].map((element) => ({
    element,
    plot: element.querySelector(".plot"),
    figure: JSON.parse(element.querySelector("script").textContent),
    overStream: element.hasAttribute("data-over-stream"),
  }));
  const config = {
    responsive: true,
    displaylogo: false,
    displayModeBar: matchMedia("(hover: hover)").matches ? "hover" : false,
    // The default buttons include one that sends the chart to a cloud service.
    modeBarButtons: [["zoom2d", "pan2d", "resetScale2d", "toImage"]],
    toImageButtonOptions: { format: "svg" },
  };

  function paint(chart) {
    const style = getComputedStyle(root);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const { data, layout } = chart.figure;
    for (const trace of data) {
      const tone = colour(trace.meta.tone);
      trace.line = { ...trace.line, color: tone };
      trace.marker = { ...trace.marker, color: tone };
      if (trace.type === "bar") delete trace.line;
      if (trace.stackgroup) trace.fillcolor = `${tone}a0`;
    }
    layout.font = { family: style.fontFamily, size: 12, color: colour("quiet") };
    layout.hoverlabel = { bgcolor: colour("page"), bordercolor: colour("rule"), font: { color: colour("ink") } };
    layout.modebar = { bgcolor: "rgba(0,0,0,0)", color: colour("quiet"), activecolor: colour("ink") };
    layout.legend.font = { color: colour("ink") };
    for (const key of Object.keys(layout)) {
      if (/^[xy]axis/.test(key)) {
        Object.assign(layout[key], { gridcolor: colour("grid"), linecolor: colour("rule"), tickcolor: colour("rule") });
      }
    }
    return Plotly.react(chart.plot, data, layout, config);
  }

  const paintAll = () => charts.forEach(paint);

  let following = false;
  function zoomTogether(source, event) {
    const change = {};
    for (const [key, value] of Object.entries(event)) {
      const match = /^xaxis\d*\.(.+)$/.exec(key);
      if (match) change[`xaxis.${match[1]}`] = value;
    }
    if (following || Object.keys(change).length === 0) return;
    following = true;
    const others = charts.filter((chart) => chart.overStream && chart !== source);
    Promise.all(others.map((chart) => Plotly.relayout(chart.plot, change))).finally(() => {
      following = false;
    });
  }

  paintAll();
  for (const chart of charts) {
    if (chart.overStream) chart.plot.on("plotly_relayout", (event) => zoomTogether(chart, event));
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paintAll);

  // Paper is white and narrower than a screen.
  addEventListener("beforeprint", () => {
    root.classList.add("paper");
    charts.forEach((chart) => {
      paint(chart);
      Plotly.relayout(chart.plot, { width: 680 });
    });
  });
  addEventListener("afterprint", () => {
    root.classList.remove("paper");
    charts.forEach((chart) => {
      delete chart.plot.layout.width;
      chart.plot.layout.autosize = true;
      paint(chart);
    });
  });
})();
