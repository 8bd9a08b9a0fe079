"""Cases of what a job changes of its runtime's pods: patches, initializers, variables of further containers."""

from __future__ import annotations

from typing import Any

from kubeflowcases.model import Case, Fails, Object
from kubeflowcases.objects import (
    CONTAINER,
    DATASET,
    INDEX,
    MODEL,
    NODE,
    POD,
    TORCH,
    case,
    container,
    count,
    env,
    job,
    patch,
    patched,
    pod_patch,
    replicated,
    runtime,
    three_jobs,
    trainer,
)

_ZONES = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["east", "west"]}
_AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [_ZONES]}]}
    }
}
_GATES = [{"name": "kueue.x-k8s.io/admission"}]
_TOLERATIONS = [{"key": "example.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
_SETUP: Object = {
    "name": "setup",
    "image": "test:runtime",
    "env": [{"name": "INIT_ENV", "value": "original"}, {"name": "DATASET_PATH", "value": "runtime"}],
}


def _with_pod(**pod_spec: Any) -> Object:
    """Returns a replicated job of nodes whose pods have further fields."""
    found = replicated()
    found["template"]["spec"]["template"]["spec"] |= pod_spec
    return found


_PATCHES = (
    case("patch-labels", "controller/trainjob: plain runtime, created")
    .promises("Labels and annotations that a patch gives to the JobSet are found on the objects of the job.")
    .given(
        {**trainer(), "runtimePatches": [patch(labels={"testingKey": "a"}, annotations={"testingKey": "b"})]},
        runtime(policy={"numNodes": 1}),
    )
    .then_node({"metadata.labels[testingKey]": "a", "metadata.annotations[testingKey]": "b"}),
    case("patch-pods", "controller/trainjob: patches")
    .promises(
        "A patch may change labels, annotations and the service account of pods, and variables of init containers."
    )
    .given(
        {
            **trainer(),
            "runtimePatches": [
                patch(
                    pod_patch(
                        metadata={"labels": {"custom-label": "a"}, "annotations": {"custom-annotation": "b"}},
                        serviceAccountName="override-sa",
                        initContainers=[
                            {
                                "name": "setup",
                                "env": [{"name": "INIT_ENV", "value": "new"}, {"name": "NEW_VALUE", "value": "more"}],
                            }
                        ],
                    )
                )
            ],
        },
        runtime(_with_pod(initContainers=[_SETUP]), policy=TORCH),
    )
    .then_node(
        {
            f"{POD}.serviceAccountName": "override-sa",
            "spec.template.metadata.labels[custom-label]": "a",
            "spec.template.metadata.annotations[custom-annotation]": "b",
        },
        env("setup", "initContainers", INIT_ENV="new", NEW_VALUE="more", DATASET_PATH="runtime"),
    ),
    case("patch-scheduling", "core/trainingruntime: patches")
    .promises(
        "A patch may set affinity, node selector, tolerations, scheduling gates, image pull secrets, security context "
        "and the time that pods have to end."
    )
    .given(
        {
            **trainer(),
            **patched(
                affinity=_AFFINITY,
                nodeSelector={"node.kubernetes.io/instance-type": "p5"},
                tolerations=_TOLERATIONS,
                schedulingGates=_GATES,
                imagePullSecrets=[{"name": "registry"}],
                securityContext={"runAsUser": 1001},
                terminationGracePeriodSeconds=300,
            ),
        },
        runtime(policy={"numNodes": 1}),
    )
    .then_node(
        {
            f"{POD}.affinity": _AFFINITY,
            f"{POD}.nodeSelector": {"node.kubernetes.io/instance-type": "p5"},
            f"{POD}.tolerations": _TOLERATIONS,
            f"{POD}.schedulingGates": _GATES,
            f"{POD}.imagePullSecrets": [{"name": "registry"}],
            f"{POD}.securityContext": {"runAsUser": 1001},
            f"{POD}.terminationGracePeriodSeconds": 300,
        }
    ),
    case("patch-volumes", "core/trainingruntime: patches")
    .promises("A patch may add volumes, and mount them into the training container and into others.")
    .given(
        {
            **trainer(),
            **patched(
                volumes=[
                    {"name": "token", "secret": {"secretName": "token"}},
                    {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                ],
                containers=[
                    {"name": NODE, "volumeMounts": [{"name": "token", "mountPath": "/token"}]},
                    {"name": "sidecar", "env": [{"name": "SIDE", "value": "new"}]},
                ],
            ),
        },
        runtime(
            replicated(NODE, container(), container("sidecar", env=[{"name": "SIDE", "value": "old"}])),
            policy={"numNodes": 1},
        ),
    )
    .then_node(
        {
            f"{POD}.volumes[token].secret.secretName": "token",
            f"{POD}.volumes[data].persistentVolumeClaim.claimName": "data",
            f"{CONTAINER}.volumeMounts[token].mountPath": "/token",
        },
        env("sidecar", SIDE="new"),
    ),
    case("patch-two-managers", "core/trainingruntime: two patches of one job")
    .promises(
        "Patches of two managers for the same job are both applied. Of two values for one field, the later one has "
        "precedence."
    )
    .given(
        {
            **trainer(),
            "runtimePatches": [
                patch(pod_patch(nodeSelector={"type": "p5"}, serviceAccountName="test-sa"), manager="test.io/one"),
                patch(pod_patch(nodeSelector={"type": "p5en"}), manager="test.io/two"),
            ],
        },
        runtime(policy={"numNodes": 1}),
    )
    .then_node({f"{POD}.nodeSelector": {"type": "p5en"}, f"{POD}.serviceAccountName": "test-sa"}),
    case("patch-unknown-job", "plugins/jobset: patch of an unknown job")
    .promises("A patch of a job that the runtime does not have is refused.")
    .given(
        {"runtimePatches": [patch(pod_patch("valid"), pod_patch("other"))]},
        runtime(replicated(), replicated("valid", ancestor=""), policy=TORCH),
    )
    .then(Fails("must not have replicated job that doesn't exist in the runtime job template: other")),
    *(
        case(f"patch-unknown-{kind.lower()}", f"plugins/jobset: patch of an unknown entry of {kind}")
        .promises(f"A patch of an entry of {kind} that the runtime's pod does not have is refused.")
        .given(patched(**{kind: [{"name": "other"}]}), runtime(_with_pod(initContainers=[_SETUP]), policy=TORCH))
        .then(Fails("must not have container that doesn't exist in the runtime job node"))
        for kind in ("initContainers", "containers")
    ),
    case("patch-reserved-container", "plugins/jobset: variables of the training container")
    .promises("A patch must not set variables of the training container, which are the trainer's.")
    .given(patched(containers=[{"name": NODE, "env": [{"name": "A", "value": "b"}]}]))
    .then(Fails("spec.containers[0].env: must not have envs for the container node")),
    case("patch-manager", "webhooks/trainjob: an invalid manager")
    .promises("The manager of a patch must be a domain and a path.")
    .given({"runtimePatches": [{"manager": "kueue.k8s.io/"}]})
    .then(Fails("spec.runtimePatches[0].manager: must be a domain and a path")),
)


def _asset(name: str, ancestor: str) -> tuple[Case, ...]:
    """Returns the cases of an initializer."""
    path = f"{POD}.containers[{ancestor}]"
    only = runtime(replicated(), policy=TORCH)
    return (
        case(f"{name}-created", f"plugins/jobset: builder, {name}")
        .promises(f"The initializer of the {name} finds its URI, the job's variables and those of a Secret.")
        .given(
            {
                **trainer(),
                "initializer": {
                    name: {
                        "storageUri": f"hf://trainjob-{name}",
                        "env": [{"name": "MORE", "value": "1"}, {"name": "OWN", "value": "job"}],
                        "secretRef": {"name": "token"},
                    }
                },
            },
            three_jobs(TORCH, replicated())
            if name == "model"
            else runtime(
                replicated(ancestor, container(ancestor, env=[{"name": "OWN", "value": "runtime"}])),
                replicated(),
                policy=TORCH,
            ),
        )
        .then(
            job(
                ancestor,
                count(1),
                env(ancestor, STORAGE_URI=f"hf://trainjob-{name}", MORE="1", OWN="job"),
                {f"{path}.envFrom[0].secretRef.name": "token"},
            )
        ),
        case(f"{name}-missing", f"plugins/jobset: no job for the {name}")
        .promises(f"A job with a {name} is refused if its runtime has no initializer for it.")
        .given({"initializer": {name: {"storageUri": "hf://a/b"}}}, only)
        .then(Fails(f"spec.initializer.{name}: the runtime has no job with the label")),
        case(f"{name}-container", f"webhooks/trainjob: no container for the {name}")
        .promises(f"A job is refused if the initializer of the {name} lacks the container of that name.")
        .given(
            {"initializer": {name: {"storageUri": "hf://a/b"}}},
            runtime(replicated(ancestor, container("test")), replicated(), policy=TORCH),
        )
        .then(Fails(f"must contain the required container for the ancestor: {ancestor}")),
        case(f"{name}-mount", f"plugins/jobset: no volume for the {name}")
        .promises(f"A job is refused if the initializer of the {name} does not mount the volume named initializer.")
        .given(
            {"initializer": {name: {"storageUri": "hf://a/b"}}},
            runtime(replicated(ancestor), replicated(), policy=TORCH),
        )
        .then(job(ancestor, env(ancestor, STORAGE_URI="hf://a/b")))
        .but(
            "Upstream demands a volume of that name. Here an initializer may store its data where it likes: "
            "upstream's own example 05-multi-step and its runtime with a data cache mount no such volume."
        ),
        *(
            case(f"{name}-label", "plugins/jobset: builder, no label")
            .promises("A job without the label of an initializer is not changed.")
            .given(
                {**trainer()}, runtime(replicated(), replicated("worker", container("some"), ancestor=""), policy=TORCH)
            )
            .then(job("worker", count(1), {f"{POD}.containers[some].env": None}))
            for _ in range(name == "dataset")
        ),
    )


_INJECTED = env(
    "setup",
    "initContainers",
    PET_NNODES="1",
    PET_NPROC_PER_NODE="1",
    PET_MASTER_ADDR="injected-node-0-0.injected",
    PET_MASTER_PORT="29500",
)


def _injection(job_name: str, *names: str) -> Object:
    targets = [{"jobName": job_name, "containerNames": list(names)}]
    return {"numNodes": 1, "torch": {"envInjection": {"targets": targets}}}


_INJECTION = (
    case("injected", "plugins/torch: envInjection, init container")
    .promises("With envInjection an init container of the nodes gets torch's variables as well.")
    .given(runtime=runtime(_with_pod(initContainers=[_SETUP]), policy=_injection(NODE, "setup")))
    .then_node(_INJECTED),
    case("injected-sidecar", "plugins/torch: envInjection, sidecar")
    .promises("The same applies to containers other than the training container.")
    .given(runtime=runtime(replicated(NODE, container(), container("sidecar")), policy=_injection(NODE, "sidecar")))
    .then_node(env("sidecar", PET_NNODES="1"), env(PET_NODE_RANK=INDEX)),
    case("injected-none", "plugins/torch: envInjection without targets")
    .promises("Without targets, only the training container gets them.")
    .given(
        runtime=runtime(
            replicated(NODE, container(), container("sidecar")),
            policy={"numNodes": 1, "torch": {"envInjection": {"targets": []}}},
        )
    )
    .then_node({f"{POD}.containers[sidecar].env": None}),
    *(
        case(f"injected-unknown-{what}", f"plugins/torch: envInjection, unknown {what}")
        .promises(f"A target of envInjection with an unknown {what} is refused.")
        .given(runtime=runtime(policy=_injection(*target)))
        .then(Fails("envInjection"))
        for what, target in (("container", (NODE, "other")), ("job", ("other", "setup")))
    ),
)

CASES = (*_PATCHES, *_asset("dataset", DATASET), *_asset("model", MODEL), *_INJECTION)
