// What the page does beyond showing itself: numbers at the place a reader points at, and levels of the tree.
// Without it everything is still there: charts are drawn, legends hold the last values, cards of the tree open and close.
"use strict";
(() => {
  const charts = [...document.querySelectorAll(".chart > script")].map((script) => {
    const figure = script.parentElement;
    const keys = [...figure.querySelectorAll(".legend .key")];
    return {
      figure,
      ...JSON.parse(script.textContent),
      drawings: [...figure.querySelectorAll(".drawing")],
      where: figure.querySelector(".where"),
      outputs: keys.map((key) => key.querySelector("b")),
      ends: keys.map((key) => key.querySelector("b")?.textContent),
      together: figure.hasAttribute("data-over-stream") ? (figure.closest("article") ?? document.body) : null,
    };
  });

  function nearest(at, place) {
    let best = 0;
    for (let i = 1; i < at.length; i += 1) if (Math.abs(at[i] - place) < Math.abs(at[best] - place)) best = i;
    return best;
  }

  function read(chart, index) {
    chart.index = index;
    chart.where.textContent = index === null ? "" : chart.names[index];
    chart.outputs.forEach((output, k) => {
      if (output) output.textContent = (index === null ? null : chart.values[k][index]) ?? chart.ends[k];
    });
    for (const drawing of chart.drawings) {
      const cursor = drawing.querySelector(".cursor");
      cursor.hidden = index === null;
      if (index !== null) cursor.style.left = `${100 * chart.at[index]}%`;
    }
  }

  // Charts over one stream are read together.
  function readAt(chart, place) {
    for (const other of charts) {
      if (other === chart || (chart.together && other.together === chart.together)) {
        read(other, place === null ? null : nearest(other.at, place));
      }
    }
  }

  for (const chart of charts) {
    for (const drawing of chart.drawings) {
      drawing.addEventListener("pointermove", (event) => {
        const box = drawing.getBoundingClientRect();
        readAt(chart, (event.clientX - box.left) / box.width);
      });
      drawing.addEventListener("pointerleave", () => readAt(chart, null));
      drawing.addEventListener("blur", () => readAt(chart, null));
      drawing.addEventListener("keydown", (event) => {
        const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
        if (!step) return;
        event.preventDefault();
        const from = chart.index ?? (step < 0 ? chart.at.length : -1);
        readAt(chart, chart.at[Math.min(Math.max(from + step, 0), chart.at.length - 1)]);
      });
    }
  }

  for (const bar of document.querySelectorAll(".levels")) {
    const trees = [...bar.parentElement.querySelectorAll(".tree")];
    bar.hidden = false;
    bar.addEventListener("click", ({ target }) => {
      if (!target.dataset.levels) return;
      for (const details of trees.flatMap((tree) => [...tree.querySelectorAll("details")])) {
        let level = 1;
        for (let up = details.parentElement; !up.matches(".tree"); up = up.parentElement) level += up.tagName === "DETAILS";
        details.open = level < Number(target.dataset.levels);
      }
      for (const button of bar.querySelectorAll("button")) button.setAttribute("aria-pressed", button === target);
    });
  }
})();
