"""The metrics and the progress of TrainJobs of both APIs: from what the program reported, and from its log.

Values that the program reported replace those of its log. Pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from tfjob_controller.api.common.schema import matches
from tfjob_controller.api.common.status import MAX_METRIC_NAME, MAX_METRICS, METRIC_NAME, Metric
from tfjob_controller.api.common.trainerstatus import TrainerStatus

# Metrics that show the progress of training, in the order of display.
STEP = "step"
_PROGRESS = ("epoch", STEP)
_MAX_STEP = 2**63 - 1
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"))


def metrics_and_progress(
    names: Sequence[str], logged: Mapping[str, Metric], report: TrainerStatus | None
) -> tuple[tuple[Metric, ...], str]:
    """The metrics that the job shows and its progress in words.

    `names` are the metrics to look for in logs, in the order of display; other metrics of the report follow them.
    """
    reported = reported_metrics(report) if report is not None else {}
    known = {**logged, **reported}
    ordered = [known[name] for name in names if name in known]
    ordered += [metric for name, metric in reported.items() if name not in names]
    metrics = tuple(ordered[:MAX_METRICS])
    progress = _progress_text(report) if report is not None else ""
    return metrics, progress or _logged_progress(metrics)


def reported_metrics(report: TrainerStatus) -> dict[str, Metric]:
    """The metrics of a report that are numbers and have a name as metrics in logs may have one."""
    metrics = {}
    for metric in report.metrics:
        value = _number(metric.value)
        if value and len(metric.name) <= MAX_METRIC_NAME and matches(METRIC_NAME, metric.name):
            metrics[metric.name] = Metric(metric.name, value, report.last_updated_time)
    return metrics


def progress_of(report: TrainerStatus | None) -> dict[str, str]:
    """The progress that a program reported, as a metric."""
    if report is None or report.progress_percentage is None:
        return {}
    return {"progress_percentage": str(report.progress_percentage)}


def step_of(value: str) -> int | None:
    """Returns the training step in the value of a metric; None if it is not a number of steps."""
    try:
        number = float(value)
    except ValueError:
        return None
    return int(number) if 0 <= number <= _MAX_STEP else None


def _number(text: str) -> str:
    """The number as the status has it; empty if the text is no number."""
    try:
        value = float(text)
    except ValueError:
        return ""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return text if _NUMBER.fullmatch(text) else repr(value)


def _progress_text(report: TrainerStatus) -> str:
    """`40 %, about 5m left`: the progress that the report states; empty if it states none."""
    percent, seconds = report.progress_percentage, report.estimated_remaining_seconds
    done = f"{percent} %" if percent is not None else ""
    left = f"about {_duration(seconds)} left" if seconds else ""
    return ", ".join(part for part in (done, left) if part)


def _duration(seconds: int) -> str:
    for unit, name in _UNITS:
        if seconds >= 2 * unit:
            return f"{seconds // unit}{name}"
    return f"{seconds}s"


def _logged_progress(metrics: Iterable[Metric]) -> str:
    """`epoch 3, step 1200`: the metrics that show progress."""
    values = {metric.name: metric.value for metric in metrics}
    return ", ".join(f"{name} {values[name]}" for name in _PROGRESS if name in values)
