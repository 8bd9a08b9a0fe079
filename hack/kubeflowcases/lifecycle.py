"""Cases of a job's life: suspension, conditions, numbers of Jobs, deadlines, and what becomes of its runtime."""

from __future__ import annotations

from kubeflowcases.model import (
    Another,
    Case,
    Change,
    ChangeRuntime,
    Contains,
    DeleteRuntime,
    End,
    Fails,
    Has,
    HasNone,
    Object,
)
from kubeflowcases.objects import (
    DATASET,
    LAUNCHER,
    MODEL,
    NODE,
    POD,
    condition,
    count,
    job,
    mpi_runtime,
    numbers,
    patch,
    patched,
    pod_patch,
    replicated,
    runtime,
    status,
    steps,
    three_jobs,
    trainer,
)

_TORCH: Object = {"numNodes": 1, "torch": {}}
# The runtime's own number of failures is not what these cases are about.
_NO_RETRIES = {"backoffLimit": 0}
_COMPLETE = condition("Complete", "AllJobsCompleted", message=Contains("completed"))
_FAILED = condition("Failed", "FailedJobs")
_SUSPENDED = condition("Suspended", "Suspended", message="TrainJob is suspended")
_RESUMED = condition("Suspended", "Resumed", "False", message="TrainJob is resumed")
_DEADLINE = condition("Failed", "DeadlineExceeded")
_RESUME, _SUSPEND = Change({"suspend": False}), Change({"suspend": True})


def _ending(name: str, policy: Object) -> tuple[Case, ...]:
    """Returns the cases of how jobs of a framework end."""
    fails = runtime(replicated(job=_NO_RETRIES), policy={"numNodes": 1, **policy})
    return (
        Case(
            f"{name.lower()}-complete",
            f"controller/trainjob: {name}, complete",
            f"A job of {name} that was suspended has Suspended false and Complete at its end.",
            {"suspend": True, **trainer(numNodes=2)},
            runtime(policy={"numNodes": 1, **policy}),
            (_SUSPENDED, _RESUME, End(pods=2), _RESUMED, _COMPLETE, status(numbers(NODE, succeeded=1))),
        ),
        Case(
            f"{name.lower()}-failed",
            f"controller/trainjob: {name}, failed",
            f"A job of {name} whose node has failed has the condition Failed.",
            {"suspend": True, **trainer()},
            fails,
            (_SUSPENDED, _RESUME, End(exit_code=1), _RESUMED, _FAILED, status(numbers(NODE, failed=1))),
        ),
    )


_MPI_FAILS = mpi_runtime(
    launcher=replicated(LAUNCHER, ancestor="trainer", dependsOn=[{"name": NODE, "status": "Ready"}], job=_NO_RETRIES),
    node=replicated(NODE, ancestor="", job=_NO_RETRIES),
)

_ENDS = (
    *_ending("Torch", {"torch": {}}),
    *_ending("JAX", {"jax": {}}),
    *_ending("XGBoost", {"xgboost": {}}),
    Case(
        "mpi-complete",
        "controller/trainjob: OpenMPI, complete",
        "An MPI job is complete when its launcher has ended, if the runtime's success policy says so.",
        trainer(),
        {
            **(found := mpi_runtime()),
            "template": {
                "spec": {
                    **found["template"]["spec"],
                    "successPolicy": {"operator": "All", "targetReplicatedJobs": [LAUNCHER]},
                }
            },
        },
        (End(LAUNCHER), _COMPLETE, status(numbers(LAUNCHER, succeeded=1))),
    ),
    Case(
        "mpi-failed",
        "controller/trainjob: OpenMPI, failed",
        "An MPI job whose launcher has failed has the condition Failed.",
        trainer(),
        _MPI_FAILS,
        (End(LAUNCHER, 1), _FAILED, status(numbers(LAUNCHER, failed=1))),
    ),
    Case(
        "failed-message",
        "controller/trainjob: Torch, failed",
        "The message of Failed is the JobSet's sentence.",
        trainer(),
        runtime(replicated(job=_NO_RETRIES), policy=_TORCH),
        (
            End(exit_code=3),
            condition("Failed", "FailedJobs", message=Contains("node-0")),
            condition("Failed", "FailedJobs", message=Contains("exit code 3")),
        ),
        differs="Upstream writes one sentence for every failure. Here the sentence is followed by the node and its "
        "error, so that the cause is in the status.",
    ),
    Case(
        "steps-complete",
        "controller/trainjob: Torch, complete",
        "jobsStatus counts each step: initializers and nodes have succeeded at the end.",
        trainer(),
        steps(_TORCH),
        (
            End(DATASET, pods=1),
            End(MODEL, pods=1),
            End(),
            _COMPLETE,
            status(numbers(DATASET, succeeded=1), numbers(MODEL, succeeded=1), numbers(NODE, succeeded=1)),
        ),
    ),
    Case(
        "steps-running",
        "controller/trainjob: numbers of Jobs",
        "While the nodes run, jobsStatus has the initializers as succeeded and the nodes as active and ready.",
        trainer(),
        steps(_TORCH),
        (
            End(DATASET),
            End(MODEL),
            status(numbers(DATASET, succeeded=1), numbers(MODEL, succeeded=1), numbers(NODE, active=1, ready=1)),
            status({"status.conditions": None}),
        ),
    ),
    Case(
        "steps-failed",
        "controller/trainjob: numbers of Jobs",
        "When the nodes fail, jobsStatus has them as failed, and the initializers still as succeeded.",
        trainer(),
        three_jobs(_TORCH, replicated(job=_NO_RETRIES, dependsOn=[{"name": DATASET, "status": "Complete"}])),
        (
            End(DATASET),
            End(MODEL),
            End(exit_code=1),
            _FAILED,
            status(numbers(DATASET, succeeded=1), numbers(MODEL, succeeded=1), numbers(NODE, failed=1)),
        ),
    ),
)

_SUSPENSION = (
    Case(
        "suspended",
        "controller/trainjob: plain runtime, created",
        "A suspended job has the condition Suspended, and a JobSet that is suspended as well.",
        {"suspend": True, **trainer()},
        three_jobs({"numNodes": 5}),
        (_SUSPENDED, HasNone("Job"), HasNone("Pod")),
        differs="The condition is the same. Here a suspended job has no Jobs at all, since a queue may still change "
        "what they will be.",
    ),
    Case(
        "suspended-patch",
        "controller/trainjob: suspended, patched",
        "A patch of a suspended job counts when the job is resumed.",
        {"suspend": True, **trainer()},
        runtime(policy={"numNodes": 2}),
        (
            _SUSPENDED,
            Change(patched(nodeSelector={"updated": "selector"})),
            _RESUME,
            job(NODE, count(2), {f"{POD}.nodeSelector": {"updated": "selector"}}),
        ),
    ),
    Case(
        "suspended-image",
        "controller/trainjob: suspended, image changed",
        "The image of a suspended job cannot be changed.",
        {"suspend": True, **trainer()},
        runtime(policy={"numNodes": 2}),
        (_SUSPENDED, Change({"trainer": {"image": "test:new"}}, refused="field is immutable")),
    ),
    Case(
        "suspended-again",
        "controller/trainjob: suspended",
        "A running job that is suspended loses its pods, and goes on when it is resumed.",
        trainer(),
        runtime(policy=_TORCH),
        (job(), _SUSPEND, _SUSPENDED, HasNone("Pod"), _RESUME, _RESUMED, End(), _COMPLETE),
    ),
    Case(
        "resumed-with-patch",
        "plugins/jobset: patch and resumption in one request",
        "One request may patch and resume a job.",
        {"suspend": True, **trainer()},
        runtime(policy=_TORCH),
        (
            _SUSPENDED,
            Change({"suspend": False, **patched(nodeSelector={"pool": "a"})}),
            job(NODE, {f"{POD}.nodeSelector": {"pool": "a"}}),
        ),
    ),
    Case(
        "patched-while-running",
        "plugins/jobset: patch of a running job",
        "The patches of a running job cannot be changed.",
        {**trainer(), "runtimePatches": [patch(pod_patch(nodeSelector={"pool": "a"}))]},
        runtime(policy=_TORCH),
        (
            job(),
            Change({"runtimePatches": [patch(pod_patch(nodeSelector={"pool": "b"}))]}),
            Another(),
            job(NODE, {f"{POD}.nodeSelector": {"pool": "a"}}),
        ),
        differs="Upstream's admission webhook refuses the change. Here the API server stores it; the running Jobs stay "
        "as they are, and it counts when they are created again.",
    ),
    Case(
        "managed-elsewhere",
        "controller/trainjob: another controller",
        "A job that Kueue's MultiKueue manages gets neither Jobs nor a status.",
        {"managedBy": "kueue.x-k8s.io/multikueue", **trainer()},
        runtime(policy=_TORCH),
        (Another(), HasNone("Job"), HasNone("Service"), status({"status": None})),
    ),
)

_DEADLINES = (
    Case(
        "deadline",
        "controller/trainjob: deadline",
        "A job that exceeds its deadline fails, and its pods are deleted.",
        {"activeDeadlineSeconds": 1, **trainer()},
        runtime(policy=_TORCH),
        (_DEADLINE, HasNone("Pod")),
    ),
    Case(
        "deadline-later",
        "controller/trainjob: deadline not exceeded",
        "A job within its deadline does not fail.",
        {"activeDeadlineSeconds": 3600, **trainer()},
        runtime(policy=_TORCH),
        (job(), Another(), status({"status.conditions[Failed]": None})),
    ),
    Case(
        "deadline-suspended",
        "controller/trainjob: deadline, suspended",
        "The deadline of a suspended job does not run.",
        {"activeDeadlineSeconds": 1, "suspend": True, **trainer()},
        runtime(policy=_TORCH),
        (
            _SUSPENDED,
            Another({"activeDeadlineSeconds": 1}, "Failed"),
            status({"status.conditions[Failed]": None}),
        ),
    ),
    Case(
        "deadline-resumed",
        "controller/trainjob: deadline, resumed",
        "The deadline of a resumed job counts from then on.",
        {"activeDeadlineSeconds": 2, "suspend": True, **trainer()},
        runtime(policy=_TORCH),
        (_SUSPENDED, _RESUME, job(), _DEADLINE, HasNone("Pod")),
    ),
)

_NO_SNAPSHOT = (
    "Upstream copies the runtime into a ConfigMap when the job is created. Here there is no copy: what a started job "
    "must keep is in its annotation."
)
_RUNTIMES = (
    *(
        Case(
            f"snapshot-{kind.lower()}",
            f"controller/trainjob: snapshot of a {kind}",
            f"The job's {kind} is copied into a ConfigMap that belongs to the job.",
            trainer(),
            runtime(policy=_TORCH),
            (job(), Another(), HasNone("ConfigMap", "-runtime-snapshot")),
            runtime_kind=kind,
            differs=_NO_SNAPSHOT,
        )
        for kind in ("TrainingRuntime", "ClusterTrainingRuntime")
    ),
    Case(
        "snapshot-used",
        "controller/trainjob: changed runtime",
        "A suspended job keeps the runtime that it was created with.",
        {"suspend": True, **trainer()},
        {"template": {"metadata": {"labels": {"marker": "first"}}, "spec": {"replicatedJobs": [replicated()]}}},
        (
            _SUSPENDED,
            ChangeRuntime({"template": {"metadata": {"labels": {"marker": "second"}}}}),
            _RESUME,
            job(NODE, {"metadata.labels.marker": "second"}),
        ),
        differs="Upstream uses its copy of the runtime. Here the runtime counts as it is when Jobs are created; only "
        "the number of nodes is kept.",
    ),
    Case(
        "snapshot-started",
        "controller/trainjob: changed runtime",
        "A started job keeps its number of nodes, whatever its runtime says later.",
        trainer(),
        runtime(policy={"numNodes": 2}),
        (
            End(pods=2, exit_code=1),
            ChangeRuntime({"mlPolicy": {"numNodes": 3}}),
            job(NODE, count(2), {"metadata.labels[kubeflow.org/generation]": "1"}),
        ),
    ),
    Case(
        "snapshot-again",
        "controller/trainjob: deleted snapshot",
        "A job without a copy of its runtime, such as one of an earlier release, gets one later.",
        trainer(),
        runtime(policy=_TORCH),
        (job(), End(), _COMPLETE, HasNone("ConfigMap", "-runtime-snapshot")),
        differs=_NO_SNAPSHOT,
    ),
    *(
        Case(
            f"deleted-{kind.lower()}",
            f"controller/{kind.lower()}: deleted",
            f"A {kind} can be deleted while a job uses it; the job goes on.",
            trainer(),
            runtime(policy=_TORCH),
            (job(), DeleteRuntime(), End(), _COMPLETE),
            runtime_kind=kind,
        )
        for kind in ("TrainingRuntime", "ClusterTrainingRuntime")
    ),
    Case(
        "missing-runtime",
        "webhooks/trainjob: a runtime that is not in the namespace",
        "A job whose runtime does not exist is refused.",
        {},
        {},
        (Fails("spec.runtimeRef: there is no TrainingRuntime not-there"),),
        runtime_name="not-there",
        differs="Upstream's admission webhook refuses the job at once. Here it waits 15 s for its runtime, so that "
        "both can be applied in any order, and then fails.",
    ),
    Case(
        "unsupported-runtime",
        "pkg/webhooks: an unknown kind of runtime",
        "A job that references what is no runtime is refused.",
        {},
        {},
        (Fails("unsupported runtime: Deployment.trainer.kubeflow.org", "TrainingRuntimeNotSupported"),),
        runtime_name="anything",
        runtime_kind="Deployment",
    ),
    Case(
        "pod-group",
        "controller/trainjob: plain runtime, created",
        "A runtime with podGroupPolicy.coscheduling gets a PodGroup of all its pods.",
        trainer(),
        {**three_jobs({"numNodes": 2}), "podGroupPolicy": {"coscheduling": {"scheduleTimeoutSeconds": 100}}},
        (Fails("spec.podGroupPolicy.coscheduling: this controller leaves gangs to another scheduler"),),
        differs="Here the flag --gang-backend=coscheduling decides about PodGroups, and the gang is the nodes without "
        "the initializers. The tested controller has no such flag and refuses the runtime.",
    ),
    Case(
        "service",
        "controller/trainjob: plain runtime, created",
        "The pods of a job have host names in a headless Service with the job's name.",
        trainer(),
        runtime(policy={"numNodes": 2}),
        (
            Has("Service", "", {"spec.clusterIP": "None", "spec.publishNotReadyAddresses": True}),
            Has("Pod", "-node-0-1", {"spec.hostname": "service-node-0-1", "spec.subdomain": "service"}),
        ),
    ),
)

CASES = (*_ENDS, *_SUSPENSION, *_DEADLINES, *_RUNTIMES)
