"""Cases of what is accepted, completed with defaults, or refused: names, URIs, fields that cannot be changed.

Refusals and defaults that upstream's CRDs bring about alone have one case of each kind: no controller can break them.
"""

from __future__ import annotations

from kubeflowcases.model import Case, Change, Contains, Fails, Has, HasNone, NotStored, Step
from kubeflowcases.objects import (
    ANCESTOR,
    CONTAINER,
    DATASET,
    MODEL,
    NODE,
    POD,
    TORCH,
    case,
    container,
    job,
    patched,
    replicated,
    runtime,
    status,
    three_jobs,
    trainer,
)

_MEBIBYTE = 1048576


_REFERENCES = (
    *(
        case(f"runtime-{kind.lower()}", f"webhooks/trainjob: a {kind}")
        .promises(f"A job may reference a {kind}.")
        .given({}, three_jobs(), runtime_kind=kind)
        .then(job(NODE), job(DATASET), job(MODEL))
        for kind in ("TrainingRuntime", "ClusterTrainingRuntime")
    ),
    case("torch-reserved", "webhooks/trainjob: a reserved variable")
    .promises("A variable that torch's nodes get from the controller must not be set by the job.")
    .given({"trainer": {"env": [{"name": "PET_NODE_RANK", "value": "1"}]}})
    .then(Fails("spec.trainer.env[0].name: must not have reserved envs: PET_NODE_RANK")),
)

_BAD_URI = NotStored("TrainJob", "storageUri may be empty, or it must be a valid URI")


def _uri(name: str, asset: str, uri: str, promise: str, step: Step) -> Case:
    return (
        case(f"uri-{asset}-{name}", f"webhooks/trainjob: URI of the {asset}")
        .promises(promise)
        .given({"initializer": {asset: {"storageUri": uri}}}, three_jobs(), on_server=not uri)
        .then(step)
    )


def _with_uri(initializer: str, uri: str) -> Has:
    return job(initializer, {f"{POD}.containers[{initializer}].env[STORAGE_URI].value": uri or None})


_URIS = (
    _uri("no-scheme", "dataset", "invalid-uri", "The URI of a dataset must have a scheme.", _BAD_URI),
    _uri(
        "s3",
        "dataset",
        "s3://bucket/path",
        "An S3 bucket is a valid URI of a dataset.",
        _with_uri(DATASET, "s3://bucket/path"),
    ),
    _uri(
        "gs",
        "model",
        "gs://bucket/model",
        "A bucket of Google Cloud is a valid URI of a model.",
        _with_uri(MODEL, "gs://bucket/model"),
    ),
    _uri("empty", "dataset", "", "The URI of a dataset may be empty.", _with_uri(DATASET, "")),
)

_LENGTHS = (
    *(
        case(f"long-{field}", f"webhooks/trainjob: length of {field}")
        .promises(f"An entry of {field} may have 1,048,576 characters.")
        .given({"suspend": True, "trainer": {field: ["a" * _MEBIBYTE]}})
        .then(Fails("spec: must have at most 262,144 bytes"))
        .but(
            "The API server stores such a job here as well. The controller refuses specs of more than 256 KiB, "
            "since a few large ones could exhaust its memory."
        )
        for field in ("command", "args")
    ),
)

_NAMES = (
    case("name-63", "webhooks/trainjob: names")
    .promises("A name may have 63 characters.")
    .given({}, job_name="abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijk")
    .then(Fails("metadata.name: the host name"))
    .but(
        "Upstream stores the job, but host names of its pods add the replicated job and two numbers, and must "
        "not have more than 63 characters either. Here the job fails with the length that fits."
    ),
)

_MARKERS = (
    case("managed-here", "webhooks/trainjob: managedBy")
    .promises("A job may name the controller of this API as its manager.")
    .given({"managedBy": "trainer.kubeflow.org/trainjob-controller"})
    .then_node(),
    case("grace-zero", "webhooks/trainjob: terminationGracePeriodSeconds")
    .promises("A patch may set the time to end to 0.")
    .given(patched(terminationGracePeriodSeconds=0))
    .then_node({f"{POD}.terminationGracePeriodSeconds": 1})
    .but(
        "Here 0 becomes 1 second. With 0 the API server forgets a deleted pod at once, and the next pod of its node "
        "would run beside it."
    ),
    case("defaults", "webhooks/trainjob: defaults")
    .promises("A job has default values for suspend, managedBy and the group of its runtime.")
    .then(
        status(
            {
                "spec.suspend": False,
                "spec.managedBy": "trainer.kubeflow.org/trainjob-controller",
                "spec.runtimeRef.apiGroup": "trainer.kubeflow.org",
            }
        )
    ),
    case("default-kind", "webhooks/trainjob: defaults")
    .promises("A reference without a kind is one to a ClusterTrainingRuntime.")
    .given({}, runtime_kind="")
    .then(status({"spec.runtimeRef.kind": "ClusterTrainingRuntime"}), job()),
    case("patch-times", "webhooks/trainjob: times of patches")
    .promises("Each patch gets the time of its creation.")
    .given({"runtimePatches": [{"manager": "acme.io/one"}, {"manager": "acme.io/two"}]})
    .then(job(), status({"spec.runtimePatches[0].time": None, "spec.runtimePatches[1].time": None}))
    .but(
        "Upstream's admission webhook sets the times. No webhook runs here, and the controller changes nothing "
        "of a job's spec but suspend, so that patches have the times that their authors set."
    ),
    case("deprecated", "pkg/webhooks: a deprecated runtime")
    .promises("A job with a runtime that is marked as deprecated is accepted with a warning.")
    .given(runtime={"metadata": {"labels": {"trainer.kubeflow.org/support": "deprecated"}}, **runtime(policy=TORCH)})
    .then_node()
    .but("The job runs. The warning comes from upstream's admission webhook, and no webhook runs here."),
)


_FIXED = (
    case("fixed-trainer", "webhooks/trainjob: trainer changed")
    .promises("The field trainer of a job cannot be changed.")
    .given({"trainer": {"image": "test-image"}}, three_jobs())
    .then(job(), Change({"trainer": {"image": "forbidden-update"}}, "field is immutable")),
)

_RUNTIMES = (
    case("policies-mpi-torch", "webhooks/trainingruntime: several frameworks")
    .promises("A runtime must not have several frameworks: mpi, torch.")
    .given({}, runtime(policy={"mpi": {}, "torch": {}}))
    .then(NotStored("TrainingRuntime", "Only one of the policy can be configured")),
    case("replicas", "pkg/webhooks: replicas")
    .promises("The replicas of a replicated job must be 1.")
    .given({}, runtime(replicated(replicas=2), policy=TORCH))
    .then(Fails("spec.template.spec.replicatedJobs[0].replicas: always must be 1")),
    case("other-label", "pkg/webhooks: another label")
    .promises("A replicated job may have a label of the user's own instead of a known step.")
    .given(
        runtime=runtime(replicated(), replicated("extra", container("extra"), ancestor="user-specified"), policy=TORCH)
    )
    .then(
        job(NODE, {f"{CONTAINER}.image": "test:trainjob"}),
        job(
            "extra",
            {f"metadata.labels[{ANCESTOR}]": "user-specified", f"{POD}.containers[extra].image": "test:runtime"},
        ),
    ),
    case("no-node-container", "pkg/webhooks: a missing container")
    .promises("The job with the trainer's label must have a container named node.")
    .given({}, runtime(replicated(NODE, container("test")), policy=TORCH))
    .then(Fails("must contain the required container for the ancestor: trainer"), HasNone("Service")),
    case("resources", "core/trainingruntime: resources of both")
    .promises("The resources of the job and of the runtime are merged by name.")
    .given(
        trainer(resourcesPerNode={"limits": {"nvidia.com/gpu": 2}}),
        runtime(
            replicated(NODE, container(resources={"limits": {"cpu": "4", "memory": "8Gi"}})), policy={"numNodes": 1}
        ),
    )
    .then_node(
        {
            f"{CONTAINER}.resources.limits[nvidia.com/gpu]": Contains("2"),
            f"{CONTAINER}.resources.limits.cpu": "4",
            f"{CONTAINER}.resources.limits.memory": "8Gi",
        }
    ),
)

CASES = (*_REFERENCES, *_URIS, *_LENGTHS, *_NAMES, *_MARKERS, *_FIXED, *_RUNTIMES)
