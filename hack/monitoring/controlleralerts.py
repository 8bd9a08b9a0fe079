"""Alerts that tell of the controller itself: it is there, it leads, it works off its queue; and of jobs."""

from __future__ import annotations

from monitoring.alert import (
    BOTH,
    CRITICAL,
    LOGS_OF_CONTROLLER,
    LOGS_OF_GANG_SCHEDULER,
    OF_CONTROLLER,
    WARNING,
    Alert,
    Group,
)

_LOGS = f"its log: `{LOGS_OF_CONTROLLER} --prefix --tail=50`"
_PODS = "`kubectl -n tfjob-system get pods -l app.kubernetes.io/name=tfjob-controller`"
_READY = "`/readyz` of a pod: it says which cache is not filled, and why"


def _loop(metric: str) -> str:
    """Since half an hour ago, or from 0 where there was nothing then."""
    now = f"max by (namespace) ({metric}{{{OF_CONTROLLER}}})"
    return f"{now} - (max by (namespace) ({metric}{{{OF_CONTROLLER}}} offset 30m) or {now} * 0) >= 5"


RUNNING = Group(
    "tfjob-controller.running",
    (
        Alert(
            name="TFJobControllerDown",
            exprs=(f"absent(up{{{OF_CONTROLLER}}} == 1)",),
            lasting="5m",
            severity=CRITICAL,
            summary="No tfjob-controller can be scraped.",
            means="Prometheus reaches no replica of the controller. Jobs that run go on, but no new one gets pods, "
            "none "
            "that ends is cleaned up, and no status changes.",
            look=(f"are there pods: {_PODS}", _LOGS, "Prometheus' page *Targets*: why a scrape fails"),
            act=(
                "no pods: `kubectl -n tfjob-system describe deploy/tfjob-controller` says what the quota, the image or "
                "admission has against them",
                f"pods that restart: `{LOGS_OF_CONTROLLER} --previous --ignore-errors --tail=5`; exit code 2 "
                "is a flag or file, and the only line names it",
                "pods that run and are not scraped: the network policy, or a PodMonitor that Prometheus does not "
                "select "
                "(see [monitoring](../monitoring.md))",
            ),
            queries=(("which targets there are", f"up{{{OF_CONTROLLER}}}"),),
        ),
        Alert(
            name="TFJobReplicaDown",
            exprs=(f"up{{{BOTH}}} == 0",),
            lasting="10m",
            severity=WARNING,
            summary="{{ $labels.job }} {{ $labels.instance }} cannot be scraped.",
            means="One replica does not answer. The other one works, but there is nobody to take over from it.",
            look=(f"the pod of that address: {_PODS} `-o wide`", "its node: `kubectl get node`"),
            act=(
                "as for [TFJobControllerDown](TFJobControllerDown.md)",
                "a node that is lost: its pod is replaced once Kubernetes has given the node up, after five minutes",
            ),
            queries=(("who answers", f"up{{{BOTH}}}"),),
        ),
        Alert(
            name="TFJobNoLeader",
            exprs=(f"max by (job, namespace, name) (leader_election_master_status{{{BOTH}}}) == 0",),
            lasting="3m",
            severity=CRITICAL,
            summary="Nobody leads {{ $labels.name }}.",
            means="Replicas run, and none holds the lease, so nobody works. A change of leaders takes 15 seconds at "
            "the "
            "most.",
            look=(
                "who holds it, and since when: `kubectl -n tfjob-system get lease -o wide`",
                _LOGS,
                "of the gang scheduler: the kube-scheduler in the same pod is the one that holds the lease",
            ),
            act=(
                "`forbidden` in the log: the Role for leases is missing or in another namespace",
                "the holder is a pod that is gone, and the lease is not taken: look at the API server's latency; the "
                "lease is taken 15 seconds after it was renewed last",
                f"of the gang scheduler: `{LOGS_OF_GANG_SCHEDULER} -c kube-scheduler --prefix --tail=50`",
            ),
            queries=(("who leads", f"leader_election_master_status{{{BOTH}}}"),),
        ),
        Alert(
            name="TFJobTwoLeaders",
            exprs=(f"sum by (job, namespace, name) (leader_election_master_status{{{BOTH}}}) > 1",),
            lasting="2m",
            severity=CRITICAL,
            summary="{{ $value }} replicas lead {{ $labels.name }}.",
            means="Two replicas say that they hold the same lease. For as long as one scrape it may look so when they "
            "change; for minutes it means that the lease was edited or deleted by hand, or that two installations "
            "share "
            "a namespace label in Prometheus. Names of children follow from the job, so no pod is made twice; statuses "
            "may go back and forth.",
            look=("the lease: `kubectl -n tfjob-system get lease -o yaml`", "which replicas, by the first query"),
            act=(
                "delete the pod that the lease does not name",
                "two installations in one cluster: each needs `--leader-elect-lease-name` and `--namespace` of its own",
            ),
            queries=(("who leads", f"leader_election_master_status{{{BOTH}}} == 1"),),
        ),
        Alert(
            name="TFJobThreadDied",
            exprs=(f"increase(tfjob_controller_thread_restarts_total{{{BOTH}}}[15m]) > 0",),
            lasting="0m",
            severity=WARNING,
            summary="Thread {{ $labels.thread }} of {{ $labels.instance }} died and was started again.",
            means="A bug outside of a sync. The thread was started again, so work goes on; if it dies again and "
            "again, what "
            "it does is not done.",
            look=(f"the traceback: `{LOGS_OF_CONTROLLER} --tail=-1 | grep 'thread died'`",),
            act=(
                "report it with the traceback",
                "a thread that dies on one object: the log names it; change or delete it",
            ),
            queries=(("which threads", f"tfjob_controller_thread_restarts_total{{{BOTH}}} > 0"),),
        ),
        Alert(
            name="TFJobOutOfFiles",
            exprs=(f"process_open_fds{{{BOTH}}} / process_max_fds{{{BOTH}}} > 0.8",),
            lasting="10m",
            severity=WARNING,
            summary="{{ $labels.instance }} uses {{ $value | humanizePercentage }} of its file descriptors.",
            means="Connections pile up. With none left, requests and scrapes fail.",
            look=("what they are: `/debug/` with `--debug-bind-address`, page `requests`",),
            act=(
                "TrainJobs whose logs are followed have a connection each, at most 500: raise the container's limit",
                "bind calls that wait for gangs have one each: see [gang scheduling](../gang-scheduling.md)",
            ),
            queries=(("how many there are", f"process_open_fds{{{BOTH}}}"),),
        ),
    ),
)

WORK = Group(
    "tfjob-controller.work",
    (
        Alert(
            name="TFJobQueueStuck",
            exprs=(f"max by (namespace, name) (workqueue_longest_running_processor_seconds{{{OF_CONTROLLER}}}) > 300",),
            lasting="5m",
            severity=CRITICAL,
            summary="A sync of {{ $labels.name }} has been running for {{ $value | humanizeDuration }}.",
            means="A worker does not come back from a job. A sync takes milliseconds, and no request more than a "
            "minute, so "
            "this one hangs. When all workers hang, nothing works.",
            look=(
                "how many hang: the first query gives the seconds of all of them together",
                _LOGS,
                "stacks of all threads: `/debug/` with `--debug-bind-address`",
            ),
            act=("delete the pod: the other replica takes over and begins anew", "report it with the stacks"),
            queries=(
                ("seconds of all", f"workqueue_unfinished_work_seconds{{{OF_CONTROLLER}}}"),
                ("workers in a sync", f"controller_runtime_active_workers{{{OF_CONTROLLER}}}"),
            ),
        ),
        Alert(
            name="TFJobQueueGrows",
            exprs=(
                f"min_over_time(workqueue_depth{{{OF_CONTROLLER}}}[15m]) > 20 "
                f"and deriv(workqueue_depth{{{OF_CONTROLLER}}}[15m]) > 0",
            ),
            lasting="5m",
            severity=WARNING,
            summary="{{ $value }} jobs of {{ $labels.name }} wait for a worker, and they become more.",
            means="More changes than the workers can take. Jobs start late and statuses are old.",
            look=("how long a job waits, and how long a sync takes: the queries",),
            act=(
                "requests wait for `--qps`: raise it, and `--burst`",
                "syncs are slow though requests are not held back: the API server is slow, see "
                "[TFJobAPISlow](TFJobAPISlow.md)",
                "neither: raise `--workers`",
            ),
            queries=(
                (
                    "99 of 100 wait less than",
                    "histogram_quantile(0.99, sum by (name, le) "
                    f"(rate(workqueue_queue_duration_seconds_bucket{{{OF_CONTROLLER}}}[10m])))",
                ),
                (
                    "99 of 100 syncs take less than",
                    "histogram_quantile(0.99, sum by (controller, le) "
                    f"(rate(controller_runtime_reconcile_time_seconds_bucket{{{OF_CONTROLLER}}}[10m])))",
                ),
                (
                    "99 of 100 requests wait for --qps less than",
                    "histogram_quantile(0.99, sum by (le) "
                    f"(rate(rest_client_rate_limiter_duration_seconds_bucket{{{OF_CONTROLLER}}}[10m])))",
                ),
            ),
        ),
        Alert(
            name="TFJobSyncsFail",
            exprs=(
                f"sum by (namespace, controller) "
                f"(rate(controller_runtime_reconcile_errors_total{{{OF_CONTROLLER}}}[10m])) "
                f"/ sum by (namespace, controller) "
                f"(rate(controller_runtime_reconcile_total{{{OF_CONTROLLER}}}[10m])) > 0.25",
            ),
            lasting="15m",
            severity=WARNING,
            summary="{{ $value | humanizePercentage }} of the syncs of {{ $labels.controller }} fail.",
            means="Some jobs are tried again and again, in vain. Each rests longer after each failure, a minute at "
            "the most.",
            look=(
                f"the jobs, and why: `{LOGS_OF_CONTROLLER} --tail=-1 | grep 'tried again'`",
                "what is refused: the query",
            ),
            act=(
                "a quota or an admission webhook refuses pods: the job's reason says so, and whose it is",
                "`forbidden`: see [TFJobRightsMissing](TFJobRightsMissing.md)",
            ),
            queries=(
                (
                    "refused requests by code",
                    f'sum by (code, method) (rate(rest_client_requests_total{{{OF_CONTROLLER}, code!~"2.."}}[10m]))',
                ),
            ),
        ),
        Alert(
            name="TFJobSyncPanics",
            exprs=(
                f"sum by (namespace, controller) "
                f"(increase(controller_runtime_reconcile_panics_total{{{OF_CONTROLLER}}}[15m]))"
                " > 0",
            ),
            lasting="0m",
            severity=WARNING,
            summary="A sync of {{ $labels.controller }} ended with an unexpected exception.",
            means="A bug that one job has brought to light. The others are not touched; that one is tried again, "
            "each time "
            "after a longer rest.",
            look=(f"the job and the traceback: `{LOGS_OF_CONTROLLER} --tail=-1 | grep 'sync failed'`",),
            act=("report it with the job's manifest and the traceback", "delete the job, or undo its last change"),
            queries=(("which controller", f"controller_runtime_reconcile_panics_total{{{OF_CONTROLLER}}}"),),
        ),
        Alert(
            name="TFJobRestartsInLoop",
            exprs=(_loop("tfjob_restarts_max"), _loop("trainjob_restarts_max")),
            kinds=("TFJob", "TrainJob"),
            lasting="5m",
            severity=WARNING,
            summary="A {{ $labels.kind }} in {{ $labels.namespace }} was restarted {{ $value }} times in half an hour.",
            means="A replica of an unfinished job fails, is restarted, and fails again. It holds its room, "
            "accelerators too, "
            "and gets nowhere. Jobs without `backoffLimit` do so for ever.",
            look=(
                "which: `kubectl -n NAMESPACE get tfjobs,trainjobs -o custom-columns=NAME:.metadata.name,"
                "RESTARTS:.status.restarts,REASON:.status.reason`",
                "why: the reason names the exit code; `kubectl -n NAMESPACE logs --previous POD`",
            ),
            act=(
                "137: out of memory, raise the limit",
                "tell its owner",
                "`kubectl -n NAMESPACE patch tfjob NAME --type=merge "
                '-p \'{"spec":{"suspend":true}}\'` frees its room until then',
            ),
            queries=(
                ("by namespace", f"tfjob_restarts_max{{{OF_CONTROLLER}}} or trainjob_restarts_max{{{OF_CONTROLLER}}}"),
            ),
        ),
        Alert(
            name="TFJobWorkersTooMany",
            exprs=(
                f"sum by (namespace) (tfjob_workers_actual{{{OF_CONTROLLER}}}) "
                f"- sum by (namespace) (tfjob_workers_desired{{{OF_CONTROLLER}}}) > 0",
            ),
            lasting="30m",
            severity=WARNING,
            summary="Jobs in {{ $labels.namespace }} have {{ $value }} workers more than they should.",
            means="A job was made smaller, by the autoscaler or by hand, and its workers have not left. The room "
            "that they "
            "should have given away is missing elsewhere.",
            look=(
                "which: `kubectl -n NAMESPACE get tfjobs -o custom-columns=NAME:.metadata.name,"
                "WANTED:.status.scaling.workers,THERE:.status.workerReplicas`",
                "pods that end slowly: `kubectl -n NAMESPACE get pods | grep Terminating`",
            ),
            act=(
                "a pod on a lost node stays until the node is deleted",
                "a finalizer of somebody else: its owner must remove it",
            ),
            queries=(
                ("there", f"tfjob_workers_actual{{{OF_CONTROLLER}}}"),
                ("wanted", f"tfjob_workers_desired{{{OF_CONTROLLER}}}"),
            ),
        ),
    ),
)
