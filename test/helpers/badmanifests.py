"""Invalid TFJobs, with the errors of the API server and of the controller for each.

One table for both, so that the rules in the CRD and those in the controller cannot drift apart: test_crd.py applies
each with kubectl, test_validation.py decodes and validates each.
"""
# ruff: noqa: E501  the sentences stand here as they are said, each on one line

from __future__ import annotations

from typing import Any

from helpers.manifests import Manifest, container, master, parameter_servers, pod_template, replica, tfjob, workers
from helpers.refusals import SKIPPED, Bad, bad
from tfjob_controller.api.tfjob.validation import BAD_PATTERN


def _scaled(replicas: Any = 2, **autoscaling: Any) -> Manifest:
    """Returns a job of a master and workers with autoscaling, by default from 1 to 4 workers."""
    given = {"minWorkers": 1, "maxWorkers": 4, **autoscaling}
    return tfjob(
        master(), workers(replicas), autoscaling={name: each for name, each in given.items() if each is not None}
    )


def _pattern(pattern: Any) -> Manifest:
    return _scaled(progress={"pattern": pattern})


def _bad_pattern(name: str, pattern: str) -> Bad:
    return bad(name, _pattern(pattern), f"spec.autoscaling.progress: {BAD_PATTERN}")


def _chief(name: str, index: Any = 0) -> dict[str, Any]:
    return {"chief": {"replicaName": name, "replicaIndex": index}}


def _without(manifest: Manifest, *path: str) -> Manifest:
    """Returns the manifest without the field at `path`."""
    head, *rest = path
    if not rest:
        return {name: value for name, value in manifest.items() if name != head}
    return {**manifest, head: _without(manifest[head], *rest)}


# A line for the case, and one for what is said of it.
# fmt: off
BAD_MANIFESTS = (
    Bad("no-spec", _without(tfjob(), "spec"),
        "spec.replicaSpecs: at least one entry is required",
        ("spec: Required value", SKIPPED)),
    Bad("no-replica-specs", _without(tfjob(), "spec", "replicaSpecs"),
        "spec.replicaSpecs: at least one entry is required",
        ("spec.replicaSpecs: Required value", SKIPPED)),
    Bad("empty-replica-specs", {**tfjob(), "spec": {"replicaSpecs": []}},
        "spec.replicaSpecs: at least one entry is required",
        ("spec.replicaSpecs: Invalid value: 0: spec.replicaSpecs in body should have at least 1 items",
         "spec: Invalid value: Missing ReplicaSpec for chief: MASTER")),
    bad("unknown-type", tfjob(master(), replica("CHIEF")),
        "spec.replicaSpecs[1].tfReplicaType: must be one of MASTER, WORKER, PS, is CHIEF"),
    Bad("default-type-twice", tfjob(_without(master(), "tfReplicaType"), master()),
        "spec.replicaSpecs[1].tfReplicaType: MASTER is listed twice: give one entry more replicas instead",
        ('spec.replicaSpecs[1]: Duplicate value: {"tfReplicaType":"MASTER"}',)),
    Bad("no-master-and-no-worker", tfjob(parameter_servers()),
        "Missing ReplicaSpec for chief: MASTER",
        ("spec: Invalid value: Missing ReplicaSpec for chief: MASTER",)),
    Bad("chief-worker-not-listed", tfjob(master(), terminationPolicy=_chief("WORKER")),
        "Missing ReplicaSpec for chief: WORKER",
        ("spec: Invalid value: Missing ReplicaSpec for chief: WORKER",)),
    bad("chief-index-of-master", tfjob(terminationPolicy=_chief("MASTER", 1)),
        "spec: the chief's replicaIndex is not below the replicas of MASTER: raise them, or name another chief"),
    bad("chief-index-of-worker", tfjob(workers(2), terminationPolicy=_chief("WORKER", 2)),
        "spec: the chief's replicaIndex is not below the replicas of WORKER: raise them, or name another chief"),
    bad("workers-scaled-away-from-chief", tfjob(workers(2), workerReplicas=0),
        "spec: the chief's replicaIndex is not below the replicas of WORKER: raise them, or name another chief"),
    bad("chief-is-default-server", tfjob(terminationPolicy=_chief("PS")),
        "spec: terminationPolicy.chief is PS, but the default parameter server never ends: give PS a template whose container named tensorflow has an image, or name another chief"),
    bad("two-masters", tfjob(master(replicas=2)),
        "spec.replicaSpecs[0].replicas: MASTER must have exactly 1 replica: set replicas to 1, and use WORKER for more"),
    Bad("no-masters", tfjob(master(replicas=0)),
        "spec.replicaSpecs[0].replicas: MASTER must have exactly 1 replica: set replicas to 1, and use WORKER for more",
        ("spec: Invalid value: the chief's replicaIndex is not below the replicas of MASTER: raise them, or name another chief",
         "spec.replicaSpecs[0].replicas: Invalid value: MASTER must have exactly 1 replica: set replicas to 1, and use WORKER for more")),
    bad("negative-workers", tfjob(master(), workers(-1)),
        "spec.replicaSpecs[1].replicas: must be from 0 to 1000, is -1"),
    bad("too-many-workers", tfjob(master(), workers(1001)),
        "spec.replicaSpecs[1].replicas: must be from 0 to 1000, is 1001"),
    Bad("replicas-is-a-fraction", tfjob(master(), workers(1.5)),
        "spec.replicaSpecs[1].replicas: expected int, got float",
        ('spec.replicaSpecs[1].replicas: Invalid value: "float64": spec.replicaSpecs[1].replicas in body must be of type int32: "float64"',
         '<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.replicaSpecs[1].replicas',
         SKIPPED),
        without_formats=('spec.replicaSpecs[1].replicas: Invalid value: "number": spec.replicaSpecs[1].replicas in body must be of type integer: "number"', SKIPPED)),
    bad("port-too-high", tfjob(master(tfPort=65536)), "spec.replicaSpecs[0].tfPort: must be from 1 to 65535, is 65536"),
    bad("master-without-template", tfjob(master(template=None)),
        "spec.replicaSpecs[0].template: template is required for MASTER and WORKER: only a PS can omit it", "Required value"),
    bad("no-container-named-tensorflow", tfjob(master(template=pod_template(container("main")))),
        "spec.replicaSpecs[0].template: template must have a container named tensorflow, whose exit code determines the state of the replica", "Required value"),
    bad("only-an-init-container-named-tensorflow",
        tfjob(master(template=pod_template(container("main"), initContainers=[container()]))),
        "spec.replicaSpecs[0].template: template must have a container named tensorflow, whose exit code determines the state of the replica", "Required value"),
    bad("container-without-name", tfjob(master(template=pod_template(container(), {"image": "a"}))),
        "spec.replicaSpecs[0].template.spec.containers[1].name: a name is required"),
    Bad("containers-is-text", tfjob(master(template={"spec": {"containers": "tensorflow"}})),
        "spec.replicaSpecs[0].template.spec.containers: expected a list of objects",
        ('spec.replicaSpecs[0].template.spec.containers: Invalid value: "string": spec.replicaSpecs[0].template.spec.containers in body must be of type array: "string"',
         SKIPPED)),
    bad("restart-always", tfjob(master(template=pod_template(container(), restartPolicy="Always"))),
        "spec.replicaSpecs[0].template.spec.restartPolicy: must be one of OnFailure, Never, is Always"),
    bad("worker-replicas-without-worker", tfjob(master(), workerReplicas=2),
        "spec: workerReplicas needs an entry for WORKER in replicaSpecs"),
    Bad("worker-replicas-negative", tfjob(workerReplicas=-1),
        "spec.workerReplicas: must be from 0 to 1000, is -1",
        ("spec.workerReplicas: Invalid value: -1: spec.workerReplicas in body should be greater than or equal to 0",
         ".spec.workerReplicas: Invalid value: -1: should be a non-negative integer")),
    Bad("ttl-beyond-int32", tfjob(ttlSecondsAfterFinished=2**31),
        "spec.ttlSecondsAfterFinished: must be from 0 to 2147483647, is 2147483648",
        ('<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.ttlSecondsAfterFinished',
         "spec.ttlSecondsAfterFinished: Invalid value: 2147483648: spec.ttlSecondsAfterFinished in body should be less than or equal to 2147483647"),
        without_formats=("spec.ttlSecondsAfterFinished: Invalid value: 2147483648: spec.ttlSecondsAfterFinished in body should be less than or equal to 2147483647",)),
    Bad("gang-enabled-is-text", tfjob(gang={"enabled": "yes"}),
        "spec.gang.enabled: expected bool, got str",
        ('spec.gang.enabled: Invalid value: "string": spec.gang.enabled in body must be of type boolean: "string"',
         SKIPPED)),
    Bad("gang-of-more-workers-than-there-are", tfjob(master(), workers(2), gang={"minWorkers": 3}),
        "spec: gang.minWorkers must not be more than the workers: lower it, or raise them",
        ("spec.gang: Invalid value: gang.minWorkers must not be more than the workers: lower it, or raise them",)),
    bad("autoscaling-min-above-max", _scaled(minWorkers=5),
        "spec: autoscaling.minWorkers must not be more than maxWorkers: lower it, or raise maxWorkers"),
    bad("autoscaling-min-of-nothing", _scaled(minWorkers=0),
        "spec.autoscaling.minWorkers: must be from 1 to 1000, is 0"),
    bad("autoscaling-fewer-workers-than-min", _scaled(1, minWorkers=2),
        "spec: the workers (workerReplicas, or else replicas of WORKER) must be from autoscaling.minWorkers to maxWorkers: choose such a number, or change minWorkers or maxWorkers"),
    bad("autoscaling-more-workers-than-max",
        tfjob(master(), workers(2), workerReplicas=5, autoscaling={"maxWorkers": 4}),
        "spec: the workers (workerReplicas, or else replicas of WORKER) must be from autoscaling.minWorkers to maxWorkers: choose such a number, or change minWorkers or maxWorkers"),
    bad("autoscaling-below-the-gangs-least",
        tfjob(master(), workers(3), gang={"minWorkers": 3}, autoscaling={"maxWorkers": 2}),
        "spec: autoscaling.minWorkers must not be more than maxWorkers: lower it, or raise maxWorkers"),
    bad("autoscaling-and-gang-differ",
        tfjob(master(), workers(3), gang={"minWorkers": 2}, autoscaling={"minWorkers": 1, "maxWorkers": 4}),
        "spec: gang.minWorkers and autoscaling.minWorkers have different values: leave one of them out"),
    bad("autoscaling-without-worker", tfjob(master(), autoscaling={"maxWorkers": 4, "totalSteps": 100}),
        "spec: autoscaling needs an entry for WORKER in replicaSpecs"),
    bad("autoscaling-of-a-chief-that-may-leave",
        tfjob(workers(3), terminationPolicy=_chief("WORKER", 1), autoscaling={"maxWorkers": 4}),
        "spec: the chief is a worker that autoscaling can remove: name worker 0, the master or a PS, or leave autoscaling out"),
    bad("unknown-resize", _scaled(resize="Live"), "spec.autoscaling.resize: must be one of InPlace, Restart, is Live"),
    _bad_pattern("pattern-without-a-group", "step [0-9]+"),
    _bad_pattern("pattern-with-two-groups", "(step) ([0-9]+)"),
    _bad_pattern("pattern-that-is-no-expression", "step ([0-9]+"),
    _bad_pattern("pattern-that-could-take-for-ever", "(a+)+b"),
    _bad_pattern("pattern-that-looks-back", "(.)\\1"),
    bad("manager-without-a-domain", tfjob(managedBy="me"),
        "spec.managedBy: must be a name with a domain in front, such as kueue.x-k8s.io/multikueue", 'Invalid value: "me"'),
    Bad("runtime-id-with-a-line-end", tfjob(RuntimeId="76no\n"),
        "spec.RuntimeId: must be four of 0-9 and a-z: leave it to the controller",
        ("spec.RuntimeId: Invalid value: \"76no\\n\": spec.RuntimeId in body should match '^([0-9a-z]{4})?$'",)),
    bad("checkpoints-by-node", tfjob(checkpoint={"storageUri": "s3://a", "perNode": True}),
        "spec.checkpoint.perNode: perNode is for TrainJobs only, because the chief saves the checkpoints of a TFJob: leave it out", "Forbidden"),
    bad("checkpoints-on-a-web-server", tfjob(checkpoint={"storageUri": "https://host/a"}),
        "spec.checkpoint.storageUri: must begin with s3://, hf://, gs://, file:/// or pvc:// and name a location"),
    bad("checkpoints-above-their-folder", tfjob(checkpoint={"storageUri": "s3://a", "path": "/a/../etc"}),
        "spec.checkpoint.path: must be an absolute path, such as /workspace/checkpoints", 'Invalid value: "/a/../etc"'),
    Bad("variables-of-checkpoints-twice",
        tfjob(checkpoint={"storageUri": "s3://a", "env": [{"name": "A"}, {"name": "A"}]}),
        "spec.checkpoint.env[1].name: A is listed twice: leave one of them out",
        ('spec.checkpoint.env[1]: Duplicate value: {"name":"A"}',)),
)
