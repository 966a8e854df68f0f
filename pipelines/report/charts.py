"""The figures of the report, as Plotly JSON without colours.

Every trace and axis names a *tone* (``meta``); ``charts.js`` turns tones into the colours of ``style.css``, so that a
figure follows the reader's light or dark scheme. A curve has at most ``POINTS`` points, a scatter as many per place.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from pipelines.report.folder import Columns
from pipelines.report.formatting import count, counted, share
from pipelines.report.series import increments, largest, merged, per_unit, size_classes

POINTS = 2000
WINDOWS = 200
PLACES = ("leaf reset", "coordinator", "shards")
PLACE_TONES = ("reset", "coordinator", "shards")
LEAF_RESET, COORDINATOR, SHARDS = range(3)


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure with its words.

    Attributes
    ----------
    key : str
        Distinguishes the charts of one run.
    title, caption : str
        What is shown, and how it was drawn.
    label : str
        The same for those who do not see the figure, with its main values.
    json : str
        Plotly's figure.
    height : int
        In CSS pixels.
    over_stream : bool
        The horizontal axis counts updates: such charts are zoomed together.
    """

    key: str
    title: str
    caption: str
    label: str
    json: str
    height: int = 300
    over_stream: bool = True


def has_curve(metrics: Columns, column: str) -> bool:
    """Whether a column has at least two values to draw a curve through."""
    return int(np.isfinite(metrics.get(column, np.empty(0))).sum()) > 1


def cumulative_quality(metrics: Columns, f1_name: str | None) -> Chart:
    """Accuracy so far beside the baselines, and F1 of the positive class where there is one."""
    table = merged(metrics, POINTS)
    fig = _panels(updates=_last(table))
    _line(fig, table, "accuracy", "learner, accuracy", "learner", ".2%")
    _line(fig, table, "no_change", "no-change, accuracy", "nochange", ".2%", dash="dash")
    _line(fig, table, "majority", "majority, accuracy", "majority", ".2%", dash="dot")
    if f1_name is not None:
        _line(fig, table, "f1", f"learner, {html.escape(f1_name)}", "f1", ".2%", dash="dashdot")
    _share_axis(fig)
    ends = ", ".join(f"{name.replace('_', '-')} {_end(table, name)}" for name in ("accuracy", "no_change", "majority"))
    return Chart(
        "quality-cumulative",
        "Prequential accuracy, cumulative",
        "Each inserted example is predicted by the model as it was just before its insertion. "
        + _detail(metrics, table),
        f"Line chart of cumulative accuracy over the stream. At the end: {ends}.",
        _json(fig),
    )


def windowed_quality(metrics: Columns) -> Chart:
    """Accuracy of the learner and the baselines since the point before."""
    table = merged(metrics, WINDOWS)
    fig = _panels(updates=_last(table))
    _line(fig, table, "window_accuracy", "learner", "learner", ".2%")
    _line(fig, table, "window_no_change", "no-change", "nochange", ".2%", dash="dash")
    _line(fig, table, "window_majority", "majority", "majority", ".2%", dash="dot")
    _share_axis(fig)
    window = table["window_accuracy"]
    low, high = (np.nanmin(window), np.nanmax(window)) if np.isfinite(window).any() else (None, None)
    return Chart(
        "quality-window",
        "Prequential accuracy, window by window",
        "Accuracy on the predictions since the point before. " + _detail(metrics, table),
        f"Line chart of windowed accuracy over the stream; the learner's lies between {share(low)} and {share(high)}.",
        _json(fig),
    )


def live_examples(metrics: Columns) -> Chart:
    """Live examples, and inserts and deletes per update."""
    table = merged(metrics, POINTS)
    fig = _panels(("examples", "mix"), (0.62, 0.38), _last(table))
    _line(fig, table, "active", "live examples", "live", ",d")
    inserts, deletes = increments(table["inserts"]), increments(table["deletes"])
    total = np.maximum(inserts + deletes, 1.0)
    for name, part, tone in (("inserts", inserts, "insert"), ("deletes", deletes, "delete")):
        fig.add_trace(_curve(table["seq"], part / total, name, tone, ".1%", stackgroup="mix"), row=2, col=1)
    fig.update_yaxes(rangemode="tozero", row=1, col=1)
    fig.update_yaxes(tickformat=".0%", range=[0, 1], row=2, col=1)
    return Chart(
        "live",
        "Live examples, inserts and deletes",
        "Above: examples the model holds. Below: how the updates divide. " + _detail(metrics, table),
        f"Live examples over the stream, {_end(table, 'active')} at the end, after "
        f"{_end(table, 'inserts')} inserts and {_end(table, 'deletes')} deletes.",
        _json(fig),
        height=380,
    )


def work_over_stream(metrics: Columns) -> Chart:
    """Updates per second, and rows rebuilt per update."""
    table = merged(metrics, WINDOWS)
    fig = _panels(("updates/s", "rows/update"), (0.5, 0.5), _last(table))
    rate = per_unit(table["seq"], table["seconds"])
    amortised = per_unit(table["rebuilt_rows"], table["seq"])
    fig.add_trace(_curve(table["seq"], rate, "updates per second", "learner", ",.3s"), row=1, col=1)
    fig.add_trace(_curve(table["seq"], amortised, "rows rebuilt per update", "delete", ",.3s"), row=2, col=1)
    fig.update_yaxes(rangemode="tozero")
    mean = table["rebuilt_rows"][-1] / max(int(table["seq"][-1]), 1)
    return Chart(
        "work",
        "Speed, and rows rebuilt per update",
        "Processing time only: start-up, compilation and this report are excluded. " + _detail(metrics, table),
        f"Updates per second and rows rebuilt per update over the stream; {mean:.3g} rows per update on the whole.",
        _json(fig),
        height=380,
    )


def tree_shape(metrics: Columns) -> Chart:
    """Nodes, leaves and depth."""
    table = merged(metrics, POINTS)
    fig = _panels(("nodes", "depth"), (0.62, 0.38), _last(table))
    _line(fig, table, "nodes", "nodes", "learner", ",d")
    _line(fig, table, "leaves", "leaves", "insert", ",d", dash="dash")
    fig.add_trace(_curve(table["seq"], table["depth"], "depth", "f1", ",d", shape="hv"), row=2, col=1)
    fig.update_yaxes(rangemode="tozero")
    return Chart(
        "shape",
        "Nodes, leaves and depth",
        _detail(metrics, table),
        f"Tree size over the stream; at the end {_end(table, 'nodes')} nodes, {_end(table, 'leaves')} leaves, "
        f"depth {_end(table, 'depth')}.",
        _json(fig),
        height=380,
    )


def rebuild_sizes(events: Columns, weight: Literal["rebuilds", "rows"]) -> Chart:
    """Histogram of rebuild sizes on a log2 scale: how many there were, or their rows."""
    sizes, place = size_classes(events["rows"]), events["place"]
    low, high = int(sizes.min()), int(sizes.max())
    bins = range(low, high + 1)
    fig = _panels()
    for code in np.unique(place):
        here = place == code
        weights = None if weight == "rebuilds" else events["rows"][here]
        height = np.bincount(sizes[here] - low, weights=weights, minlength=len(bins))
        bars = go.Bar(
            x=[_bin_name(b) for b in bins],
            y=_compact(height),
            name=_place(code)[0],
            meta={"tone": _place(code)[1]},
            hovertemplate="%{y:,d}",
        )
        fig.add_trace(bars)
    fig.update_layout(barmode="stack", bargap=0.12)
    fig.update_xaxes(title_text="rows of the rebuilt node", type="category")
    fig.update_yaxes(title_text=weight)
    what = {"rebuilds": "Number of rebuilds", "rows": "Rows rebuilt"}[weight]
    span = f"{_bin_name(low)} to {_bin_name(high)}"
    return Chart(
        f"rebuild-sizes-{weight}",
        f"{what} by size",
        "Every rebuild of the run. A bar reaches up to the next power of two: that at 64 holds 64 to 127 rows.",
        f"Histogram of {what.lower()} by size of the rebuilt node; the classes begin at {span} rows.",
        _json(fig),
        over_stream=False,
    )


def rebuilds_over_stream(events: Columns, updates: int) -> Chart:
    """Sizes of rebuilds where they happened, over a stream of ``updates``."""
    fig = _panels()
    thinned = False
    for code in np.unique(events["place"]):
        here = np.flatnonzero(events["place"] == code)
        kept = here[largest(events["rows"][here], POINTS)]
        thinned |= len(kept) < len(here)
        dots = go.Scatter(
            x=_compact(events["seq"][kept]),
            y=_compact(np.maximum(events["rows"][kept], 1)),
            mode="markers",
            name=_place(code)[0],
            meta={"tone": _place(code)[1]},
            marker={"size": 4, "opacity": 0.55},
            hovertemplate="%{y:,d} rows at update %{x:,d}",
        )
        fig.add_trace(dots)
    fig.update_layout(hovermode="closest", legend_itemsizing="constant")
    fig.update_xaxes(title_text="updates", range=[0, max(updates, int(events["seq"].max()))])
    fig.update_yaxes(title_text="rows (log)", type="log", dtick=1)
    total, biggest = len(events["rows"]), events["rows"].max()
    detail = (
        f"Of {count(total)} rebuilds, the largest of each of {POINTS:,} stretches per place is drawn."
        if thinned
        else f"All {count(total)} rebuilds are drawn."
    )
    return Chart(
        "rebuilds-stream",
        "Rebuilds over the stream",
        detail,
        f"Scatter chart of the sizes of {count(total)} rebuilds over the stream, of up to {count(biggest)} rows.",
        _json(fig),
        height=320,
    )


def compared_quality(runs: list[tuple[str, Columns]], left_out: int) -> Chart:
    """Cumulative accuracy of several runs, beside ``left_out`` others that have too few points for a curve."""
    fig = _panels(updates=max(_last(metrics) for _, metrics in runs))
    dashes = ("solid", "dash", "dot", "dashdot")
    for index, (name, metrics) in enumerate(runs):
        table = merged(metrics, POINTS)
        _line(fig, table, "accuracy", html.escape(name), f"class-{index % 8}", ".2%", dash=dashes[index // 8 % 4])
    _share_axis(fig)
    return Chart(
        "compared",
        "Prequential accuracy of the runs, cumulative",
        f"At most {POINTS:,} points per curve."
        + (f" {counted(left_out, 'run')} with fewer than two points left out." if left_out else ""),
        f"Line chart of the cumulative accuracy of {len(runs)} runs over their streams.",
        _json(fig),
        height=360,
    )


def _panels(
    titles: tuple[str, ...] = ("",), heights: tuple[float, ...] = (1.0,), updates: int | None = None
) -> go.Figure:
    """An empty figure of panels one above the other, with one horizontal axis, of ``updates`` if given."""
    fig = make_subplots(rows=len(titles), cols=1, shared_xaxes=True, row_heights=list(heights), vertical_spacing=0.09)
    fig.update_layout(
        template="none",
        margin={"l": 64, "r": 24, "t": 34, "b": 44},
        legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "traceorder": "normal"},
        hovermode="x unified",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        uirevision="zoom",
    )
    fig.update_xaxes(showgrid=False, zeroline=False, ticks="outside", ticklen=4, hoverformat=",d")
    if updates is not None:
        fig.update_xaxes(range=[0, updates])
        fig.update_xaxes(title_text="updates", row=len(titles), col=1)
    fig.update_yaxes(zeroline=False, nticks=6)
    for row, title in enumerate(titles, start=1):
        fig.update_yaxes(title_text=title, row=row, col=1)
    return fig


def _share_axis(fig: go.Figure) -> None:
    """Percent, with the digits that the distance of ticks asks for at any zoom; shares end at 0 and 1."""
    stops = [(None, 7e-5, 3), (7e-5, 7e-4, 2), (7e-4, 7e-3, 1), (7e-3, None, 0)]  # ticks are 1, 2 or 5 apart
    fig.update_yaxes(
        tickformat=".0%",
        tickformatstops=[{"dtickrange": [low, high], "value": f".{digits}%"} for low, high, digits in stops],
        autorangeoptions={"clipmin": -0.02, "clipmax": 1.02},
    )


def _last(table: Columns) -> int:
    return int(table["seq"][-1])


def _line(fig: go.Figure, table: Columns, column: str, name: str, tone: str, form: str, dash: str = "solid") -> None:
    """Add a column over the stream to the first panel."""
    fig.add_trace(_curve(table["seq"], table[column], name, tone, form, dash=dash), row=1, col=1)


def _curve(
    x: npt.NDArray[Any],
    y: npt.NDArray[Any],
    name: str,
    tone: str,
    form: str,
    *,
    dash: str = "solid",
    shape: str = "linear",
    stackgroup: str | None = None,
) -> go.Scatter:
    return go.Scatter(
        x=_compact(x),
        y=_compact(y),
        name=name,
        mode="lines" if len(x) > 1 else "markers",
        line={"dash": dash, "width": 1.8, "shape": shape},
        stackgroup=stackgroup,
        meta={"tone": tone},
        hovertemplate=f"%{{y:{form}}}",
    )


def _compact(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The narrowest type that Plotly embeds as bytes and that draws the same curve."""
    if values.dtype.kind in "iu" and (len(values) == 0 or abs(values).max() < 2**31):
        return values.astype(np.int32)
    return values.astype(np.float64 if values.dtype.kind in "iu" else np.float32)


def _detail(metrics: Columns, drawn: Columns) -> str:
    """How many updates one point stands for, and whether rows of the metrics table were merged for it."""
    rows, points = len(metrics["seq"]), len(drawn["seq"])
    step = round(float(f"{_last(metrics) / points:.2g}"))
    each = "one point per update" if step <= 1 else f"one point per about {count(step)} updates"
    if points < rows:
        return f"Drawn from {count(rows)} rows merged into {count(points)}: {each}."
    return f"{each[0].upper()}{each[1:]}."


def _end(table: Columns, column: str) -> str:
    value = table[column][-1]
    return count(value) if table[column].dtype.kind in "iu" else share(value)


def _place(code: int) -> tuple[str, str]:
    """Name and tone of a place of rebuilding."""
    return (PLACES[code], PLACE_TONES[code]) if 0 <= code < len(PLACES) else (f"place {code}", "majority")


def _bin_name(bits: int) -> str:
    """The least size of a power-of-two class."""
    return count(2**bits) if bits >= 0 else "0"


def _json(fig: go.Figure) -> str:
    return str(fig.to_json())
