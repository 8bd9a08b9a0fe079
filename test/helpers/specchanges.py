"""Changes of a started job that the API server and the controller allow or refuse."""

from __future__ import annotations

from helpers.manifests import Manifest, container, master, parameter_servers, pod_template, tfjob, workers
from helpers.refusals import Change
from tfjob_controller.api.common.managedby import MANAGED_BY_FIXED
from tfjob_controller.api.tfjob import validation as says

TEMPLATE = pod_template(container(command=["train"]), nodeSelector={"disk": "fast"})
ENTRIES = master(), workers(2, template=TEMPLATE), parameter_servers()


def started(*entries: Manifest, **spec: object) -> Manifest:
    return tfjob(*(entries or ENTRIES), **{"RuntimeId": "76no", **spec})


def _change(
    name: str, after: Manifest, refusal: str = "", at: str = "spec.replicaSpecs", before: Manifest | None = None
) -> Change:
    return Change(name, before or started(), after, refusal, at)


def _template(name: str, template: Manifest | None) -> Change:
    """Returns a change of the workers' template."""
    return _change(name, started(master(), workers(2, template=template), parameter_servers()), says.TEMPLATE_FIXED)


_CHIEF = {"chief": {"replicaName": "MASTER", "replicaIndex": 0}}


def _scaled(**autoscaling: object) -> Manifest:
    return started(autoscaling=autoscaling)


CHANGES = (
    _change("nothing", started()),
    _change(
        "order-and-defaults-spelt-out",
        started(
            parameter_servers(),
            workers(2, template=TEMPLATE, tfPort=2222),
            master(),
            terminationPolicy=_CHIEF,
            autoscaling={"maxWorkers": 4, "resize": "InPlace"},
        ),
        before=_scaled(maxWorkers=4),
    ),
    _change(
        "policies",
        started(
            workerReplicas=5,
            suspend=True,
            ttlSecondsAfterFinished=60,
            activeDeadlineSeconds=60,
            backoffLimit=3,
            cleanPodPolicy="All",
        ),
    ),
    _change("a-manager", started(managedBy="example.com/x"), MANAGED_BY_FIXED, "spec.managedBy"),
    _change("no-manager", started(), MANAGED_BY_FIXED, "spec.managedBy", started(managedBy="example.com/x")),
    _change("runtime-id", started(RuntimeId="77no"), says.RUNTIME_ID_FIXED, "spec.RuntimeId"),
    _change("a-type-more", started(), says.TYPES_FIXED, before=started(master(), workers(2, template=TEMPLATE))),
    _change(
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
    _template("template-labels", {"metadata": {"labels": {"a": "b"}}, **TEMPLATE}),
    _template(
        "template-sidecar", pod_template(container(command=["train"]), container("log"), nodeSelector={"disk": "fast"})
    ),
    _change(
        "template-labels-become-annotations",
        started(master(), workers(2, template={"metadata": {"annotations": {"a": "b"}}, **TEMPLATE})),
        says.TEMPLATE_FIXED,
        before=started(master(), workers(2, template={"metadata": {"labels": {"a": "b"}}, **TEMPLATE})),
    ),
    _change(
        "template-for-the-default-server",
        started(master(), workers(2, template=TEMPLATE), parameter_servers(template=TEMPLATE)),
        says.TEMPLATE_FIXED,
    ),
    _change(
        "port", started(master(), workers(2, template=TEMPLATE, tfPort=2223), parameter_servers()), says.PORT_FIXED
    ),
    _change("ps-replicas", started(master(), workers(2, template=TEMPLATE), parameter_servers(3)), says.REPLICAS_FIXED),
    _change(
        "chief-index",
        started(terminationPolicy={"chief": {"replicaName": "WORKER", "replicaIndex": 0}}),
        says.TERMINATION_POLICY_FIXED,
        "spec.terminationPolicy",
        before=started(terminationPolicy={"chief": {"replicaName": "WORKER", "replicaIndex": 1}}),
    ),
    _change("replicas-of-worker", started(master(), workers(7, template=TEMPLATE), parameter_servers())),
    _change("gang", started(gang={"enabled": True}), says.GANG_FIXED, "spec.gang"),
    _change("no-gang", started(), says.GANG_FIXED, "spec.gang", before=started(gang={"enabled": True})),
    _change("autoscaling", _scaled(maxWorkers=4), says.RESIZE_FIXED, "spec.autoscaling"),
    _change("no-autoscaling", started(), says.RESIZE_FIXED, "spec.autoscaling", before=_scaled(maxWorkers=4)),
    _change(
        "resize",
        _scaled(maxWorkers=4, resize="Restart"),
        says.RESIZE_FIXED,
        "spec.autoscaling",
        before=_scaled(maxWorkers=4),
    ),
    _change(
        "total-steps",
        _scaled(maxWorkers=4, totalSteps=9),
        says.TOTAL_STEPS_FIXED,
        "spec.autoscaling",
        before=_scaled(maxWorkers=4, totalSteps=8),
    ),
    _change(
        "total-steps-thought-of-late",
        _scaled(maxWorkers=4, totalSteps=9),
        says.TOTAL_STEPS_FIXED,
        "spec.autoscaling",
        before=_scaled(maxWorkers=4),
    ),
    _change(
        "autoscaling-bounds-and-pattern",
        _scaled(minWorkers=2, maxWorkers=6, progress={"pattern": "(.)"}),
        before=_scaled(maxWorkers=4),
    ),
    _change(
        "checkpoint",
        started(checkpoint={"storageUri": "s3://a"}),
        says.CHECKPOINT_FIXED,
        "spec.checkpoint",
    ),
    _change(
        "checkpoints-that-are-kept",
        started(checkpoint={"storageUri": "s3://a", "keep": 2}),
        says.CHECKPOINT_FIXED,
        "spec.checkpoint",
        before=started(checkpoint={"storageUri": "s3://a", "keep": 1}),
    ),
    _change(
        "gang-but-not-whether",
        started(gang={"enabled": True, "timeoutSeconds": 5}),
        before=started(gang={"enabled": True, "priority": 1}),
    ),
)
