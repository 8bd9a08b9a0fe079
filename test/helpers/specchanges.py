"""Changes of a started job that the API server and the controller allow or refuse."""

from __future__ import annotations

from dataclasses import dataclass, field

from helpers.manifests import Manifest, container, master, parameter_servers, pod_template, tfjob, workers
from tfjob_controller.api.common.managedby import MANAGED_BY_FIXED
from tfjob_controller.api.tfjob import validation as says

TEMPLATE = pod_template(container(command=["train"]), nodeSelector={"disk": "fast"})
ENTRIES = master(), workers(2, template=TEMPLATE), parameter_servers()


def started(*entries: Manifest, **spec: object) -> Manifest:
    return tfjob(*(entries or ENTRIES), **{"RuntimeId": "76no", **spec})


@dataclass(frozen=True, slots=True)
class Change:
    """`refusal` is the message of both, empty if the change is allowed; `at` is the field of the error."""

    name: str
    after: Manifest
    refusal: str = ""
    at: str = "spec.replicaSpecs"
    before: Manifest = field(default_factory=started)


def _template(name: str, template: Manifest | None) -> Change:
    """Returns a change of the workers' template."""
    return Change(name, started(master(), workers(2, template=template), parameter_servers()), says.TEMPLATE_FIXED)


_CHIEF = {"chief": {"replicaName": "MASTER", "replicaIndex": 0}}


def _scaled(**autoscaling: object) -> Manifest:
    return started(autoscaling=autoscaling)


CHANGES = (
    Change("nothing", started()),
    Change("entries-in-another-order", started(*reversed(ENTRIES))),
    Change("a-manager", started(managedBy="example.com/x"), MANAGED_BY_FIXED, "spec.managedBy"),
    Change("no-manager", started(), MANAGED_BY_FIXED, "spec.managedBy", started(managedBy="example.com/x")),
    Change("runtime-id", started(RuntimeId="77no"), says.RUNTIME_ID_FIXED, "spec.RuntimeId"),
    Change("a-type-more", started(), says.TYPES_FIXED, before=started(master(), workers(2, template=TEMPLATE))),
    Change("a-type-less", started(master(), workers(2, template=TEMPLATE)), says.TYPES_FIXED),
    Change(
        "another-type",
        started(master(), workers(2, template=TEMPLATE)),
        says.TYPES_FIXED,
        before=started(master(), parameter_servers(template=TEMPLATE)),
    ),
    _template(
        "template-image", pod_template({**container(command=["train"]), "image": "b"}, nodeSelector={"disk": "fast"})
    ),
    _template("template-command-becomes-args", pod_template(container(args=["train"]), nodeSelector={"disk": "fast"})),
    _template(
        "template-field-added", pod_template(container(command=["train"], tty=True), nodeSelector={"disk": "fast"})
    ),
    _template("template-field-removed", pod_template(container(command=["train"]))),
    _template("template-deep-inside", pod_template(container(command=["train"]), nodeSelector={"disk": "slow"})),
    _template("template-labels", {"metadata": {"labels": {"a": "b"}}, **TEMPLATE}),
    _template(
        "template-sidecar", pod_template(container(command=["train"]), container("log"), nodeSelector={"disk": "fast"})
    ),
    Change(
        "template-labels-become-annotations",
        started(master(), workers(2, template={"metadata": {"annotations": {"a": "b"}}, **TEMPLATE})),
        says.TEMPLATE_FIXED,
        before=started(master(), workers(2, template={"metadata": {"labels": {"a": "b"}}, **TEMPLATE})),
    ),
    Change(
        "template-for-the-default-server",
        started(master(), workers(2, template=TEMPLATE), parameter_servers(template=TEMPLATE)),
        says.TEMPLATE_FIXED,
    ),
    Change("port", started(master(), workers(2, template=TEMPLATE, tfPort=2223), parameter_servers()), says.PORT_FIXED),
    Change("port-spelt-out", started(master(), workers(2, template=TEMPLATE, tfPort=2222), parameter_servers())),
    Change("ps-replicas", started(master(), workers(2, template=TEMPLATE), parameter_servers(3)), says.REPLICAS_FIXED),
    Change(
        "chief",
        started(terminationPolicy={"chief": {"replicaName": "WORKER", "replicaIndex": 0}}),
        says.TERMINATION_POLICY_FIXED,
        "spec.terminationPolicy",
    ),
    Change(
        "chief-index",
        started(terminationPolicy={"chief": {"replicaName": "WORKER", "replicaIndex": 0}}),
        says.TERMINATION_POLICY_FIXED,
        "spec.terminationPolicy",
        before=started(terminationPolicy={"chief": {"replicaName": "WORKER", "replicaIndex": 1}}),
    ),
    Change("chief-spelt-out", started(terminationPolicy=_CHIEF)),
    Change("worker-replicas", started(workerReplicas=5)),
    Change("replicas-of-worker", started(master(), workers(7, template=TEMPLATE), parameter_servers())),
    Change("suspend", started(suspend=True)),
    Change("ttl", started(ttlSecondsAfterFinished=60)),
    Change("deadline", started(activeDeadlineSeconds=60)),
    Change("backoff-limit", started(backoffLimit=3)),
    Change("clean-pod-policy", started(cleanPodPolicy="All")),
    Change("gang", started(gang={"enabled": True}), says.GANG_FIXED, "spec.gang"),
    Change("no-gang", started(), says.GANG_FIXED, "spec.gang", before=started(gang={"enabled": True})),
    Change("autoscaling", _scaled(maxWorkers=4), says.RESIZE_FIXED, "spec.autoscaling"),
    Change("no-autoscaling", started(), says.RESIZE_FIXED, "spec.autoscaling", before=_scaled(maxWorkers=4)),
    Change(
        "resize",
        _scaled(maxWorkers=4, resize="Restart"),
        says.RESIZE_FIXED,
        "spec.autoscaling",
        before=_scaled(maxWorkers=4),
    ),
    Change("resize-spelt-out", _scaled(maxWorkers=4, resize="InPlace"), before=_scaled(maxWorkers=4)),
    Change(
        "total-steps",
        _scaled(maxWorkers=4, totalSteps=9),
        says.TOTAL_STEPS_FIXED,
        "spec.autoscaling",
        before=_scaled(maxWorkers=4, totalSteps=8),
    ),
    Change(
        "total-steps-thought-of-late",
        _scaled(maxWorkers=4, totalSteps=9),
        says.TOTAL_STEPS_FIXED,
        "spec.autoscaling",
        before=_scaled(maxWorkers=4),
    ),
    Change(
        "autoscaling-bounds-and-pattern",
        _scaled(minWorkers=2, maxWorkers=6, progress={"pattern": "(.)"}),
        before=_scaled(maxWorkers=4),
    ),
    Change(
        "checkpoint",
        started(checkpoint={"storageUri": "s3://a"}),
        says.CHECKPOINT_FIXED,
        "spec.checkpoint",
    ),
    Change(
        "checkpoints-that-are-kept",
        started(checkpoint={"storageUri": "s3://a", "keep": 2}),
        says.CHECKPOINT_FIXED,
        "spec.checkpoint",
        before=started(checkpoint={"storageUri": "s3://a", "keep": 1}),
    ),
    Change(
        "gang-but-not-whether",
        started(gang={"enabled": True, "timeoutSeconds": 5}),
        before=started(gang={"enabled": True, "priority": 1}),
    ),
)
