"""The pages in docs/reference of events, flags and metrics."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from generate.conditions import TFJOB_CONDITIONS, TRAINJOB_CONDITIONS
from generate.markdown import code, page, table
from tfjob_controller.flags import Option
from tfjob_controller.jobs import reasons
from tfjob_controller.jobs.trainingjob import PHASE_CLEAN_UP, PHASE_CREATING, PHASE_DONE, PHASE_FAILED, PHASE_RUNNING
from tfjob_controller.kinds import reasons as trainer
from tfjob_controller.kinds.registry import KINDS
from tfjob_controller.options import DASHBOARD_OPTIONS, EXTENDER_OPTIONS, OPTIONS
from tfjob_controller.simulator.options import SIMULATE_OPTIONS
from tfjob_controller.storage.checkpoints.options import RESTORE_OPTIONS, SAVE_OPTIONS
from tfjob_controller.storage.options import EXPORT_OPTIONS, INITIALIZE_OPTIONS
from tfjob_controller.telemetry.gangmetrics import GangMetrics
from tfjob_controller.telemetry.metrics import Metrics

_PHASES = (PHASE_CREATING, PHASE_RUNNING, PHASE_CLEAN_UP, PHASE_DONE)

# Reason of the event: its type. Meanings stand beside the reasons.
EVENTS: Mapping[str, str] = {
    reasons.SUCCESSFUL_CREATE: "Normal",
    reasons.FAILED_CREATE: "Warning",
    reasons.SUCCESSFUL_DELETE: "Normal",
    reasons.INVALID_SPEC: "Warning",
    reasons.RESTARTED: "Warning",
    reasons.SUSPENDED: "Normal",
    reasons.RESUMED: "Normal",
    reasons.RESIZED: "Normal",
    reasons.RESIZE_RECOMMENDED: "Normal",
    reasons.OVERRIDDEN: "Warning",
    reasons.PROGRESS_IGNORED: "Warning",
    reasons.CHECKPOINT_SAVED: "Normal",
    reasons.CHECKPOINT_FAILED: "Warning",
    reasons.CHECKPOINT_RESTORED: "Normal or Warning",
    reasons.CHANGE_REVERTED: "Warning",
    reasons.WAITING_FOR_CAPACITY: "Normal",
    reasons.EXCEEDS_CLUSTER_CAPACITY: "Warning",
    reasons.PREEMPTED: "Warning",
    reasons.PREEMPTING: "Normal",
    reasons.GANG_ADMITTED: "Normal",
    reasons.GANG_SCHEDULED: "Normal",
    reasons.TIMED_OUT: "Warning",
    reasons.GANG_SCHEDULING_OFF: "Warning",
}


def render_events() -> str:
    return page(
        "Events",
        "src/tfjob_controller/jobs/reasons.py",
        "On the job, in `events.k8s.io/v1`; `kubectl describe tfjob NAME` (or `trainjob`) shows them. Repeated events "
        "are counted in a series, and an event about a status is written after the status.",
        table(["Reason", "Type", "When"], _event_rows()),
    )


def render_flags() -> str:
    return page(
        "Flags",
        "src/tfjob_controller/options.py and src/tfjob_controller/simulator/options.py",
        "A flag takes precedence over its environment variable. If a flag or file is invalid, the program prints one "
        "line and exits with code 2.",
        f"## tfjob-controller run\n\n{_flag_table(OPTIONS)}",
        f"## tfjob-controller extender\n\n{_flag_table(EXTENDER_OPTIONS)}",
        f"## tfjob-controller dashboard\n\n{_flag_table(DASHBOARD_OPTIONS)}",
        f"## tfjob-controller simulate\n\n{_flag_table(SIMULATE_OPTIONS)}",
        f"## tfjob-controller initialize dataset|model\n\n{_flag_table(INITIALIZE_OPTIONS)}",
        f"## tfjob-controller export\n\n{_flag_table(EXPORT_OPTIONS)}",
        f"## tfjob-controller checkpoint save\n\n{_flag_table(SAVE_OPTIONS)}",
        f"## tfjob-controller checkpoint restore\n\n{_flag_table(RESTORE_OPTIONS)}",
    )


def _flag_table(options: Sequence[Option]) -> str:
    rows = (
        (code(option.flag), code(option.env), option.kind.name, code(option.default_text), option.help)
        for option in options
    )
    return table(["Flag", "Environment", "Value", "Default", "Meaning"], rows)


def render_metrics() -> str:
    gangs = GangMetrics(CollectorRegistry())
    gangs.collect(list, dict)
    gangs.collect_underway(lambda: None)
    return page(
        "Metrics",
        "src/tfjob_controller/telemetry/",
        "At `/metrics`, in the formats of Prometheus and OpenMetrics. Names of the queue, of syncs, of requests and of "
        "leader election are those of client-go and controller-runtime. No label has the name of a job or gang, "
        "except in `tfjob_training_metric` and `tfjob_checkpoint_timestamp_seconds`, whose number is limited. "
        "[Monitoring](../monitoring.md) describes their use.",
        f"## tfjob-controller run\n\n{_metric_table(_collectors())}",
        "## tfjob-controller extender\n\nThe metrics of requests, watches, threads and leader election (of the "
        "kube-scheduler in its pod) above, and:\n\n" + _metric_table(list(gangs.registry._collector_to_names)),
        "## Both programs\n\nThe metrics of every Prometheus client; `process_*` only on Linux.\n\n"
        + _metric_table(_of_process()),
    )


def _metric_table(collectors: Sequence[Collector]) -> str:
    rows = sorted(
        (row for collector in collectors for row in _metric_rows(collector)), key=lambda row: row[0].strip("`")
    )
    return table(["Metric", "Type", "Labels", "Meaning"], rows)


def _event_rows() -> Iterator[tuple[str, str, str]]:
    _check_complete()
    for phase in _PHASES:
        detail = ", and its reason explains the wait" if phase == PHASE_CREATING else ""
        yield code(phase), "Normal", f"The job's phase is {phase} now{detail}."
    yield code(PHASE_CLEAN_UP), "Warning", "The same, after the chief failed; the note has the cause."
    yield code(PHASE_FAILED), "Warning", "The job failed; the note has the cause."
    yield from ((code(reason), type_, reasons.DESCRIPTIONS[reason]) for reason, type_ in EVENTS.items())


def _check_complete() -> None:
    """Raises LookupError for a reason that no table lists."""
    of_conditions = itertools.chain(*TFJOB_CONDITIONS.values(), *TRAINJOB_CONDITIONS.values())
    missing = (reasons.DESCRIPTIONS.keys() | trainer.DESCRIPTIONS.keys()) - EVENTS.keys() - set(of_conditions)
    if missing:
        raise LookupError(f"hack/generate does not list {', '.join(sorted(missing))} of jobs/reasons.py in its tables")


def _collectors() -> list[Collector]:
    metrics = Metrics("", [kind.series for kind in KINDS])
    metrics.collect_jobs(lambda series: ())
    metrics.collect_informers(dict)
    metrics.collect_thread_restarts(dict)
    metrics.collect_training(list)
    metrics.collect_checkpoints(list)
    # The registry's public side shows samples only, and there are none yet. Those of the process depend on the system.
    registered = list(metrics.registry._collector_to_names)
    return [entry for entry in registered if not isinstance(entry, ProcessCollector | PlatformCollector)]


def _of_process() -> list[Collector]:
    registry = CollectorRegistry()
    return [ProcessCollector(registry=registry), PlatformCollector(registry=registry)]


def _metric_rows(collector: Collector) -> Iterator[tuple[str, str, str, str]]:
    families = list(collector.describe()) if hasattr(collector, "describe") else list(collector.collect())
    for family in families:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = getattr(collector, "_labelnames", getattr(family, "_labelnames", ()))
        if isinstance(collector, PlatformCollector):
            labels = [*family.samples[0].labels]
        yield code(name), family.type, ", ".join(map(code, labels)), family.documentation
