"""Alerts that tell of the gang scheduler."""

from __future__ import annotations

from monitoring.alert import CRITICAL, LOGS_OF_GANG_SCHEDULER, OF_CONTROLLER, OF_GANG_SCHEDULER, WARNING, Alert, Group

_LOGS = f"its log: `{LOGS_OF_GANG_SCHEDULER} -c extender --prefix --tail=50`"
_QUEUE = "the queue, with what each gang is told: `kubectl get gangs -A --sort-by=.status.position`"
_LENGTH = ("who waits", f"gang_queue_length{{{OF_GANG_SCHEDULER}}}")


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
            summary="There are gangs, and no gang scheduler can be scraped.",
            means="Gangs wait, and nobody admits them. Those that are bound run on.",
            look=("are there pods: `kubectl -n tfjob-system get pods -l app.kubernetes.io/name=gang-scheduler`", _LOGS),
            act=(
                "it was never installed: `kubectl apply -k manifests/overlays/gang-scheduling`, or "
                "`--gang-scheduling=off` for the controller",
                "as for [TFJobControllerDown](TFJobControllerDown.md)",
            ),
            queries=(
                ("targets", f"up{{{OF_GANG_SCHEDULER}}}"),
                ("gangs that the controller sees", f'informer_objects{{{OF_CONTROLLER}, name="gangs"}}'),
            ),
        ),
        Alert(
            name="GangWaitsThoughItFits",
            exprs=(_waits("yes", 300),),
            lasting="5m",
            severity=WARNING,
            summary="A gang has waited for {{ $value | humanizeDuration }}, and there is room for it.",
            means="The nodes have room for a gang, nobody else has a claim to it, and it does not start: its "
            "attempts come to "
            "nothing and it rests in between, or its admission cannot be written.",
            look=(
                _QUEUE,
                "the last attempt: `kubectl -n NAMESPACE describe gang NAME` says how many pods were bound in time",
                "attempts and writes that failed: the queries",
            ),
            act=(
                "its owner creates no pods: the controller is down, or a quota refuses them; see the job's reason",
                "kube-scheduler refuses the nodes for reasons that the Gang does not tell (volumes, ports, topology "
                "spread): see its events, and [what is compared](../gang-scheduling.md)",
                "status writes that fail: see [TFJobAPIErrors](TFJobAPIErrors.md)",
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
            summary="A gang has waited for {{ $value | humanizeDuration }}, and nobody has looked at it.",
            means="The admission loop does not come round: it hangs, dies again and again, or cannot be woken. No "
            "gang is "
            "admitted.",
            look=(_LOGS, "has its thread died: the query", "stacks: `/debug/` with `--debug-bind-address`"),
            act=(
                "delete the pod that leads: the other one reads all reservations back from the Gangs",
                "report it with the log",
            ),
            queries=(
                _LENGTH,
                (
                    "threads that died",
                    f'tfjob_controller_thread_restarts_total{{{OF_GANG_SCHEDULER}, thread="admission"}}',
                ),
            ),
        ),
        Alert(
            name="GangRoomHeld",
            exprs=(_waits("held", 3600),),
            lasting="30m",
            severity=WARNING,
            summary="A gang could start, but its room has been held for another; it has waited for {{ $value | "
            "humanizeDuration }}.",
            means="An older gang has waited so long that nobody behind it may take nodes that it could use. That is "
            "what "
            "keeps large gangs from starving; for hours it means idle nodes.",
            look=(_QUEUE, "the one at position 1 says what it lacks"),
            act=(
                "pods of nobody's gang are in its way: drain or move them",
                "it need not run now: suspend it, and those behind it start",
                "raise `--starvation-timeout` if small gangs should go first for longer",
            ),
            queries=(_LENGTH, ("how much is used", f"gang_cluster_used_ratio{{{OF_GANG_SCHEDULER}}}")),
        ),
        Alert(
            name="GangPartlyBound",
            exprs=(f"max by (namespace) (gang_partly_bound_longest_seconds{{{OF_GANG_SCHEDULER}}}) > 300",),
            lasting="2m",
            severity=CRITICAL,
            summary="A gang has been bound in part for {{ $value | humanizeDuration }}.",
            means="Some pods of a gang are on their nodes and hold accelerators, others are not there. From the "
            "first Binding "
            "on there is only forward: those that are missing get other nodes until all are bound. That this takes "
            "minutes "
            "means that there is no other room, or that their pods do not come.",
            look=(
                "which: `kubectl get gangs -A | grep Admitted`, and its pods without a node: "
                "`kubectl -n NAMESPACE get pods -l scheduling.kubeflow.org/gang=NAME -o wide`",
                "a node that was lost or filled meanwhile: events of the Gang (`Reassigned`)",
            ),
            act=(
                "make room: drain or delete what is in the way, or add a node",
                "a pod that is missing altogether: its owner must make it; look at the job's reason",
                "give it up: suspend the job (`spec.suspend: true`); all its pods go, and it begins anew later",
            ),
            queries=(
                ("how many", f"gang_partly_bound{{{OF_GANG_SCHEDULER}}}"),
                (
                    "bindings by how they ended",
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
            means="Gangs are admitted, and then get other nodes (`moved`) or go back to the queue (`returned`). Each "
            "costs "
            "time; often it is one node, or one gang, again and again.",
            look=("whose: `kubectl get events -A --field-selector reason=Reassigned`", "which of both: the query"),
            act=(
                "a node that takes no pods though it is Ready: cordon it",
                "`returned`: pods do not come within `--bind-timeout`; see "
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
            means="The API server refuses Bindings (`refused`), they were given up (`late`), or somebody else has "
            "bound the "
            "pods to other nodes (`elsewhere`).",
            look=(f"the words: `{LOGS_OF_GANG_SCHEDULER} -c extender --tail=-1 | grep 'not bound'`",),
            act=(
                "`forbidden`: apply the gang scheduler's ClusterRole",
                "`elsewhere`: another scheduler binds these pods; their `schedulerName` must be one scheduler's alone",
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
            means="kube-scheduler waits for each of these calls, so it schedules fewer pods a second. They take less "
            "than a "
            "millisecond when there is CPU.",
            look=("CPU: the query, against the container's limit", _LOGS),
            act=(
                "raise the extender's CPU limit, or take it away",
                "thousands of gangs wait: each pass of the admission loop "
                "takes its share of the interpreter; see the [benchmarks](../benchmarks.md)",
            ),
            queries=(("CPU", f"rate(process_cpu_seconds_total{{{OF_GANG_SCHEDULER}}}[5m])"),),
        ),
    ),
)
