"""The dashboards, from jobs down to requests."""

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
    """Returns a quantile over an hour, for rare observations."""
    return f"histogram_quantile({share}, sum by (le) (rate({metric}_bucket{{{of}}}[1h])))"


def _half_and_most(metric: str, of: str, by: str = "", legend: str = "") -> tuple[tuple[str, str], ...]:
    return (
        (_quantile(0.5, metric, of, by), f"median {legend}".strip()),
        (_quantile(0.99, metric, of, by), f"p99 {legend}".strip()),
    )


# All replicas count their own work; only the leader reports what is counted in caches.
_JOBS = Row("Jobs", (
    Panel("TFJobs by state", "Jobs that exist.", COUNT,
          ((f"sum by (phase, state) (tfjob_jobs{{{_OF_JOBS}}})", "{{phase}} {{state}}"),)),
    Panel("TrainJobs by state", "Jobs that exist.", COUNT,
          ((f"sum by (phase, state) (trainjob_jobs{{{_OF_JOBS}}})", "{{phase}} {{state}}"),)),
    Panel("Replicas", "Of both kinds, by state.", COUNT,
          ((f"sum by (type, state) (tfjob_replicas{{{_OF_JOBS}}})", "{{type}} {{state}}"),
           (f"sum by (type, state) (trainjob_replicas{{{_OF_JOBS}}})", "TrainJob {{type}} {{state}}"))),
    Panel("Ended jobs", "In the last hour.", COUNT,
          ((f"sum by (state) (increase(tfjob_finished_total{{{OF_CONTROLLER}}}[1h]))", "TFJob {{state}}"),
           (f"sum by (state) (increase(trainjob_finished_total{{{OF_CONTROLLER}}}[1h]))", "TrainJob {{state}}"))),
    Panel("Time to running", "From the creation of a job until its chief runs, over an hour.", SECONDS,
          ((_lately(0.5, "tfjob_time_to_running_seconds", OF_CONTROLLER),
            "TFJob, median"),
           (_lately(0.95, "tfjob_time_to_running_seconds", OF_CONTROLLER),
            "TFJob, p95"),
           (_lately(0.95, "trainjob_time_to_running_seconds", OF_CONTROLLER),
            "TrainJob, p95"))),
    Panel("Restarts", "Of replicas, in the last hour; and the maximum of one unfinished job.", COUNT,
          ((f"sum(increase(tfjob_restarts_total{{{OF_CONTROLLER}}}[1h]))", "TFJobs"),
           (f"sum(increase(trainjob_restarts_total{{{OF_CONTROLLER}}}[1h]))", "TrainJobs"),
           (f"max by (namespace) (tfjob_restarts_max{{{_OF_JOBS}}})", "maximum of one TFJob in {{namespace}}"),
           (f"max by (namespace) (trainjob_restarts_max{{{_OF_JOBS}}})", "maximum of one TrainJob in {{namespace}}"))),
    Panel("Workers: desired and actual", "Of unfinished TFJobs.", COUNT,
          ((f"sum(tfjob_workers_desired{{{_OF_JOBS}}})", "desired"),
           (f"sum(tfjob_workers_actual{{{_OF_JOBS}}})", "actual"))),
    Panel("Resizes", "Of running TFJobs, in the last hour.", COUNT,
          ((f"sum by (direction, reason) (increase(tfjob_resizes_total{{{OF_CONTROLLER}}}[1h]))",
            "{{direction}}, by {{reason}}"),)),
    Panel("Jobs with training metrics", "Running jobs; those beyond 1,000 have no series.", COUNT,
          ((f"sum by (kind) (tfjob_training_metric_jobs{{{_OF_JOBS}}})", "{{kind}}"),
           (f"sum(tfjob_training_metric_jobs_omitted{{{OF_CONTROLLER}}})", "without series"))),
))  # fmt: skip

_QUEUES = Row("Work", (
    Panel("Leader", "1 where a replica leads.", COUNT,
          ((f"leader_election_master_status{{{BOTH}}}", "{{job}} {{pod}}"),)),
    Panel("Queue length", "Jobs that wait for a worker.", COUNT,
          ((f"sum by (name) (workqueue_depth{{{OF_CONTROLLER}}})", "{{name}}"),)),
    Panel("Queue time", "From a change to the start of its sync.", SECONDS,
          _half_and_most("workqueue_queue_duration_seconds", OF_CONTROLLER, "name", "{{name}}")),
    Panel("Syncs", "Per second, by result.", PER_SECOND,
          ((_rate("controller_runtime_reconcile_total", OF_CONTROLLER, "controller, result"),
            "{{controller}} {{result}}"),)),
    Panel("Sync duration", "Including requests.", SECONDS,
          _half_and_most("controller_runtime_reconcile_time_seconds", OF_CONTROLLER, "controller", "{{controller}}")),
    Panel("Busy workers", "And the number of workers.", COUNT,
          ((f"sum by (controller) (controller_runtime_active_workers{{{OF_CONTROLLER}}})", "{{controller}}"),
           (f"max by (controller) (controller_runtime_max_concurrent_reconciles{{{OF_CONTROLLER}}})",
             "{{controller}}: all"))),
    Panel("Longest running sync", "A sync of more than a minute hangs.", SECONDS,
          ((f"max by (name) (workqueue_longest_running_processor_seconds{{{OF_CONTROLLER}}})", "{{name}}"),)),
    Panel("Failures", "Syncs per second that ended with an error; those that are not retried; bugs.", PER_SECOND,
          ((_rate("controller_runtime_reconcile_errors_total", OF_CONTROLLER, "controller"), "{{controller}}: errors"),
           (_rate("controller_runtime_terminal_reconcile_errors_total", OF_CONTROLLER, "controller"),
             "{{controller}}: not retried"),
           (_rate("controller_runtime_reconcile_panics_total", OF_CONTROLLER, "controller"), "{{controller}}: bugs"))),
    Panel("Restarted threads", "Threads that died because of a bug.", COUNT,
          ((f"sum by (job, thread) (tfjob_controller_thread_restarts_total{{{OF_CONTROLLER}}}) > 0",
            "{{job}} {{thread}}"),)),
))  # fmt: skip


def _api(of: str) -> Row:
    return Row("API server", (
        Panel("Requests", "Per second, by code.", PER_SECOND,
              ((_rate("rest_client_requests_total", of, "method, code"), "{{method}} {{code}}"),)),
        Panel("Request duration", "Until the whole response; for a watch until its headers.", SECONDS,
              ((_quantile(0.99, "rest_client_request_duration_seconds", of, "verb"), "p99 {{verb}}"),)),
        Panel("Wait for --qps", "Time that requests wait for the client-side rate limit.", SECONDS,
              _half_and_most("rest_client_rate_limiter_duration_seconds", of)),
        Panel("Objects in caches", "By kind; each replica has its own.", COUNT,
              ((f"max by (name) (informer_objects{{{of}}})", "{{name}}"),)),
        Panel("Watch events", "Per second.", PER_SECOND,
              ((_rate("reflector_events_total", of, "name"), "{{name}}"),)),
        Panel("Pending notifications", "Changes that handlers have not seen yet; many mean too little CPU.", COUNT,
              ((f"max by (name) (informer_pending_notifications{{{of}}})", "{{name}}"),)),
        Panel("Lists and watches", "In ten minutes: failures, and full lists.", COUNT,
              ((f"sum by (name) (increase(reflector_failures_total{{{of}}}[10m]))", "{{name}} failed"),
               (f"sum by (name) (increase(reflector_lists_total{{{of}}}[10m]))", "{{name}} listed"))),
        Panel("CPU", "Cores.", COUNT, ((f"rate(process_cpu_seconds_total{{{of}}}[{RATE_INTERVAL}])", "{{pod}}"),)),
        Panel("Memory", "Resident.", BYTES, ((f"process_resident_memory_bytes{{{of}}}", "{{pod}}"),)),
    ))  # fmt: skip


# Every replica has the Gangs in its cache: the maximum, not the sum.
_GANGS = Row("Gangs", (
    Panel("Gangs by phase", "Gangs that exist.", COUNT,
          ((f"max by (phase) (gang_gangs{{{OF_GANG_SCHEDULER}}})", "{{phase}}"),)),
    Panel("Waiting gangs", "By whether there is capacity: yes, held for an older gang, no, unknown.", COUNT,
          ((f"max by (fits) (gang_queue_length{{{OF_GANG_SCHEDULER}}})", "{{fits}}"),)),
    Panel("Longest wait", "Of waiting gangs, by whether there is capacity.", SECONDS,
          ((f"max by (fits) (gang_queue_longest_wait_seconds{{{OF_GANG_SCHEDULER}}})", "{{fits}}"),)),
    Panel("Time until admission", "Of gangs that were admitted in the last hour.", SECONDS,
          ((_lately(0.5, "gang_waiting_seconds", OF_GANG_SCHEDULER), "median"),
           (_lately(0.95, "gang_waiting_seconds", OF_GANG_SCHEDULER),
            "p95"))),
    Panel("Used", "Requests of bound pods, as a share of all nodes.", SHARE,
          ((f"max by (resource) (gang_cluster_used_ratio{{{OF_GANG_SCHEDULER}}})", "{{resource}}"),)),
    Panel("Reserved", "For members whose pods are not bound yet: thousandths of a CPU, bytes, pieces.", COUNT,
          ((f"max by (resource) (gang_reserved_amount{{{OF_GANG_SCHEDULER}}})", "{{resource}}"),)),
    Panel("Partly bound", "Gangs, and the longest time since their admission.", COUNT,
          ((f"max(gang_partly_bound{{{OF_GANG_SCHEDULER}}})", "gangs"),
           (f"max(gang_partly_bound_longest_seconds{{{OF_GANG_SCHEDULER}}})", "seconds"))),
    Panel("Status updates", "Of Gangs, in ten minutes, by result.", COUNT,
          ((f"sum by (result) (increase(gang_status_writes_total{{{OF_GANG_SCHEDULER}}}[10m]))", "{{result}}"),)),
    Panel("Resize requests", "In the last hour.", COUNT,
          ((f"sum by (direction) (increase(gang_resize_requests_total{{{OF_GANG_SCHEDULER}}}[1h]))",
            "{{direction}}"),)),
))  # fmt: skip

_CALLS = Row("kube-scheduler", (
    Panel("Bindings", "Per second, by result.", PER_SECOND,
          ((_rate("gang_bindings_total", OF_GANG_SCHEDULER, "result"), "{{result}}"),)),
    Panel("Binding duration", "From the first attempt until the outcome is known.", SECONDS,
          _half_and_most("gang_binding_duration_seconds", OF_GANG_SCHEDULER)),
    Panel("Filter call duration", "kube-scheduler waits for these calls.", SECONDS,
          _half_and_most("gang_extender_filter_duration_seconds", OF_GANG_SCHEDULER)),
    Panel("Bind call duration", "Including the wait for the other members.", SECONDS,
          _half_and_most("gang_extender_bind_duration_seconds", OF_GANG_SCHEDULER)),
    Panel("Invalid calls", "Per second.", PER_SECOND,
          ((_rate("gang_extender_errors_total", OF_GANG_SCHEDULER, "verb"), "{{verb}}"),)),
    Panel("Restarted threads", "Threads that died because of a bug.", COUNT,
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
