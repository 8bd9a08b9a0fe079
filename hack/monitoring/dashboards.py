"""The dashboards: what a platform team looks at first, from jobs down to requests."""

from __future__ import annotations

from monitoring.alert import BOTH, CONTROLLER, GANG_SCHEDULER, OF_CONTROLLER, OF_GANG_SCHEDULER
from monitoring.panel import (
    BYTES,
    COUNT,
    NAMESPACE,
    PER_SECOND,
    RATE_INTERVAL,
    SECONDS,
    SHARE,
    Dashboard,
    Panel,
    Row,
)

_OF_JOBS = f'{OF_CONTROLLER}, namespace=~"{NAMESPACE}"'


def _rate(metric: str, of: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}{{{of}}}[{RATE_INTERVAL}]))"


def _quantile(share: float, metric: str, of: str, by: str = "") -> str:
    labels = f"{by}, le" if by else "le"
    return f"histogram_quantile({share}, sum by ({labels}) (rate({metric}_bucket{{{of}}}[{RATE_INTERVAL}])))"


def _lately(share: float, metric: str, of: str) -> str:
    """Over an hour: of what happens rarely."""
    return f"histogram_quantile({share}, sum by (le) (rate({metric}_bucket{{{of}}}[1h])))"


def _half_and_most(metric: str, of: str, by: str = "", legend: str = "") -> tuple[tuple[str, str], ...]:
    return (
        (_quantile(0.5, metric, of, by), f"half {legend}".strip()),
        (_quantile(0.99, metric, of, by), f"99 of 100 {legend}".strip()),
    )


# Both replicas count what they do; what is counted in caches only the leader shows.
_JOBS = Row("Jobs", (
    Panel("TFJobs by state", "Jobs that exist.", COUNT,
          ((f"sum by (phase, state) (tfjob_jobs{{{_OF_JOBS}}})", "{{phase}} {{state}}"),)),
    Panel("TrainJobs by state", "Jobs that exist.", COUNT,
          ((f"sum by (phase, state) (trainjob_jobs{{{_OF_JOBS}}})", "{{phase}} {{state}}"),)),
    Panel("Replicas", "Of both kinds, by what they do.", COUNT,
          ((f"sum by (type, state) (tfjob_replicas{{{_OF_JOBS}}})", "{{type}} {{state}}"),
           (f"sum by (type, state) (trainjob_replicas{{{_OF_JOBS}}})", "TrainJob {{type}} {{state}}"))),
    Panel("Jobs that ended", "In the last hour.", COUNT,
          ((f"sum by (state) (increase(tfjob_finished_total{{{OF_CONTROLLER}}}[1h]))", "TFJob {{state}}"),
           (f"sum by (state) (increase(trainjob_finished_total{{{OF_CONTROLLER}}}[1h]))", "TrainJob {{state}}"))),
    Panel("Until a job runs", "From its creation until its chief runs, over an hour.", SECONDS,
          ((_lately(0.5, "tfjob_time_to_running_seconds", OF_CONTROLLER),
            "TFJob, half"),
           (_lately(0.95, "tfjob_time_to_running_seconds", OF_CONTROLLER),
            "TFJob, 95 of 100"),
           (_lately(0.95, "trainjob_time_to_running_seconds", OF_CONTROLLER),
            "TrainJob, 95 of 100"))),
    Panel("Restarts", "Of replicas, in the last hour; and the most of one job that has not ended.", COUNT,
          ((f"sum(increase(tfjob_restarts_total{{{OF_CONTROLLER}}}[1h]))", "TFJobs"),
           (f"sum(increase(trainjob_restarts_total{{{OF_CONTROLLER}}}[1h]))", "TrainJobs"),
           (f"max by (namespace) (tfjob_restarts_max{{{_OF_JOBS}}})", "most of one TFJob in {{namespace}}"),
           (f"max by (namespace) (trainjob_restarts_max{{{_OF_JOBS}}})", "most of one TrainJob in {{namespace}}"))),
    Panel("Workers: wanted and there", "Of TFJobs that have not ended.", COUNT,
          ((f"sum(tfjob_workers_desired{{{_OF_JOBS}}})", "wanted"),
           (f"sum(tfjob_workers_actual{{{_OF_JOBS}}})", "there"))),
    Panel("Resizes", "Of running TFJobs, in the last hour.", COUNT,
          ((f"sum by (direction, reason) (increase(tfjob_resizes_total{{{OF_CONTROLLER}}}[1h]))",
            "{{direction}}, by {{reason}}"),)),
    Panel("Jobs that tell metrics", "Running jobs whose log has told one; beyond 1,000 they have no series.", COUNT,
          ((f"sum by (kind) (tfjob_training_metric_jobs{{{_OF_JOBS}}})", "{{kind}}"),
           (f"sum(tfjob_training_metric_jobs_omitted{{{OF_CONTROLLER}}})", "without series"))),
))  # fmt: skip

_QUEUES = Row("Work", (
    Panel("Leader", "1 where a replica leads.", COUNT,
          ((f"leader_election_master_status{{{BOTH}}}", "{{job}} {{pod}}"),)),
    Panel("Jobs that wait for a worker", "Changes not looked at yet.", COUNT,
          ((f"sum by (name) (workqueue_depth{{{OF_CONTROLLER}}})", "{{name}}"),)),
    Panel("Wait for a worker", "From a change to the begin of its sync.", SECONDS,
          _half_and_most("workqueue_queue_duration_seconds", OF_CONTROLLER, "name", "{{name}}")),
    Panel("Syncs", "A second, by how they ended.", PER_SECOND,
          ((_rate("controller_runtime_reconcile_total", OF_CONTROLLER, "controller, result"),
            "{{controller}} {{result}}"),)),
    Panel("Time of a sync", "Requests included.", SECONDS,
          _half_and_most("controller_runtime_reconcile_time_seconds", OF_CONTROLLER, "controller", "{{controller}}")),
    Panel("Busy workers", "Of those there are.", COUNT,
          ((f"sum by (controller) (controller_runtime_active_workers{{{OF_CONTROLLER}}})", "{{controller}}"),
           (f"max by (controller) (controller_runtime_max_concurrent_reconciles{{{OF_CONTROLLER}}})",
             "{{controller}}: all"))),
    Panel("Longest sync under way", "More than a minute is a sync that hangs.", SECONDS,
          ((f"max by (name) (workqueue_longest_running_processor_seconds{{{OF_CONTROLLER}}})", "{{name}}"),)),
    Panel("Failures", "A second: retries, errors that no retry can mend, bugs.", PER_SECOND,
          ((_rate("workqueue_retries_total", OF_CONTROLLER, "name"), "retries of {{name}}"),
           (_rate("controller_runtime_terminal_reconcile_errors_total", OF_CONTROLLER, "controller"),
             "{{controller}}: given up"),
           (_rate("controller_runtime_reconcile_panics_total", OF_CONTROLLER, "controller"), "{{controller}}: bugs"))),
    Panel("Threads that died", "And were started again.", COUNT,
          ((f"sum by (job, thread) (tfjob_controller_thread_restarts_total{{{OF_CONTROLLER}}}) > 0",
            "{{job}} {{thread}}"),)),
))  # fmt: skip


def _api(of: str) -> Row:
    return Row("API server", (
        Panel("Requests", "A second, by code.", PER_SECOND,
              ((_rate("rest_client_requests_total", of, "method, code"), "{{method}} {{code}}"),)),
        Panel("Time of a request", "To its whole answer; of a watch to its headers.", SECONDS,
              ((_quantile(0.99, "rest_client_request_duration_seconds", of, "verb"), "99 of 100 {{verb}}"),)),
        Panel("Wait for --qps", "Requests that the program itself holds back.", SECONDS,
              _half_and_most("rest_client_rate_limiter_duration_seconds", of)),
        Panel("Objects in caches", "By kind; each replica has its own.", COUNT,
              ((f"max by (name) (informer_objects{{{of}}})", "{{name}}"),)),
        Panel("Events of watches", "A second.", PER_SECOND,
              ((_rate("reflector_events_total", of, "name"), "{{name}}"),)),
        Panel("Changes not handled yet", "More than a few is too little CPU.", COUNT,
              ((f"max by (name) (informer_pending_notifications{{{of}}})", "{{name}}"),)),
        Panel("Lists and watches", "In ten minutes: those that failed, and whole lists.", COUNT,
              ((f"sum by (name) (increase(reflector_failures_total{{{of}}}[10m]))", "{{name}} failed"),
               (f"sum by (name) (increase(reflector_lists_total{{{of}}}[10m]))", "{{name}} listed"))),
        Panel("CPU", "Cores.", COUNT, ((f"rate(process_cpu_seconds_total{{{of}}}[{RATE_INTERVAL}])", "{{pod}}"),)),
        Panel("Memory", "Resident.", BYTES, ((f"process_resident_memory_bytes{{{of}}}", "{{pod}}"),)),
    ))  # fmt: skip


# Every replica has the Gangs in its cache: the most of them, not the sum.
_GANGS = Row("Gangs", (
    Panel("Gangs by phase", "Gangs that exist.", COUNT,
          ((f"max by (phase) (gang_gangs{{{OF_GANG_SCHEDULER}}})", "{{phase}}"),)),
    Panel("Who waits", "By whether there is room: yes, held for one that comes first, no, not looked at yet.", COUNT,
          ((f"max by (fits) (gang_queue_length{{{OF_GANG_SCHEDULER}}})", "{{fits}}"),)),
    Panel("Longest wait", "Of those that wait now, by whether there is room.", SECONDS,
          ((f"max by (fits) (gang_queue_longest_wait_seconds{{{OF_GANG_SCHEDULER}}})", "{{fits}}"),)),
    Panel("Wait until admitted", "Of gangs admitted in the last hour.", SECONDS,
          ((_lately(0.5, "gang_waiting_seconds", OF_GANG_SCHEDULER), "half"),
           (_lately(0.95, "gang_waiting_seconds", OF_GANG_SCHEDULER),
            "95 of 100"))),
    Panel("Used", "What bound pods request, as a share of all nodes.", SHARE,
          ((f"max by (resource) (gang_cluster_used_ratio{{{OF_GANG_SCHEDULER}}})", "{{resource}}"),)),
    Panel("Reserved", "For members whose pods are not bound yet: thousandths of a CPU, bytes, pieces.", COUNT,
          ((f"max by (resource) (gang_reserved_amount{{{OF_GANG_SCHEDULER}}})", "{{resource}}"),)),
    Panel("Bound in part", "Gangs, and the longest time since an admission.", COUNT,
          ((f"max(gang_partly_bound{{{OF_GANG_SCHEDULER}}})", "gangs"),
           (f"max(gang_partly_bound_longest_seconds{{{OF_GANG_SCHEDULER}}})", "seconds"))),
    Panel("What is written", "Statuses of Gangs in ten minutes, by what they say.", COUNT,
          ((f"sum by (result) (increase(gang_status_writes_total{{{OF_GANG_SCHEDULER}}}[10m]))", "{{result}}"),)),
    Panel("Resize requests", "In the last hour.", COUNT,
          ((f"sum by (direction) (increase(gang_resize_requests_total{{{OF_GANG_SCHEDULER}}}[1h]))",
            "{{direction}}"),)),
))  # fmt: skip

_CALLS = Row("kube-scheduler", (
    Panel("Bindings", "A second, by how they ended.", PER_SECOND,
          ((_rate("gang_bindings_total", OF_GANG_SCHEDULER, "result"), "{{result}}"),)),
    Panel("Time of a Binding", "From its first attempt until its outcome was known.", SECONDS,
          _half_and_most("gang_binding_duration_seconds", OF_GANG_SCHEDULER)),
    Panel("Time of a filter call", "kube-scheduler waits for it.", SECONDS,
          _half_and_most("gang_extender_filter_duration_seconds", OF_GANG_SCHEDULER)),
    Panel("Time of a bind call", "The wait for the rest of the gang included.", SECONDS,
          _half_and_most("gang_extender_bind_duration_seconds", OF_GANG_SCHEDULER)),
    Panel("Calls that could not be read", "A second.", PER_SECOND,
          ((_rate("gang_extender_errors_total", OF_GANG_SCHEDULER, "verb"), "{{verb}}"),)),
    Panel("Threads that died", "And were started again.", COUNT,
          ((f"sum by (thread) (tfjob_controller_thread_restarts_total{{{OF_GANG_SCHEDULER}}}) > 0", "{{thread}}"),)),
))  # fmt: skip

DASHBOARDS = (
    Dashboard(
        CONTROLLER,
        "TFJob controller",
        (_JOBS, _QUEUES, _api(OF_CONTROLLER)),
        of_namespaces=f"label_values(tfjob_jobs{{{OF_CONTROLLER}}}, namespace)",
    ),
    Dashboard(GANG_SCHEDULER, "Gang scheduler", (_GANGS, _CALLS, _api(OF_GANG_SCHEDULER))),
)
