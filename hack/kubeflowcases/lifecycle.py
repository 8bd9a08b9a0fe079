"""Cases of a job's life: suspension, conditions, numbers of Jobs, deadlines, and what becomes of its runtime."""

from __future__ import annotations

from kubeflowcases.model import (
    Another,
    Change,
    ChangeRuntime,
    Contains,
    DeleteRuntime,
    End,
    Fails,
    Has,
    HasNone,
)
from kubeflowcases.objects import (
    DATASET,
    LAUNCHER,
    MODEL,
    NODE,
    POD,
    TORCH,
    case,
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

# The runtime's own number of failures is not what these cases are about.
_NO_RETRIES = {"backoffLimit": 0}
_COMPLETE = condition("Complete", "AllJobsCompleted", message=Contains("completed"))
_FAILED = condition("Failed", "FailedJobs")
_SUSPENDED = condition("Suspended", "Suspended", message="TrainJob is suspended")
_RESUMED = condition("Suspended", "Resumed", "False", message="TrainJob is resumed")
_DEADLINE = condition("Failed", "DeadlineExceeded")
_RESUME, _SUSPEND = Change({"suspend": False}), Change({"suspend": True})


_MPI_FAILS = mpi_runtime(
    launcher=replicated(LAUNCHER, ancestor="trainer", dependsOn=[{"name": NODE, "status": "Ready"}], job=_NO_RETRIES),
    node=replicated(NODE, ancestor="", job=_NO_RETRIES),
)

_ENDS = (
    case("torch-complete", "controller/trainjob: Torch, complete")
    .promises("A job that was suspended has Suspended false and Complete at its end.")
    .given({"suspend": True, **trainer(numNodes=2)}, runtime(policy=TORCH))
    .then(_SUSPENDED, _RESUME, End(pods=2), _RESUMED, _COMPLETE, status(numbers(NODE, succeeded=1))),
    case("torch-failed", "controller/trainjob: Torch, failed")
    .promises("A job whose node has failed has the condition Failed.")
    .given({"suspend": True, **trainer()}, runtime(replicated(job=_NO_RETRIES), policy=TORCH))
    .then(_SUSPENDED, _RESUME, End(exit_code=1), _RESUMED, _FAILED, status(numbers(NODE, failed=1))),
    case("mpi-complete", "controller/trainjob: OpenMPI, complete")
    .promises("An MPI job is complete when its launcher has ended, if the runtime's success policy names it.")
    .given(
        runtime={
            **(found := mpi_runtime()),
            "template": {
                "spec": {
                    **found["template"]["spec"],
                    "successPolicy": {"operator": "All", "targetReplicatedJobs": [LAUNCHER]},
                }
            },
        }
    )
    .then(End(LAUNCHER), _COMPLETE, status(numbers(LAUNCHER, succeeded=1))),
    case("mpi-failed", "controller/trainjob: OpenMPI, failed")
    .promises("An MPI job whose launcher has failed has the condition Failed.")
    .given(runtime=_MPI_FAILS)
    .then(End(LAUNCHER, 1), _FAILED, status(numbers(LAUNCHER, failed=1))),
    case("failed-message", "controller/trainjob: Torch, failed")
    .promises("The message of Failed is the JobSet's sentence.")
    .given(runtime=runtime(replicated(job=_NO_RETRIES), policy=TORCH))
    .then(
        End(exit_code=3),
        condition("Failed", "FailedJobs", message=Contains("node-0")),
        condition("Failed", "FailedJobs", message=Contains("exit code 3")),
    )
    .but(
        "Upstream writes one sentence for every failure. Here the sentence is followed by the node and its "
        "error, so that the cause is in the status."
    ),
    case("steps-complete", "controller/trainjob: numbers of Jobs")
    .promises("jobsStatus counts each step while it is active and ready, and when it has succeeded.")
    .given(runtime=steps(TORCH))
    .then(
        End(DATASET),
        End(MODEL),
        status(numbers(DATASET, succeeded=1), numbers(MODEL, succeeded=1), numbers(NODE, active=1, ready=1)),
        status({"status.conditions": None}),
        End(),
        _COMPLETE,
        status(numbers(DATASET, succeeded=1), numbers(MODEL, succeeded=1), numbers(NODE, succeeded=1)),
    ),
    case("steps-failed", "controller/trainjob: numbers of Jobs")
    .promises("When the nodes fail, jobsStatus has them as failed, and the initializers still as succeeded.")
    .given(runtime=three_jobs(TORCH, replicated(job=_NO_RETRIES, dependsOn=[{"name": DATASET, "status": "Complete"}])))
    .then(
        End(DATASET),
        End(MODEL),
        End(exit_code=1),
        _FAILED,
        status(numbers(DATASET, succeeded=1), numbers(MODEL, succeeded=1), numbers(NODE, failed=1)),
    ),
)

_SUSPENSION = (
    case("suspended", "controller/trainjob: plain runtime, created")
    .promises("A suspended job has the condition Suspended, and a JobSet that is suspended as well.")
    .given({"suspend": True, **trainer()}, three_jobs({"numNodes": 5}))
    .then(_SUSPENDED, HasNone("Job"), HasNone("Pod"))
    .but(
        "The condition is the same. Here a suspended job has no Jobs at all, since a queue may still change "
        "what they will be."
    ),
    case("suspended-patch", "controller/trainjob: suspended, patched")
    .promises("A patch of a suspended job counts when the job is resumed.")
    .given({"suspend": True, **trainer()}, runtime(policy={"numNodes": 2}))
    .then(
        _SUSPENDED,
        Change(patched(nodeSelector={"updated": "selector"})),
        _RESUME,
        job(NODE, count(2), {f"{POD}.nodeSelector": {"updated": "selector"}}),
    ),
    case("suspended-image", "controller/trainjob: suspended, image changed")
    .promises("The image of a suspended job cannot be changed.")
    .given({"suspend": True, **trainer()}, runtime(policy={"numNodes": 2}))
    .then(_SUSPENDED, Change({"trainer": {"image": "test:new"}}, refused="field is immutable")),
    case("suspended-again", "controller/trainjob: suspended")
    .promises("A running job that is suspended loses its pods, and continues when it is resumed.")
    .then(job(), _SUSPEND, _SUSPENDED, HasNone("Pod"), _RESUME, _RESUMED, End(), _COMPLETE),
    case("resumed-with-patch", "plugins/jobset: patch and resumption in one request")
    .promises("One request may patch and resume a job.")
    .given({"suspend": True, **trainer()})
    .then(
        _SUSPENDED,
        Change({"suspend": False, **patched(nodeSelector={"pool": "a"})}),
        job(NODE, {f"{POD}.nodeSelector": {"pool": "a"}}),
    ),
    case("patched-while-running", "plugins/jobset: patch of a running job")
    .promises("The patches of a running job cannot be changed.")
    .given({**trainer(), "runtimePatches": [patch(pod_patch(nodeSelector={"pool": "a"}))]})
    .then(
        job(),
        Change({"runtimePatches": [patch(pod_patch(nodeSelector={"pool": "b"}))]}),
        Another(),
        job(NODE, {f"{POD}.nodeSelector": {"pool": "a"}}),
    )
    .but(
        "Upstream's admission webhook refuses the change. Here the API server stores it; the running Jobs stay "
        "as they are, and it counts when they are created again."
    ),
    case("managed-elsewhere", "controller/trainjob: another controller")
    .promises("A job that Kueue's MultiKueue manages gets neither Jobs nor a status.")
    .given({"managedBy": "kueue.x-k8s.io/multikueue", **trainer()})
    .then(Another(), HasNone("Job"), HasNone("Service"), status({"status": None})),
)

_DEADLINES = (
    case("deadline", "controller/trainjob: deadline")
    .promises("A job that exceeds its deadline fails, and its pods are deleted.")
    .given({"activeDeadlineSeconds": 1, **trainer()})
    .then(_DEADLINE, HasNone("Pod")),
    case("deadline-later", "controller/trainjob: deadline not exceeded")
    .promises("A job within its deadline does not fail.")
    .given({"activeDeadlineSeconds": 3600, **trainer()})
    .then(job(), Another(), status({"status.conditions[Failed]": None})),
    case("deadline-suspended", "controller/trainjob: deadline, suspended")
    .promises("The deadline of a suspended job does not run.")
    .given({"activeDeadlineSeconds": 1, "suspend": True, **trainer()})
    .then(_SUSPENDED, Another({"activeDeadlineSeconds": 1}, "Failed"), status({"status.conditions[Failed]": None})),
    case("deadline-resumed", "controller/trainjob: deadline, resumed")
    .promises("The deadline of a resumed job counts from then on.")
    .given({"activeDeadlineSeconds": 2, "suspend": True, **trainer()})
    .then(_SUSPENDED, _RESUME, job(), _DEADLINE, HasNone("Pod")),
)

_NO_SNAPSHOT = (
    "Upstream copies the runtime into a ConfigMap when the job is created. Here there is no copy: what a started job "
    "must keep is in its annotation."
)
_RUNTIMES = (
    *(
        case(f"snapshot-{kind.lower()}", f"controller/trainjob: snapshot of a {kind}")
        .promises(f"The job's {kind} is copied into a ConfigMap that belongs to the job.")
        .given(runtime_kind=kind)
        .then(job(), Another(), HasNone("ConfigMap", "-runtime-snapshot"))
        .but(_NO_SNAPSHOT)
        for kind in ("TrainingRuntime", "ClusterTrainingRuntime")
    ),
    case("snapshot-used", "controller/trainjob: changed runtime")
    .promises("A suspended job keeps the runtime that it was created with.")
    .given(
        {"suspend": True, **trainer()},
        {"template": {"metadata": {"labels": {"marker": "first"}}, "spec": {"replicatedJobs": [replicated()]}}},
    )
    .then(
        _SUSPENDED,
        ChangeRuntime({"template": {"metadata": {"labels": {"marker": "second"}}}}),
        _RESUME,
        job(NODE, {"metadata.labels.marker": "second"}),
    )
    .but(
        "Upstream uses its copy of the runtime. Here the runtime counts as it is when Jobs are created; only "
        "the number of nodes is kept."
    ),
    case("snapshot-started", "controller/trainjob: changed runtime")
    .promises("A started job keeps its number of nodes if its runtime changes.")
    .given(runtime=runtime(policy={"numNodes": 2}))
    .then(
        End(pods=2, exit_code=1),
        ChangeRuntime({"mlPolicy": {"numNodes": 3}}),
        job(NODE, count(2), {"metadata.labels[kubeflow.org/generation]": "1"}),
    ),
    *(
        case(f"deleted-{kind.lower()}", f"controller/{kind.lower()}: deleted")
        .promises(f"A {kind} can be deleted while a job uses it; the job continues.")
        .given(runtime_kind=kind)
        .then(job(), DeleteRuntime(), End(), _COMPLETE)
        for kind in ("TrainingRuntime", "ClusterTrainingRuntime")
    ),
    case("missing-runtime", "webhooks/trainjob: a runtime that is not in the namespace")
    .promises("A job whose runtime does not exist is refused.")
    .given({}, {}, runtime_name="not-there")
    .then(Fails("spec.runtimeRef: there is no TrainingRuntime not-there"))
    .but(
        "Upstream's admission webhook refuses the job at once. Here it waits 15 s for its runtime, so that "
        "both can be applied in any order, and then fails."
    ),
    case("unsupported-runtime", "pkg/webhooks: an unknown kind of runtime")
    .promises("A job that references what is no runtime is refused.")
    .given({}, {}, runtime_name="anything", runtime_kind="Deployment")
    .then(Fails("unsupported runtime: Deployment.trainer.kubeflow.org", "TrainingRuntimeNotSupported")),
    case("pod-group", "controller/trainjob: plain runtime, created")
    .promises("A runtime with podGroupPolicy.coscheduling gets a PodGroup of all its pods.")
    .given(
        runtime={**three_jobs({"numNodes": 2}), "podGroupPolicy": {"coscheduling": {"scheduleTimeoutSeconds": 100}}},
        on_server=True,
    )
    .then(Fails("spec.podGroupPolicy.coscheduling: this controller leaves gangs to another scheduler"))
    .but(
        "Here the flag --gang-backend=coscheduling decides about PodGroups, and the gang is the nodes without "
        "the initializers. The tested controller has no such flag and refuses the runtime."
    ),
    case("volcano", "examples/yaml: 04-volcano-integration")
    .promises("A runtime may leave the pods of its jobs to Volcano.")
    .given(trainer(numNodes=4), {**runtime(policy=TORCH), "podGroupPolicy": {"volcano": {}}}, on_server=True)
    .then(Fails("spec.podGroupPolicy.volcano: this controller leaves gangs to another scheduler"))
    .but("As with coscheduling: a controller with --gang-backend=volcano runs it, and another one refuses it."),
    case("service", "controller/trainjob: plain runtime, created")
    .promises("The pods of a job have host names in a headless Service with the job's name.")
    .given(runtime=runtime(policy={"numNodes": 2}))
    .then(
        Has("Service", "", {"spec.clusterIP": "None", "spec.publishNotReadyAddresses": True}),
        Has("Pod", "-node-0-1", {"spec.hostname": "service-node-0-1", "spec.subdomain": "service"}),
    ),
)

CASES = (*_ENDS, *_SUSPENSION, *_DEADLINES, *_RUNTIMES)
