"""What running jobs say of their training, as series.

Theory of operation. No other series carries the name of a job, for there is no end to names. Here it must: the loss of
one job says nothing of the next one's, and a mean or the last of all of a namespace would be a figure of nothing. So
what is there is bounded in other ways: a job has series while it runs and none after that (nothing is kept; they are
asked for when they are scraped), its metrics are those that its spec names, and of more than `MAX_JOBS` jobs the first
by kind, namespace and name have series. The others are counted, as are all, by kind and namespace.

The values come from statuses, which admins of a namespace may write by hand: a value that is no number has no series,
nor have more metrics than a spec can name.

Threads: any, the one that scrapes.
"""

from __future__ import annotations

import re
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric

from tfjob_controller.api.trainjob import MAX_METRICS

# Of five metrics each: what a small Prometheus takes without noticing.
MAX_JOBS = 1000


# As the CRD says of a value; no longer than a double can be written.
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?|NaN|[+-]Inf")

# Kind, namespace and name of a running job, and the last value of each metric as text.
TrainingOfJob = tuple[str, str, str, Mapping[str, str]]


class TrainingCollector:
    """`tfjob_training_*`, of the jobs that `jobs` gives: those that run, and of which a metric is known."""

    def __init__(self, jobs: Callable[[], Iterable[TrainingOfJob]]) -> None:
        self._jobs = jobs

    def describe(self) -> Iterable[Metric]:
        return [_values(), _jobs(), _omitted()]

    def collect(self) -> Iterable[Metric]:
        jobs = sorted(self._jobs(), key=lambda job: job[:3])
        values, counts, omitted = _values(), _jobs(), _omitted()
        for kind, namespace, name, metrics in jobs[:MAX_JOBS]:
            for metric, value in sorted(metrics.items())[:MAX_METRICS]:
                if _NUMBER.fullmatch(value):
                    values.add_metric([kind, namespace, name, metric], float(value))
        for labels, count in sorted(Tally(job[:2] for job in jobs).items()):
            counts.add_metric(labels, count)
        omitted.add_metric([], max(0, len(jobs) - MAX_JOBS))
        return [values, counts, omitted]


def _values() -> GaugeMetricFamily:
    return GaugeMetricFamily(
        "tfjob_training_metric",
        f"The last value of a metric in the log of a running job; of the first {MAX_JOBS} jobs by kind, namespace and "
        "name. The series ends with the job.",
        labels=["kind", "namespace", "job", "metric"],
    )


def _jobs() -> GaugeMetricFamily:
    return GaugeMetricFamily(
        "tfjob_training_metric_jobs", "Running jobs whose log has told a metric.", labels=["kind", "namespace"]
    )


def _omitted() -> GaugeMetricFamily:
    return GaugeMetricFamily(
        "tfjob_training_metric_jobs_omitted",
        f"Running jobs without series of `tfjob_training_metric`, as there are more than {MAX_JOBS}.",
        labels=[],
    )
