"""Cases of what is accepted, completed with defaults, or refused: names, URIs, fields that cannot be changed."""

from __future__ import annotations

from typing import Any

from kubeflowcases.model import Case, Change, Contains, Fails, Has, HasNone, NotStored, Object, Step
from kubeflowcases.objects import (
    ANCESTOR,
    CONTAINER,
    DATASET,
    LAUNCHER,
    MODEL,
    NODE,
    POD,
    container,
    env,
    job,
    mpi_runtime,
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
    _uri("no-path", "dataset", "s3://", "The URI of a dataset must have something behind the scheme.", _BAD_URI),
    _uri("s3", "dataset", "s3://bucket/path", "An S3 bucket is a valid URI of a dataset.", _with_uri(DATASET, "s3://bucket/path")),
    _uri("no-scheme", "model", "invalid-uri", "The URI of a model must have a scheme.", _BAD_URI),
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
    *(
        Case(
            f"too-long-{field}",
            f"webhooks/trainjob: length of {field}",
            f"An entry of {field} must not be longer.",
            {"trainer": {field: ["a" * (_MEBIBYTE + 1)]}},
            runtime(policy=_TORCH),
            (NotStored("TrainJob", "Too long"),),
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
    _name("name-uppercase", "A name must not have uppercase letters.", "Invalid-name", NotStored("TrainJob", "name")),
    _name("name-digit", "A name must not begin with a digit.", "1jobname", NotStored("TrainJob", "RFC 1035")),
    _name("name-hyphen", "A name must not end with a hyphen.", "jobname-", NotStored("TrainJob", "name")),
    _name(
        "name-long",
        "A name must not have more than 63 characters.",
        "this-name-is-way-too-long-for-a-label-of-dns-and-should-not-be-valid",
        NotStored("TrainJob", "no more than 63 characters"),
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
        "managed-invalid",
        "webhooks/trainjob: managedBy",
        "A job must not name any other manager than this one and MultiKueue.",
        {"managedBy": "invalid"},
        runtime(policy=_TORCH),
        (NotStored("TrainJob", "ManagedBy must be"),),
    ),
    Case(
        "grace-negative",
        "webhooks/trainjob: terminationGracePeriodSeconds",
        "A patch must not set a negative time to end.",
        patched(terminationGracePeriodSeconds=-1),
        runtime(policy=_TORCH),
        (NotStored("TrainJob", "terminationGracePeriodSeconds"),),
    ),
    Case(
        "grace-zero",
        "webhooks/trainjob: terminationGracePeriodSeconds",
        "A patch may set the time to end to 0.",
        patched(terminationGracePeriodSeconds=0),
        runtime(policy=_TORCH),
        (job(NODE, {f"{POD}.terminationGracePeriodSeconds": 0}),),
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


def _fixed(field: str, given: Object, changed: Object, refused: str = "field is immutable") -> Case:
    return Case(
        f"fixed-{field.lower()}",
        f"webhooks/trainjob: {field} changed",
        f"The field {field} of a job cannot be changed.",
        given,
        three_jobs(),
        (job(), Change(changed, refused)),
    )


_FIXED = (
    _fixed("managedBy", {}, {"managedBy": "kueue.x-k8s.io/multikueue"}),
    _fixed("runtimeRef", {}, {"runtimeRef": {"name": "forbidden-update"}}),
    _fixed(
        "initializer",
        {"initializer": {"model": {"storageUri": "s3://test/path"}}},
        {"initializer": {"model": {"storageUri": "s3://forbidden-update"}}},
    ),
    _fixed("trainer", {"trainer": {"image": "test-image"}}, {"trainer": {"image": "forbidden-update"}}),
    _fixed(
        "terminationGracePeriodSeconds",
        patched(terminationGracePeriodSeconds=300),
        patched(terminationGracePeriodSeconds=600),
    ),
)


def _policies(*names: str) -> Case:
    given: Object = {"mpi": {}, "torch": {}, "jax": {}, "flux": {}}
    return Case(
        f"policies-{'-'.join(names)}",
        "webhooks/trainingruntime: several frameworks",
        f"A runtime must not have several frameworks: {', '.join(names)}.",
        {},
        runtime(policy={name: given[name] for name in names}),
        (NotStored("TrainingRuntime", "Only one of the policy can be configured"),),
    )


def _default(field: str, value: Any) -> Case:
    return Case(
        f"mpi-default-{field.lower()}",
        "webhooks/trainingruntime: defaults",
        f"The default of {field} of an MPI runtime is {value}.",
        {"suspend": True},
        runtime(replicated(NODE), replicated(LAUNCHER), policy={"mpi": {}}),
        (Has("TrainingRuntime", "", {f"spec.mlPolicy.mpi.{field}": value}),),
    )


_RUNTIMES = (
    _policies("mpi", "torch"),
    _policies("jax", "torch"),
    _policies("torch", "flux"),
    _policies("mpi", "flux"),
    _policies("jax", "flux"),
    _policies("jax", "mpi"),
    _policies("torch", "mpi", "jax", "flux"),
    Case(
        "mpi-implementation",
        "webhooks/trainingruntime: mpiImplementation",
        "An implementation of MPI that is not known is refused.",
        {},
        mpi_runtime(mpiImplementation="invalid"),
        (NotStored("TrainingRuntime", "mpiImplementation"),),
    ),
    _default("mpiImplementation", "OpenMPI"),
    _default("sshAuthMountPath", "/root/.ssh"),
    _default("runLauncherAsNode", False),
    _default("numProcPerNode", 1),
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
