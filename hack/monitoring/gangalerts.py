"""Alerts about the gang scheduler."""

from __future__ import annotations

from monitoring.alert import CRITICAL, LOGS_OF_GANG_SCHEDULER, OF_CONTROLLER, OF_GANG_SCHEDULER, WARNING, Alert, Group

_LOGS = f"the log: `{LOGS_OF_GANG_SCHEDULER} -c extender --prefix --tail=50`"
_QUEUE = "the queue, with the message of each gang: `kubectl get gangs -A --sort-by=.status.position`"
_LENGTH = ("waiting gangs", f"gang_queue_length{{{OF_GANG_SCHEDULER}}}")


def _waits(fits: str, seconds: int) -> str:
    metric = f'gang_queue_longest_wait_seconds{{{OF_GANG_SCHEDULER}, fits="{fits}"}}'
    return f"max by (namespace) ({metric}) > {seconds}"


GANGS = Group(
    "gang-scheduler",
    (
        Alert(
            name="GangSchedulerDown",
            exprs=(
                f'max(informer_objects{{{OF_CONTROLLER}, name="gangs"}}) > 0 '
                f"unless on () (max(up{{{OF_GANG_SCHEDULER}}}) == 1)",
            ),
            lasting="5m",
            severity=CRITICAL,
            summary="There are gangs, but no gang scheduler can be scraped.",
            means="Gangs wait, and none is admitted. Bound gangs continue.",
            look=(
                "whether there are pods: `kubectl -n tfjob-system get pods -l app.kubernetes.io/name=gang-scheduler`",
                _LOGS,
            ),
            act=(
                "it is not installed: `kubectl apply -k manifests/overlays/gang-scheduling`, or start the controller "
                "with `--gang-scheduling=off`",
                "as for [TFJobControllerDown](TFJobControllerDown.md)",
            ),
            queries=(
                ("targets", f"up{{{OF_GANG_SCHEDULER}}}"),
                ("gangs in the controller's cache", f'informer_objects{{{OF_CONTROLLER}, name="gangs"}}'),
            ),
        ),
        Alert(
            name="GangWaitsThoughItFits",
            exprs=(_waits("yes", 300),),
            lasting="5m",
            severity=WARNING,
            summary="A gang has waited for {{ $value | humanizeDuration }}, although there is capacity for it.",
            means="The nodes have capacity for a gang that no other gang comes before, but it does not start: its "
            "attempts fail and it backs off in between, or its admission cannot be written.",
            look=(
                _QUEUE,
                "the last attempt: `kubectl -n NAMESPACE describe gang NAME` says how many pods were bound in time",
                "failed attempts and writes: the queries",
            ),
            act=(
                "its owner creates no pods: the controller is down, or a quota refuses them; see the job's reason",
                "kube-scheduler rejects the nodes for reasons that admission does not consider (volumes, ports, "
                "topology spread): see the pods' events, and [limits](../gang-scheduling.md#limits)",
                "status writes fail: see [TFJobAPIErrors](TFJobAPIErrors.md)",
            ),
            queries=(
                _LENGTH,
                (
                    "attempts and writes",
                    f"sum by (result) (increase(gang_status_writes_total{{{OF_GANG_SCHEDULER}}}[30m]))",
                ),
            ),
        ),
        Alert(
            name="GangQueueStuck",
            exprs=(_waits("unknown", 60),),
            lasting="5m",
            severity=CRITICAL,
            summary="A gang has waited for {{ $value | humanizeDuration }}, and has not been considered.",
            means="The admission loop does not process the queue: it hangs or dies repeatedly. No gang is admitted.",
            look=(
                _LOGS,
                "whether its thread died: the query",
                "stacks of all threads: `/debug/` with `--debug-bind-address`",
            ),
            act=(
                "delete the pod of the leader: the other one restores all reservations from the Gangs",
                "report it with the log",
            ),
            queries=(
                _LENGTH,
                (
                    "restarts of its thread",
                    f'tfjob_controller_thread_restarts_total{{{OF_GANG_SCHEDULER}, thread="admission"}}',
                ),
            ),
        ),
        Alert(
            name="GangRoomHeld",
            exprs=(_waits("held", 3600),),
            lasting="30m",
            severity=WARNING,
            summary="A gang could start, but its capacity is kept for an older gang; it has waited for {{ $value | "
            "humanizeDuration }}.",
            means="An older gang has waited for longer than the starvation timeout, so no gang behind it may use "
            "nodes that it could use. This keeps large gangs from starving, but for hours it means idle nodes.",
            look=(_QUEUE, "what the gang at position 1 lacks: its message"),
            act=(
                "pods without a gang occupy its nodes: drain or move them",
                "if the older gang is not urgent, suspend it, and those behind it start",
                "raise `--starvation-timeout` to let small gangs start first for longer",
            ),
            queries=(_LENGTH, ("used resources", f"gang_cluster_used_ratio{{{OF_GANG_SCHEDULER}}}")),
        ),
        Alert(
            name="GangPartlyBound",
            exprs=(f"max by (namespace) (gang_partly_bound_longest_seconds{{{OF_GANG_SCHEDULER}}}) > 300",),
            lasting="2m",
            severity=CRITICAL,
            summary="A gang has been partly bound for {{ $value | humanizeDuration }}.",
            means="Some pods of a gang are bound and hold accelerators, others are not. After the first Binding an "
            "attempt is only completed: the missing members are reassigned to other nodes until all are bound. "
            "If this takes minutes, there is no other capacity, or their pods are not created.",
            look=(
                "which gang: `kubectl get gangs -A | grep Admitted`, and its pods without a node: `kubectl -n "
                "NAMESPACE get pods -l scheduling.kubeflow.org/gang=NAME -o wide`",
                "a node that was lost or filled: the events of the Gang (`Reassigned`)",
            ),
            act=(
                "free capacity: drain or delete other pods, or add a node",
                "a pod does not exist: its owner must create it; see the job's reason",
                "to give up the attempt, suspend the job (`spec.suspend: true`): all of its pods are deleted, and it "
                "queues again when it is resumed",
            ),
            queries=(
                ("partly bound gangs", f"gang_partly_bound{{{OF_GANG_SCHEDULER}}}"),
                (
                    "Bindings by outcome",
                    f"sum by (result) (increase(gang_bindings_total{{{OF_GANG_SCHEDULER}}}[15m]))",
                ),
            ),
        ),
        Alert(
            name="GangRepairs",
            exprs=(
                "sum by (namespace) (increase(gang_status_writes_total"
                f'{{{OF_GANG_SCHEDULER}, result=~"reassigned|requeued"}}[30m])) > 10',
            ),
            lasting="5m",
            severity=WARNING,
            summary="{{ $value | humanize }} placements were repaired or given up in half an hour.",
            means="Admitted gangs are reassigned to other nodes (`reassigned`) or return to the queue (`requeued`). "
            "Each delays a start; the cause is often a single node or a single gang.",
            look=(
                "which gangs: `kubectl get events -A --field-selector reason=Reassigned`",
                "which of the two: the query",
            ),
            act=(
                "a node accepts no pods although it is Ready: cordon it",
                "`requeued`: pods are not bound within `--bind-timeout`; see "
                "[GangWaitsThoughItFits](GangWaitsThoughItFits.md)",
            ),
            queries=(
                ("by result", f"sum by (result) (increase(gang_status_writes_total{{{OF_GANG_SCHEDULER}}}[30m]))"),
            ),
        ),
        Alert(
            name="GangBindingsRefused",
            exprs=(
                "sum by (namespace) (increase(gang_bindings_total"
                f'{{{OF_GANG_SCHEDULER}, result=~"refused|late|elsewhere"}}[15m])) > 5',
            ),
            lasting="5m",
            severity=WARNING,
            summary="{{ $value | humanize }} Bindings failed in a quarter of an hour.",
            means="The API server refuses Bindings (`refused`), they did not succeed in time (`late`), or another "
            "scheduler has bound the pods to other nodes (`elsewhere`).",
            look=(f"the message: `{LOGS_OF_GANG_SCHEDULER} -c extender --tail=-1 | grep 'not bound'`",),
            act=(
                "`forbidden`: apply the gang scheduler's ClusterRole",
                "`elsewhere`: another scheduler binds these pods; only one scheduler may use their `schedulerName`",
                "`late`: see [TFJobAPISlow](TFJobAPISlow.md)",
            ),
            queries=(("by result", f"sum by (result) (increase(gang_bindings_total{{{OF_GANG_SCHEDULER}}}[15m]))"),),
        ),
        Alert(
            name="GangFilterSlow",
            exprs=(
                "histogram_quantile(0.99, sum by (namespace, le) "
                f"(rate(gang_extender_filter_duration_seconds_bucket{{{OF_GANG_SCHEDULER}}}[5m]))) > 0.1",
            ),
            lasting="10m",
            severity=WARNING,
            summary="Filter calls of kube-scheduler take up to {{ $value | humanizeDuration }}.",
            means="kube-scheduler waits for each of these calls, so it schedules fewer pods a second. With enough "
            "CPU they take less than a millisecond.",
            look=("CPU: the query, against the container's limit", _LOGS),
            act=(
                "raise or remove the extender's CPU limit",
                "thousands of gangs wait, and each scheduling cycle uses the interpreter: see the "
                "[benchmarks](../benchmarks.md)",
            ),
            queries=(("CPU", f"rate(process_cpu_seconds_total{{{OF_GANG_SCHEDULER}}}[5m])"),),
        ),
    ),
)
