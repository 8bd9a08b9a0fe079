"""Draws the shipped dashboards with matplotlib from what a Prometheus answers. It is no Grafana.

It has each panel's place, title, unit, queries and legends from the dashboard's JSON, and asks for ranges as Grafana
does. A panel without series is drawn as one that has no data, so that a broken query is visible.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.ticker import FuncFormatter, MaxNLocator

from localcluster.errors import LocalClusterError

# Grafana's names of units.
SECONDS, PER_SECOND, SHARE, BYTES = "s", "ops", "percentunit", "bytes"
# Grafana's variables.
_RATE_INTERVAL, _NAMESPACE = "$__rate_interval", "$namespace"

# In inches, for one column and one line of Grafana's grid.
_COLUMN, _LINE = 0.55, 0.36
_COLUMNS = 24
_LEGEND = re.compile(r"\{\{(\w+)\}\}")
# More lines than this make a legend that covers its panel.
_SHOWN_LEGENDS = 8
_POINTS = 150
# As Grafana's unit `short` has them.
_LARGE = ((1e9, "Bil"), (1e6, "Mil"), (1e3, "K"))
_TIMEOUT_SECONDS = 30.0
# With what Grafana puts in: four scrapes at least, and all namespaces.
_RATE_SECONDS = 60

Object = dict[str, Any]
# The series of a query, from one time to another one.
Ask = Callable[[str], list[Object]]


@dataclass(frozen=True, slots=True)
class Line:
    """`times` are Unix times."""

    legend: str
    times: tuple[float, ...]
    values: tuple[float, ...]


def draw_all(url: str, dashboards: Sequence[Path], folder: Path, seconds: int) -> list[Path]:
    """Draws the last `seconds` of each dashboard's JSON; returns the pictures. Raises LocalClusterError."""
    end = time.time()
    ask = _asker(url, end, seconds)
    written = []
    for path in dashboards:
        dashboard = json.loads(path.read_text(encoding="utf-8"))
        written.append(folder / f"grafana-{dashboard['uid']}.png")
        figure = draw(dashboard, ask, (end - seconds, end))
        figure.savefig(written[-1], dpi=80, metadata={"Software": None})
    return written


def draw(dashboard: Mapping[str, Any], ask: Ask, times: tuple[float, float]) -> Figure:
    """Returns the dashboard as a figure, from one Unix time to another one."""
    panels = dashboard["panels"]
    height = max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in panels)
    figure = Figure(figsize=(_COLUMNS * _COLUMN, height * _LINE))
    figure.suptitle(dashboard["title"], x=0.01, y=0.995, ha="left", fontsize=13, weight="bold")
    margins = {"left": 0.05, "right": 0.99, "top": 1 - 0.3 / figure.get_figheight(), "bottom": 0.3 / height}
    grid = figure.add_gridspec(height, _COLUMNS, **margins, hspace=0, wspace=0)
    for panel in panels:
        _draw_panel(figure, grid, panel, ask, times)
    return figure


def lines_of(panel: Mapping[str, Any], ask: Ask) -> Iterator[Line]:
    """Returns the lines of a panel with their legends."""
    for target in panel.get("targets", ()):
        expr = target["expr"].replace(_RATE_INTERVAL, f"{_RATE_SECONDS}s").replace(_NAMESPACE, ".*")
        for series in ask(expr):
            points = [(float(at), float(value)) for at, value in series["values"]]
            times, values = zip(*points, strict=True)
            yield Line(_legend(target["legendFormat"], series["metric"]), times, values)


def _legend(template: str, labels: Mapping[str, str]) -> str:
    return _LEGEND.sub(lambda found: labels.get(found[1], ""), template).strip()


def _draw_panel(figure: Figure, grid: GridSpec, panel: Mapping[str, Any], ask: Ask, times: tuple[float, float]) -> None:
    place = panel["gridPos"]
    if panel["type"] == "row":
        axes = figure.add_subplot(grid[place["y"], :])
        axes.set_axis_off()
        axes.text(-0.04, 0.1, panel["title"], fontsize=11, weight="bold", transform=axes.transAxes)
        return
    # Space for the title above, and for times below; and on the left for the unit.
    top, bottom = place["y"] + 1, place["y"] + place["h"] - 1
    axes = figure.add_subplot(grid[top:bottom, place["x"] + (place["x"] > 0) : place["x"] + place["w"]])
    axes.set_title(panel["title"], fontsize=9, loc="left")
    axes.set_xlim(times)
    # A quantile of nothing is NaN, which Grafana shows as a gap.
    lines = [line for line in lines_of(panel, ask) if not all(map(math.isnan, line.values))]
    for line in lines:
        axes.plot(line.times, line.values, label=line.legend, linewidth=1.2)
    _dress(axes, panel["fieldConfig"]["defaults"]["unit"], len(lines))


def _dress(axes: Axes, unit: str, line_count: int) -> None:
    axes.tick_params(labelsize=7)
    axes.grid(visible=True, linewidth=0.4)
    axes.spines[["top", "right"]].set_visible(False)
    if not line_count:
        axes.text(0.5, 0.5, "no data", ha="center", va="center", color="grey", transform=axes.transAxes)
        axes.set_xticks([])
        axes.set_yticks([])
        return
    axes.set_ylim(bottom=0, top=max(axes.get_ylim()[1], 1e-9))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: formatted(value, unit)))
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: time.strftime("%H:%M", time.gmtime(at))))
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[:_SHOWN_LEGENDS], labels[:_SHOWN_LEGENDS], fontsize=6, loc="upper left", framealpha=0.6)


def formatted(value: float, unit: str) -> str:
    """Returns a value as Grafana writes it with that unit, roughly."""
    if unit == SHARE:
        return f"{value * 100:.3g} %"
    if unit == SECONDS:
        return f"{value * 1000:.3g} ms" if 0 < value < 1 else f"{value:.3g} s"
    if unit == BYTES:
        return f"{value / 2**20:.3g} MiB"
    text = next((f"{value / size:.3g} {name}" for size, name in _LARGE if value >= size), f"{value:.3g}")
    return f"{text}/s" if unit == PER_SECOND else text


def _asker(url: str, end: float, seconds: int) -> Ask:
    fields = {"start": f"{end - seconds:.0f}", "end": f"{end:.0f}", "step": f"{max(seconds // _POINTS, 1)}"}

    def ask(expr: str) -> list[Object]:
        answer = urllib3.request(
            "GET",
            f"{url}/api/v1/query_range",
            fields={"query": expr, **fields},
            timeout=_TIMEOUT_SECONDS,
            retries=False,
        )
        body = answer.json()
        if body["status"] != "success":
            raise LocalClusterError(f"Prometheus refuses {expr}: {body['error']}")
        found: list[Object] = body["data"]["result"]
        return found

    return ask
