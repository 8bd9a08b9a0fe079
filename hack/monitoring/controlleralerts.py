"""Alerts about the controller (it runs, leads and processes its queue) and about jobs."""

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

_LOGS = f"the log: `{LOGS_OF_CONTROLLER} --prefix --tail=50`"
_PODS = "`kubectl -n tfjob-system get pods -l app.kubernetes.io/name=tfjob-controller`"


def _loop(metric: str) -> str:
    """Returns an expression: it rose by 5 in half an hour, counted from 0 for series that are newer."""
    now = f"max by (namespace) ({metric}{{{OF_CONTROLLER}}})"
    return f"{now} - (max by (namespace) ({metric}{{{OF_CONTROLLER}}} offset 30m) or {now} * 0) >= 5"


# Training programs save every few minutes up to once an hour.
_OLD_CHECKPOINT_SECONDS = 2 * 3600

RUNNING = Group(
    "tfjob-controller.running",
    (
        Alert(
            name="TFJobControllerDown",
            exprs=(f"absent(up{{{OF_CONTROLLER}}} == 1)",),
            lasting="5m",
            severity=CRITICAL,
            summary="No tfjob-controller can be scraped.",
            means="Prometheus reaches no replica of the controller. Running jobs continue, but new jobs get no pods, "
            "ended jobs are not cleaned up, and statuses do not change.",
            look=(f"whether there are pods: {_PODS}", _LOGS, "why a scrape fails: Prometheus' page *Targets*"),
            act=(
                "no pods: `kubectl -n tfjob-system describe deploy/tfjob-controller` names the quota, image or "
                "admission policy that prevents them",
                f"pods that restart: `{LOGS_OF_CONTROLLER} --previous --ignore-errors --tail=5`; with exit code 2 the "
                "only line names the invalid flag or file",
                "pods that run but are not scraped: check the network policy, and whether Prometheus selects the "
                "PodMonitor ([monitoring](../monitoring.md))",
            ),
            queries=(("targets", f"up{{{OF_CONTROLLER}}}"),),
        ),
        Alert(
            name="TFJobReplicaDown",
            exprs=(f"up{{{BOTH}}} == 0",),
            lasting="10m",
            severity=WARNING,
            summary="{{ $labels.job }} {{ $labels.instance }} cannot be scraped.",
            means="One replica does not respond. Another one works, but fewer are left to take over.",
            look=(f"the pod with that address: {_PODS} `-o wide`", "its node: `kubectl get node`"),
            act=(
                "as for [TFJobControllerDown](TFJobControllerDown.md)",
                "on a lost node, Kubernetes replaces the pod after about five minutes",
            ),
            queries=(("replicas that respond", f"up{{{BOTH}}}"),),
        ),
        Alert(
            name="TFJobNoLeader",
            exprs=(f"max by (job, namespace, name) (leader_election_master_status{{{BOTH}}}) == 0",),
            lasting="3m",
            severity=CRITICAL,
            summary="No replica leads {{ $labels.name }}.",
            means="Replicas run, but none holds the lease, so none works. A change of leaders takes at most 15 "
            "seconds.",
            look=(
                "the holder of the lease: `kubectl -n tfjob-system get lease -o wide`",
                _LOGS,
                "for the gang scheduler: the kube-scheduler in the same pod holds the lease",
            ),
            act=(
                "`forbidden` in the log: the Role for leases is missing or in another namespace",
                "the holder is a deleted pod, and no replica takes the lease 15 seconds after its last renewal: "
                "check the latency of the API server",
                f"for the gang scheduler: `{LOGS_OF_GANG_SCHEDULER} -c kube-scheduler --prefix --tail=50`",
            ),
            queries=(("leaders", f"leader_election_master_status{{{BOTH}}}"),),
        ),
        Alert(
            name="TFJobTwoLeaders",
            exprs=(f"sum by (job, namespace, name) (leader_election_master_status{{{BOTH}}}) > 1",),
            lasting="2m",
            severity=CRITICAL,
            summary="{{ $value }} replicas lead {{ $labels.name }}.",
            means="Two replicas report that they hold the same lease. During a change of leaders one scrape may show "
            "this; for minutes it means that the lease was edited or deleted by hand, or that two "
            "installations share a namespace label in Prometheus. Names of children follow from the job, so no "
            "pod is created twice; statuses may alternate.",
            look=("the lease: `kubectl -n tfjob-system get lease -o yaml`", "which replicas lead: the query"),
            act=(
                "delete the pod that the lease does not name",
                "give each of two installations in one cluster its own `--leader-elect-lease-name` and `--namespace`",
            ),
            queries=(("leaders", f"leader_election_master_status{{{BOTH}}} == 1"),),
        ),
        Alert(
            name="TFJobThreadDied",
            exprs=(f"increase(tfjob_controller_thread_restarts_total{{{BOTH}}}[15m]) > 0",),
            lasting="0m",
            severity=WARNING,
            summary="Thread {{ $labels.thread }} of {{ $labels.instance }} died and was restarted.",
            means="There is a bug outside of a sync. The thread was restarted, so work continues; if it dies "
            "repeatedly, its work is not done.",
            look=(f"the traceback: `{LOGS_OF_CONTROLLER} --tail=-1 | grep 'thread died'`",),
            act=(
                "report it with the traceback",
                "if it dies because of one object, which the log names, change or delete that object",
            ),
            queries=(("restarted threads", f"tfjob_controller_thread_restarts_total{{{BOTH}}} > 0"),),
        ),
        Alert(
            name="TFJobOutOfFiles",
            exprs=(f"process_open_fds{{{BOTH}}} / process_max_fds{{{BOTH}}} > 0.8",),
            lasting="10m",
            severity=WARNING,
            summary="{{ $labels.instance }} uses {{ $value | humanizePercentage }} of its file descriptors.",
            means="The number of open connections grows. At the limit, requests and scrapes fail.",
            look=("open requests: `/debug/` with `--debug-bind-address`, page `requests`",),
            act=(
                "TrainJobs whose logs are followed use a connection each, at most 500: raise the container's limit",
                "each waiting bind call of a gang uses one: see [gang scheduling](../gang-scheduling.md)",
            ),
            queries=(("open file descriptors", f"process_open_fds{{{BOTH}}}"),),
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
            means="A sync takes milliseconds, and a request at most a minute, so this sync hangs and blocks a "
            "worker. If all workers hang, no job is processed.",
            look=(
                "the first query: the sum of the seconds of all running syncs",
                _LOGS,
                "stacks of all threads: `/debug/` with `--debug-bind-address`",
            ),
            act=("delete the pod: another replica takes over", "report it with the stacks"),
            queries=(
                ("seconds of all running syncs", f"workqueue_unfinished_work_seconds{{{OF_CONTROLLER}}}"),
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
            summary="{{ $value }} jobs of {{ $labels.name }} wait for a worker, and their number grows.",
            means="There are more changes than the workers can process. Jobs start late, and statuses are outdated.",
            look=("how long a job waits, and how long a sync takes: the queries",),
            act=(
                "requests wait for `--qps`: raise it, and `--burst`",
                "syncs are slow, but requests do not wait: the API server is slow, see [TFJobAPISlow](TFJobAPISlow.md)",
                "otherwise raise `--workers`",
            ),
            queries=(
                (
                    "99th percentile of the wait for a worker",
                    "histogram_quantile(0.99, sum by (name, le) "
                    f"(rate(workqueue_queue_duration_seconds_bucket{{{OF_CONTROLLER}}}[10m])))",
                ),
                (
                    "99th percentile of the time of a sync",
                    "histogram_quantile(0.99, sum by (controller, le) "
                    f"(rate(controller_runtime_reconcile_time_seconds_bucket{{{OF_CONTROLLER}}}[10m])))",
                ),
                (
                    "99th percentile of the wait for --qps",
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
            means="The syncs of some jobs fail repeatedly. The delay of each job grows with every failure, up to a "
            "minute.",
            look=(
                f"the jobs and the errors: `{LOGS_OF_CONTROLLER} --tail=-1 | grep 'will be retried'`",
                "refused requests: the query",
            ),
            act=(
                "a quota or an admission webhook refuses pods: the job's reason names it",
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
            means="One job triggers a bug. Other jobs are not affected; this one is retried with a growing delay.",
            look=(f"the job and the traceback: `{LOGS_OF_CONTROLLER} --tail=-1 | grep 'sync failed'`",),
            act=("report it with the job's manifest and the traceback", "delete the job, or undo its last change"),
            queries=(("by controller", f"controller_runtime_reconcile_panics_total{{{OF_CONTROLLER}}}"),),
        ),
        Alert(
            name="TFJobRestartsInLoop",
            exprs=(_loop("tfjob_restarts_max"), _loop("trainjob_restarts_max")),
            kinds=("TFJob", "TrainJob"),
            lasting="5m",
            severity=WARNING,
            summary="A {{ $labels.kind }} in {{ $labels.namespace }} was restarted {{ $value }} times in half an hour.",
            means="A replica of an unfinished job fails after every restart. The job keeps its capacity, including "
            "accelerators, without progress. Without `backoffLimit` (TFJob) or `maxRestarts` (TrainJob) this "
            "never ends.",
            look=(
                "which job: `kubectl -n NAMESPACE get tfjobs,trainjobs -o custom-columns=NAME:.metadata.name,"
                "RESTARTS:.status.restarts,REASON:.status.reason`",
                "the cause: the reason names the exit code; `kubectl -n NAMESPACE logs --previous POD`",
            ),
            act=(
                "exit code 137 (OOMKilled): raise the memory limit",
                "inform its owner",
                "`kubectl -n NAMESPACE patch tfjob NAME --type=merge "
                '-p \'{"spec":{"suspend":true}}\'` frees its capacity until then',
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
            summary="Jobs in {{ $labels.namespace }} have {{ $value }} workers too many.",
            means="A job was made smaller, by the autoscaler or by hand, but removed workers still exist, so their "
            "capacity is not free.",
            look=(
                "which job: `kubectl -n NAMESPACE get tfjobs -o custom-columns=NAME:.metadata.name,"
                "WANTED:.status.scaling.workers,THERE:.status.workerReplicas`",
                "pods that terminate slowly: `kubectl -n NAMESPACE get pods | grep Terminating`",
            ),
            act=(
                "a pod on a lost node stays until the node is deleted",
                "a finalizer of another controller: its owner must remove it",
            ),
            queries=(
                ("existing", f"tfjob_workers_actual{{{OF_CONTROLLER}}}"),
                ("desired", f"tfjob_workers_desired{{{OF_CONTROLLER}}}"),
            ),
        ),
        Alert(
            name="TFJobCheckpointOld",
            # The label `job` names a training job here.
            exprs=(
                'time() - max by (kind, namespace, job) (tfjob_checkpoint_timestamp_seconds{kind!=""}) '
                f"> {_OLD_CHECKPOINT_SECONDS}",
            ),
            lasting="15m",
            severity=WARNING,
            summary="{{ $labels.kind }} {{ $labels.job }} in {{ $labels.namespace }} has saved no checkpoint for "
            "{{ $value | humanizeDuration }}.",
            means="The job runs, and has `spec.checkpoint`, but its last checkpoint is more than two hours old, or it "
            "has saved none since it began to run. A restart costs all that was trained since then. Change the rule if "
            "jobs save less often by intention.",
            look=(
                "why saving fails: `kubectl -n NAMESPACE get trainjob NAME -o jsonpath='{.status.checkpoint.failure}'`",
                "what the sidecar says: `kubectl -n NAMESPACE logs POD -c checkpoint-save`, of node 0",
                "whether the program writes checkpoints into the folder, and when a file or folder in it last changed: "
                "`kubectl -n NAMESPACE exec POD -c checkpoint-save -- ls -l /workspace/checkpoints`",
                "whether the controller may read logs: its log has `cannot follow a log`",
            ),
            act=(
                "missing rights, a full or a wrong storage: correct the Secret, the quota or the URI; saving is tried "
                "again by itself",
                "the program saves too rarely or into another folder: inform the job's owner",
            ),
            queries=(
                ("oldest", 'topk(10, time() - max by (namespace, job) (tfjob_checkpoint_timestamp_seconds{kind!=""}))'),
                ("failures", f"rate(trainjob_checkpoint_failures_total{{{OF_CONTROLLER}}}[10m])"),
            ),
        ),
    ),
)
