"""The use of GPUs by pods, from the metrics of NVIDIA's DCGM exporter in a Prometheus.

Queries contain no text but names that Kubernetes accepts. A pod is named by the exporter's labels `namespace` and
`pod`, which Prometheus renames unless it honours them; the queries select both forms.

A GPU that is shared by partitions (MIG) has no `DCGM_FI_DEV_GPU_UTIL`; there `DCGM_FI_PROF_GR_ENGINE_ACTIVE` is read.

Source: github.com/NVIDIA/dcgm-exporter etc/default-counters.csv, internal/pkg/transformation/const.go,
internal/pkg/rendermetrics/render_metrics.go, deployment/values.yaml (honorLabels: false).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tfjob_controller.client.liveuse.podmetrics import PodKey
from tfjob_controller.client.liveuse.prometheus import Queries, Sample
from tfjob_controller.kube.names import name_violation, namespace_violation

# The time after which unused GPUs are reported.
IDLE_MINUTES = 30
# Names in one query, and in all for one job.
PODS_EACH, MAX_PODS = 500, 2000
_UTILIZATION, _ENGINE = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
_USED, _FREE = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"
# A label that tells the GPUs of a pod apart, whichever exporter has reported them.
_OF_GPU = "gpu, UUID, GPU_I_ID"
# Of the 30 minutes, two may be missing: a program that was restarted.
_MIN_STEPS = IDLE_MINUTES - 2
# DCGM reports a value that it cannot read as a number beyond any that is possible.
_MAX_MEBIBYTES = 2**24
_MEBIBYTE = 2**20


@dataclass(frozen=True, slots=True)
class GpuUse:
    """The GPUs of a pod: their mean utilization in percent, and their memory in bytes; None if it is not reported.

    `peak` is the highest utilization of any of them in the last half hour, if that time is covered.
    """

    count: int
    utilization: float | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    peak: float | None = None


def gpu_use(prometheus: Queries, namespace: str, pods: Sequence[str]) -> Mapping[str, GpuUse]:
    """The use of the GPUs of these pods by name; of the first `MAX_PODS`. Raises `PrometheusError`."""
    known: dict[str, GpuUse] = {}
    names = [name for name in pods[:MAX_PODS] if not name_violation(name)]
    for start in range(0, len(names), PODS_EACH):
        part = names[start : start + PODS_EACH]
        by_pod: dict[PodKey, list[Sample]] = defaultdict(list)
        for sample in prometheus.query(current_query(namespace, part)):
            by_pod[sample.pod].append(sample)
        peaks = _peaks(prometheus.query(peak_query(namespace, part)))
        known |= {
            pod: _use_of(by_pod[namespace, pod], peaks.get((namespace, pod)))
            for pod in part
            if (namespace, pod) in by_pod
        }
    return known


def half_hour_peaks(prometheus: Queries, namespace: str) -> Mapping[PodKey, float]:
    """The highest utilization of the GPUs of each pod in the last half hour, in percent. Raises `PrometheusError`.

    For all pods of a namespace, or of all namespaces (""): the caller may show it to whoever may list pods there. Pods
    without figures for the whole half hour are left out.
    """
    return _peaks(prometheus.query(peak_query(namespace)))


def current_query(namespace: str, pods: Sequence[str]) -> str:
    """The figures of each GPU now. A GPU counts once, also if two exporters have reported it in the last minutes."""
    figures = f'__name__=~"{_UTILIZATION}|{_ENGINE}|{_USED}|{_FREE}"'
    parts = [
        f"max by (__name__, {labels}, {_OF_GPU}) ({{{figures}, {matchers}}})"
        for labels, matchers in _forms(namespace, pods)
    ]
    return " or ".join(parts)


def peak_query(namespace: str, pods: Sequence[str] = ()) -> str:
    """The highest utilization in the half hour of each pod that was reported throughout it; of all pods if none is
    named.
    """
    parts = []
    for labels, matchers in _forms(namespace, pods):
        whole, engine = f"{_UTILIZATION}{{{matchers}}}", f"{_ENGINE}{{{matchers}}}"
        time = f"[{IDLE_MINUTES}m]"
        peak = f"max by ({labels}) (max_over_time({whole}{time}) or max_over_time({engine}{time}) * 100)"
        steps = f"count_over_time((max by ({labels}) ({whole} or {engine}))[{IDLE_MINUTES}m:1m])"
        parts.append(f"({peak} and on ({labels}) {steps} >= {_MIN_STEPS})")
    return " or ".join(parts)


def _forms(namespace: str, pods: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields the labels that name a pod, and the matchers of the pods, in both forms."""
    for prefix in ("exported_", ""):
        space, pod = f"{prefix}namespace", f"{prefix}pod"
        matchers = [] if prefix else ['exported_pod=""']
        if namespace:
            matchers.append(f'{space}="{_namespace(namespace)}"')
        matchers.append(f'{pod}=~"{_any_of(pods)}"' if pods else f'{pod}!=""')
        yield f"{space}, {pod}", ", ".join(matchers)


def _namespace(name: str) -> str:
    if violation := namespace_violation(name):
        raise ValueError(f"namespace {violation}")
    return name


def _any_of(names: Sequence[str]) -> str:
    """A regular expression that matches these names alone. Of what names may contain, only the dot has a meaning."""
    for name in names:
        if violation := name_violation(name):
            raise ValueError(f"pod {violation}")
    return "|".join(name.replace(".", "[.]") for name in names)


def _peaks(samples: Sequence[Sample]) -> dict[PodKey, float]:
    return {sample.pod: sample.number for sample in samples if 0 <= sample.number <= 100}


def _use_of(samples: Sequence[Sample], peak: float | None) -> GpuUse:
    def values(name: str, most: float) -> list[float]:
        numbers = (sample.number for sample in samples if sample.metric.name == name)
        return [number for number in numbers if 0 <= number <= most]

    percents = values(_UTILIZATION, 100) or [100 * ratio for ratio in values(_ENGINE, 1)]
    used, free = values(_USED, _MAX_MEBIBYTES), values(_FREE, _MAX_MEBIBYTES)
    has_total = bool(used) and len(used) == len(free)
    return GpuUse(
        count=max(len(percents), len(used)),
        utilization=sum(percents) / len(percents) if percents else None,
        memory_used=round(sum(used) * _MEBIBYTE) if used else None,
        memory_total=round((sum(used) + sum(free)) * _MEBIBYTE) if has_total else None,
        peak=peak,
    )
