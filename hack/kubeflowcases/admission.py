"""Cases of what is accepted, completed with defaults, or refused: names, URIs, fields that cannot be changed.

Refusals and defaults that upstream's CRDs bring about alone have one case of each kind: no controller can break them.
"""

from __future__ import annotations

from kubeflowcases.model import Case, Change, Contains, Fails, Has, HasNone, NotStored, Object, Step
from kubeflowcases.objects import (
    ANCESTOR,
    CONTAINER,
    DATASET,
    MODEL,
    NODE,
    POD,
    container,
    env,
    job,
    patched,
    replicated,
    runtime,
    status,
    three_jobs,
    trainer,
)

_TORCH: Object = {"numNodes": 1, "torch": {}}
_MEBIBYTE = 1048576


def _name(name: str, promise: str, job_name: str, *steps: Step, differs: str = "") -> Case:
    return Case(
        name,
        "webhooks/trainjob: names",
        promise,
        {},
        runtime(policy=_TORCH),
        steps,
        differs,
        job_name=job_name,
    )


_REFERENCES = (
    *(
        Case(
            f"runtime-{kind.lower()}",
            f"webhooks/trainjob: a {kind}",
            f"A job may reference a {kind}.",
            {},
            three_jobs(),
            (job(NODE), job(DATASET), job(MODEL)),
            runtime_kind=kind,
        )
        for kind in ("TrainingRuntime", "ClusterTrainingRuntime")
    ),
    Case(
        "cluster-initializer",
        "webhooks/trainjob: a dataset",
        "A job with a dataset may reference a ClusterTrainingRuntime that has an initializer.",
        {"initializer": {"dataset": {"storageUri": "hf://trainjob-model"}}},
        three_jobs(),
        (job(DATASET, env({"STORAGE_URI": "hf://trainjob-model"}, DATASET)),),
        runtime_kind="ClusterTrainingRuntime",
    ),
    Case(
        "torch-processes",
        "webhooks/trainjob: a valid trainer",
        "A job may set the number of processes per node.",
        {"trainer": {"numProcPerNode": 4}},
        runtime(policy=_TORCH),
        (job(NODE, env({"PET_NPROC_PER_NODE": "4"})),),
    ),
    Case(
        "torch-reserved",
        "webhooks/trainjob: a reserved variable",
        "A variable that torch's nodes get from the controller must not be set by the job.",
        {"trainer": {"env": [{"name": "PET_NODE_RANK", "value": "1"}]}},
        runtime(policy=_TORCH),
        (Fails("spec.trainer.env[0].name: must not have reserved envs: PET_NODE_RANK"),),
    ),
)

_BAD_URI = NotStored("TrainJob", "storageUri may be empty, or it must be a valid URI")


def _uri(name: str, asset: str, uri: str, promise: str, step: Step) -> Case:
    return Case(
        f"uri-{asset}-{name}",
        f"webhooks/trainjob: URI of the {asset}",
        promise,
        {"initializer": {asset: {"storageUri": uri}}},
        three_jobs(),
        (step,),
    )


def _with_uri(initializer: str, uri: str) -> Has:
    return job(initializer, {f"{POD}.containers[{initializer}].env[STORAGE_URI].value": uri or None})


_URIS = (
    _uri("no-scheme", "dataset", "invalid-uri", "The URI of a dataset must have a scheme.", _BAD_URI),
    _uri("s3", "dataset", "s3://bucket/path", "An S3 bucket is a valid URI of a dataset.", _with_uri(DATASET, "s3://bucket/path")),
    _uri("gs", "model", "gs://bucket/model", "A bucket of Google Cloud is a valid URI of a model.", _with_uri(MODEL, "gs://bucket/model")),
    _uri("empty", "dataset", "", "The URI of a dataset may be empty.", _with_uri(DATASET, "")),
)  # fmt: skip

_LENGTHS = (
    *(
        Case(
            f"long-{field}",
            f"webhooks/trainjob: length of {field}",
            f"An entry of {field} may have 1,048,576 characters.",
            {"suspend": True, "trainer": {field: ["a" * _MEBIBYTE]}},
            runtime(policy=_TORCH),
            (Fails("spec: must have at most 262,144 bytes"),),
            differs="The API server stores such a job here as well. The controller refuses specs of more than 256 KiB, "
            "since a few large ones could exhaust its memory.",
        )
        for field in ("command", "args")
    ),
)

_NAMES = (
    _name("name-valid", "A DNS label is a valid name of a job.", "valid-job-name", job()),
    _name(
        "name-63",
        "A name may have 63 characters.",
        "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijk",
        Fails("metadata.name: the host name"),
        differs="Upstream stores the job, but host names of its pods add the replicated job and two numbers, and must "
        "not have more than 63 characters either. Here the job fails with the length that fits.",
    ),
)  # fmt: skip

_MARKERS = (
    Case(
        "managed-here",
        "webhooks/trainjob: managedBy",
        "A job may name the controller of this API as its manager.",
        {"managedBy": "trainer.kubeflow.org/trainjob-controller"},
        runtime(policy=_TORCH),
        (job(),),
    ),
    Case(
        "grace-zero",
        "webhooks/trainjob: terminationGracePeriodSeconds",
        "A patch may set the time to end to 0.",
        patched(terminationGracePeriodSeconds=0),
        runtime(policy=_TORCH),
        (job(NODE, {f"{POD}.terminationGracePeriodSeconds": 1}),),
        "Here 0 becomes 1 second. With 0 the API server forgets a deleted pod at once, and the next pod of its node "
        "would run beside it.",
    ),
    Case(
        "defaults",
        "webhooks/trainjob: defaults",
        "A job has default values for suspend, managedBy and the group of its runtime.",
        trainer(),
        runtime(policy=_TORCH),
        (
            status(
                {
                    "spec.suspend": False,
                    "spec.managedBy": "trainer.kubeflow.org/trainjob-controller",
                    "spec.runtimeRef.apiGroup": "trainer.kubeflow.org",
                }
            ),
        ),
    ),
    Case(
        "default-kind",
        "webhooks/trainjob: defaults",
        "A reference without a kind is one to a ClusterTrainingRuntime.",
        {},
        runtime(policy=_TORCH),
        (status({"spec.runtimeRef.kind": "ClusterTrainingRuntime"}), job()),
        runtime_kind="",
    ),
    Case(
        "patch-times",
        "webhooks/trainjob: times of patches",
        "Each patch gets the time of its creation.",
        {"runtimePatches": [{"manager": "acme.io/one"}, {"manager": "acme.io/two"}]},
        runtime(policy=_TORCH),
        (job(), status({"spec.runtimePatches[0].time": None, "spec.runtimePatches[1].time": None})),
        differs="Upstream's admission webhook sets the times. No webhook runs here, and the controller changes nothing "
        "of a job's spec but suspend, so that patches have the times that their authors set.",
    ),
    Case(
        "deprecated",
        "pkg/webhooks: a deprecated runtime",
        "A job with a runtime that is marked as deprecated is accepted with a warning.",
        trainer(),
        {"metadata": {"labels": {"trainer.kubeflow.org/support": "deprecated"}}, **runtime(policy=_TORCH)},
        (job(),),
        differs="The job runs. The warning comes from upstream's admission webhook, and no webhook runs here.",
    ),
)


_FIXED = (
    Case(
        "fixed-trainer",
        "webhooks/trainjob: trainer changed",
        "The field trainer of a job cannot be changed.",
        {"trainer": {"image": "test-image"}},
        three_jobs(),
        (job(), Change({"trainer": {"image": "forbidden-update"}}, "field is immutable")),
    ),
)

_RUNTIMES = (
    Case(
        "policies-mpi-torch",
        "webhooks/trainingruntime: several frameworks",
        "A runtime must not have several frameworks: mpi, torch.",
        {},
        runtime(policy={"mpi": {}, "torch": {}}),
        (NotStored("TrainingRuntime", "Only one of the policy can be configured"),),
    ),
    Case(
        "replicas",
        "pkg/webhooks: replicas",
        "The replicas of a replicated job must be 1.",
        {},
        runtime(replicated(replicas=2), policy=_TORCH),
        (Fails("spec.template.spec.replicatedJobs[0].replicas: always must be 1"),),
    ),
    Case(
        "other-label",
        "pkg/webhooks: another label",
        "A replicated job may have a label of the user's own instead of a known step.",
        trainer(),
        runtime(replicated(), replicated("extra", container("extra"), ancestor="user-specified"), policy=_TORCH),
        (
            job(NODE, {f"{CONTAINER}.image": "test:trainjob"}),
            job(
                "extra",
                {f"metadata.labels[{ANCESTOR}]": "user-specified", f"{POD}.containers[extra].image": "test:runtime"},
            ),
        ),
    ),
    Case(
        "no-node-container",
        "pkg/webhooks: a missing container",
        "The job with the trainer's label must have a container named node.",
        {},
        runtime(replicated(NODE, container("test")), policy=_TORCH),
        (Fails("must contain the required container for the ancestor: trainer"), HasNone("Service")),
    ),
    Case(
        "resources",
        "core/trainingruntime: resources of both",
        "The resources of the job and of the runtime are merged by name.",
        trainer(resourcesPerNode={"limits": {"nvidia.com/gpu": 2}}),
        runtime(
            replicated(NODE, container(resources={"limits": {"cpu": "4", "memory": "8Gi"}})),
            policy={"numNodes": 1},
        ),
        (
            job(
                NODE,
                {
                    f"{CONTAINER}.resources.limits[nvidia.com/gpu]": Contains("2"),
                    f"{CONTAINER}.resources.limits.cpu": "4",
                    f"{CONTAINER}.resources.limits.memory": "8Gi",
                },
            ),
        ),
    ),
)  # fmt: skip

CASES = (*_REFERENCES, *_URIS, *_LENGTHS, *_NAMES, *_MARKERS, *_FIXED, *_RUNTIMES)
