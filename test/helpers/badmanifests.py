"""Invalid TFJobs, with the errors of the API server and of the controller for each.

One table for both, so that the rules in the CRD and those in the controller cannot drift apart: test_crd.py applies
each with kubectl, test_validation.py decodes and validates each.
"""
# ruff: noqa: E501  the sentences stand here as they are said, each on one line

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from helpers.manifests import Manifest, container, master, parameter_servers, pod_template, replica, tfjob, workers
from tfjob_controller.api.tfjob.validation import BAD_PATTERN


@dataclass(frozen=True, slots=True)
class Bad:
    """`words` is the controller's message, `answers` has the API server's messages, one for each problem.

    Kubernetes compares numbers with their format only since 1.36; `without_formats` are the messages before, if they
    are others.
    """

    name: str
    manifest: Manifest
    words: str
    answers: tuple[str, ...]
    without_formats: tuple[str, ...] = ()


# The API server adds this message if the schema is violated, because it cannot evaluate the rules then.
SKIPPED = (
    "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)


def _scaled(replicas: Any = 2, **autoscaling: Any) -> Manifest:
    """Returns a job of a master and workers with autoscaling, by default from 1 to 4 workers."""
    given = {"minWorkers": 1, "maxWorkers": 4, **autoscaling}
    return tfjob(
        master(), workers(replicas), autoscaling={name: each for name, each in given.items() if each is not None}
    )


def _pattern(pattern: Any) -> Manifest:
    return _scaled(progress={"pattern": pattern})


def _bad_pattern(name: str, pattern: str) -> Bad:
    return Bad(
        name,
        _pattern(pattern),
        f"spec.autoscaling.progress: {BAD_PATTERN}",
        (f"spec.autoscaling.progress: Invalid value: {BAD_PATTERN}",),
    )


def _chief(name: str, index: Any = 0) -> dict[str, Any]:
    return {"chief": {"replicaName": name, "replicaIndex": index}}


def _without(manifest: Manifest, *path: str) -> Manifest:
    """Returns the manifest without the field at `path`."""
    head, *rest = path
    if not rest:
        return {name: value for name, value in manifest.items() if name != head}
    return {**manifest, head: _without(manifest[head], *rest)}


BAD_MANIFESTS = (
    Bad(
        "no-spec",
        _without(tfjob(), "spec"),
        "spec.replicaSpecs: at least one entry is required",
        (
            "spec: Required value",
            SKIPPED,
        ),
    ),
    Bad(
        "no-replica-specs",
        _without(tfjob(), "spec", "replicaSpecs"),
        "spec.replicaSpecs: at least one entry is required",
        (
            "spec.replicaSpecs: Required value",
            SKIPPED,
        ),
    ),
    Bad(
        "empty-replica-specs",
        {**tfjob(), "spec": {"replicaSpecs": []}},
        "spec.replicaSpecs: at least one entry is required",
        (
            "spec.replicaSpecs: Invalid value: 0: spec.replicaSpecs in body should have at least 1 items",
            "spec: Invalid value: Missing ReplicaSpec for chief: MASTER",
        ),
    ),
    Bad(
        "replica-specs-is-text",
        {**tfjob(), "spec": {"replicaSpecs": "MASTER"}},
        "spec.replicaSpecs: expected array, got str",
        (
            'spec.replicaSpecs: Invalid value: "string": spec.replicaSpecs in body must be of type array: "string"',
            SKIPPED,
        ),
    ),
    Bad(
        "unknown-type",
        tfjob(master(), replica("CHIEF")),
        "spec.replicaSpecs[1].tfReplicaType: must be one of MASTER, WORKER, PS, is CHIEF",
        (
            'spec.replicaSpecs[1].tfReplicaType: Unsupported value: "CHIEF": supported values: "MASTER", "WORKER", "PS"',
            SKIPPED,
        ),
    ),
    Bad(
        "type-in-lower-case",
        tfjob(replica("master")),
        "spec.replicaSpecs[0].tfReplicaType: must be one of MASTER, WORKER, PS, is master",
        (
            'spec.replicaSpecs[0].tfReplicaType: Unsupported value: "master": supported values: "MASTER", "WORKER", "PS"',
            SKIPPED,
        ),
    ),
    Bad(
        "type-twice",
        tfjob(master(), workers(1), workers(2)),
        "spec.replicaSpecs[2].tfReplicaType: WORKER is listed twice: give one entry more replicas instead",
        ('spec.replicaSpecs[2]: Duplicate value: {"tfReplicaType":"WORKER"}',),
    ),
    Bad(
        "default-type-twice",
        tfjob(_without(master(), "tfReplicaType"), master()),
        "spec.replicaSpecs[1].tfReplicaType: MASTER is listed twice: give one entry more replicas instead",
        ('spec.replicaSpecs[1]: Duplicate value: {"tfReplicaType":"MASTER"}',),
    ),
    Bad(
        "no-master-and-no-worker",
        tfjob(parameter_servers()),
        "Missing ReplicaSpec for chief: MASTER",
        ("spec: Invalid value: Missing ReplicaSpec for chief: MASTER",),
    ),
    Bad(
        "chief-master-not-listed",
        tfjob(workers(), terminationPolicy=_chief("MASTER")),
        "Missing ReplicaSpec for chief: MASTER",
        ("spec: Invalid value: Missing ReplicaSpec for chief: MASTER",),
    ),
    Bad(
        "chief-worker-not-listed",
        tfjob(master(), terminationPolicy=_chief("WORKER")),
        "Missing ReplicaSpec for chief: WORKER",
        ("spec: Invalid value: Missing ReplicaSpec for chief: WORKER",),
    ),
    Bad(
        "chief-of-unknown-type",
        tfjob(terminationPolicy=_chief("LEADER")),
        "spec.terminationPolicy.chief.replicaName: must be one of MASTER, WORKER, PS, is LEADER",
        (
            'spec.terminationPolicy.chief.replicaName: Unsupported value: "LEADER": supported values: "MASTER", "WORKER", "PS"',
            SKIPPED,
        ),
    ),
    Bad(
        "chief-index-of-master",
        tfjob(terminationPolicy=_chief("MASTER", 1)),
        "spec: the chief's replicaIndex is not below the replicas of MASTER: raise them, or name another chief",
        (
            "spec: Invalid value: the chief's replicaIndex is not below the replicas of MASTER: raise them, or name another chief",
        ),
    ),
    Bad(
        "chief-index-of-worker",
        tfjob(workers(2), terminationPolicy=_chief("WORKER", 2)),
        "spec: the chief's replicaIndex is not below the replicas of WORKER: raise them, or name another chief",
        (
            "spec: Invalid value: the chief's replicaIndex is not below the replicas of WORKER: raise them, or name another chief",
        ),
    ),
    Bad(
        "chief-index-negative",
        tfjob(terminationPolicy=_chief("MASTER", -1)),
        "spec.terminationPolicy.chief.replicaIndex: must be from 0 to 2147483647, is -1",
        (
            "spec.terminationPolicy.chief.replicaIndex: Invalid value: -1: spec.terminationPolicy.chief.replicaIndex in body should be greater than or equal to 0",
        ),
    ),
    Bad(
        "chief-index-is-text",
        tfjob(terminationPolicy=_chief("MASTER", "0")),
        "spec.terminationPolicy.chief.replicaIndex: expected int, got str",
        (
            'spec.terminationPolicy.chief.replicaIndex: Invalid value: "string": spec.terminationPolicy.chief.replicaIndex in body must be of type integer: "string"',
            SKIPPED,
        ),
    ),
    Bad(
        "no-worker-to-be-chief",
        tfjob(workers(0)),
        "spec: the chief's replicaIndex is not below the replicas of WORKER: raise them, or name another chief",
        (
            "spec: Invalid value: the chief's replicaIndex is not below the replicas of WORKER: raise them, or name another chief",
        ),
    ),
    Bad(
        "workers-scaled-away-from-chief",
        tfjob(workers(2), workerReplicas=0),
        "spec: the chief's replicaIndex is not below the replicas of WORKER: raise them, or name another chief",
        (
            "spec: Invalid value: the chief's replicaIndex is not below the replicas of WORKER: raise them, or name another chief",
        ),
    ),
    Bad(
        "chief-is-default-server",
        tfjob(terminationPolicy=_chief("PS")),
        "spec: terminationPolicy.chief is PS, but the default parameter server never ends: give PS a template whose container named tensorflow has an image, or name another chief",
        (
            "spec: Invalid value: terminationPolicy.chief is PS, but the default parameter server never ends: give PS a template whose container named tensorflow has an image, or name another chief",
        ),
    ),
    Bad(
        "two-masters",
        tfjob(master(replicas=2)),
        "spec.replicaSpecs[0].replicas: MASTER must have exactly 1 replica: set replicas to 1, and use WORKER for more",
        (
            "spec.replicaSpecs[0].replicas: Invalid value: MASTER must have exactly 1 replica: set replicas to 1, and use WORKER for more",
        ),
    ),
    Bad(
        "no-masters",
        tfjob(master(replicas=0)),
        "spec.replicaSpecs[0].replicas: MASTER must have exactly 1 replica: set replicas to 1, and use WORKER for more",
        (
            "spec: Invalid value: the chief's replicaIndex is not below the replicas of MASTER: raise them, or name another chief",
            "spec.replicaSpecs[0].replicas: Invalid value: MASTER must have exactly 1 replica: set replicas to 1, and use WORKER for more",
        ),
    ),
    Bad(
        "negative-workers",
        tfjob(master(), workers(-1)),
        "spec.replicaSpecs[1].replicas: must be from 0 to 1000, is -1",
        (
            "spec.replicaSpecs[1].replicas: Invalid value: -1: spec.replicaSpecs[1].replicas in body should be greater than or equal to 0",
        ),
    ),
    Bad(
        "too-many-workers",
        tfjob(master(), workers(1001)),
        "spec.replicaSpecs[1].replicas: must be from 0 to 1000, is 1001",
        (
            "spec.replicaSpecs[1].replicas: Invalid value: 1001: spec.replicaSpecs[1].replicas in body should be less than or equal to 1000",
        ),
    ),
    Bad(
        "replicas-is-text",
        tfjob(master(), workers("2")),
        "spec.replicaSpecs[1].replicas: expected int, got str",
        (
            'spec.replicaSpecs[1].replicas: Invalid value: "string": spec.replicaSpecs[1].replicas in body must be of type integer: "string"',
            SKIPPED,
        ),
    ),
    Bad(
        "replicas-is-a-fraction",
        tfjob(master(), workers(1.5)),
        "spec.replicaSpecs[1].replicas: expected int, got float",
        (
            'spec.replicaSpecs[1].replicas: Invalid value: "float64": spec.replicaSpecs[1].replicas in body must be of type int32: "float64"',
            '<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.replicaSpecs[1].replicas',
            SKIPPED,
        ),
        without_formats=(
            'spec.replicaSpecs[1].replicas: Invalid value: "number": spec.replicaSpecs[1].replicas in body must be of type integer: "number"',
            SKIPPED,
        ),
    ),
    Bad(
        "port-zero",
        tfjob(master(tfPort=0)),
        "spec.replicaSpecs[0].tfPort: must be from 1 to 65535, is 0",
        (
            "spec.replicaSpecs[0].tfPort: Invalid value: 0: spec.replicaSpecs[0].tfPort in body should be greater than or equal to 1",
        ),
    ),
    Bad(
        "port-too-high",
        tfjob(master(tfPort=65536)),
        "spec.replicaSpecs[0].tfPort: must be from 1 to 65535, is 65536",
        (
            "spec.replicaSpecs[0].tfPort: Invalid value: 65536: spec.replicaSpecs[0].tfPort in body should be less than or equal to 65535",
        ),
    ),
    Bad(
        "port-is-text",
        tfjob(master(tfPort="grpc")),
        "spec.replicaSpecs[0].tfPort: expected int, got str",
        (
            'spec.replicaSpecs[0].tfPort: Invalid value: "string": spec.replicaSpecs[0].tfPort in body must be of type integer: "string"',
            SKIPPED,
        ),
    ),
    Bad(
        "master-without-template",
        tfjob(master(template=None)),
        "spec.replicaSpecs[0].template: template is required for MASTER and WORKER: only a PS can go without",
        (
            "spec.replicaSpecs[0].template: Required value: template is required for MASTER and WORKER: only a PS can go without",
        ),
    ),
    Bad(
        "worker-without-template",
        tfjob(master(), workers(template=None)),
        "spec.replicaSpecs[1].template: template is required for MASTER and WORKER: only a PS can go without",
        (
            "spec.replicaSpecs[1].template: Required value: template is required for MASTER and WORKER: only a PS can go without",
        ),
    ),
    Bad(
        "template-is-text",
        tfjob(master(template="pod.yaml")),
        "spec.replicaSpecs[0].template: expected object, got str",
        (
            'spec.replicaSpecs[0].template: Invalid value: "string": spec.replicaSpecs[0].template in body must be of type object: "string"',
            SKIPPED,
        ),
    ),
    Bad(
        "template-without-spec",
        tfjob(master(template={"metadata": {"labels": {"a": "b"}}})),
        "spec.replicaSpecs[0].template: template needs a container named tensorflow: its exit code decides what becomes of the replica",
        (
            "spec.replicaSpecs[0].template: Required value: template needs a container named tensorflow: its exit code decides what becomes of the replica",
        ),
    ),
    Bad(
        "template-without-containers",
        tfjob(master(template=pod_template())),
        "spec.replicaSpecs[0].template: template needs a container named tensorflow: its exit code decides what becomes of the replica",
        (
            "spec.replicaSpecs[0].template: Required value: template needs a container named tensorflow: its exit code decides what becomes of the replica",
        ),
    ),
    Bad(
        "no-container-named-tensorflow",
        tfjob(master(template=pod_template(container("main")))),
        "spec.replicaSpecs[0].template: template needs a container named tensorflow: its exit code decides what becomes of the replica",
        (
            "spec.replicaSpecs[0].template: Required value: template needs a container named tensorflow: its exit code decides what becomes of the replica",
        ),
    ),
    Bad(
        "only-an-init-container-named-tensorflow",
        tfjob(master(template=pod_template(container("main"), initContainers=[container()]))),
        "spec.replicaSpecs[0].template: template needs a container named tensorflow: its exit code decides what becomes of the replica",
        (
            "spec.replicaSpecs[0].template: Required value: template needs a container named tensorflow: its exit code decides what becomes of the replica",
        ),
    ),
    Bad(
        "container-without-name",
        tfjob(master(template=pod_template(container(), {"image": "a"}))),
        "spec.replicaSpecs[0].template.spec.containers[1].name: a name is required",
        (
            "spec.replicaSpecs[0].template.spec.containers[1].name: Required value",
            SKIPPED,
        ),
    ),
    Bad(
        "containers-is-text",
        tfjob(master(template={"spec": {"containers": "tensorflow"}})),
        "spec.replicaSpecs[0].template.spec.containers: expected a list of objects",
        (
            'spec.replicaSpecs[0].template.spec.containers: Invalid value: "string": spec.replicaSpecs[0].template.spec.containers in body must be of type array: "string"',
            SKIPPED,
        ),
    ),
    Bad(
        "restart-always",
        tfjob(master(template=pod_template(container(), restartPolicy="Always"))),
        "spec.replicaSpecs[0].template.spec.restartPolicy: must be one of OnFailure, Never, is Always",
        (
            'spec.replicaSpecs[0].template.spec.restartPolicy: Unsupported value: "Always": supported values: "OnFailure", "Never"',
            SKIPPED,
        ),
    ),
    Bad(
        "restart-always-of-ps",
        tfjob(master(), parameter_servers(template={"spec": {"restartPolicy": "Always"}})),
        "spec.replicaSpecs[1].template.spec.restartPolicy: must be one of OnFailure, Never, is Always",
        (
            'spec.replicaSpecs[1].template.spec.restartPolicy: Unsupported value: "Always": supported values: "OnFailure", "Never"',
            SKIPPED,
        ),
    ),
    Bad(
        "worker-replicas-without-worker",
        tfjob(master(), workerReplicas=2),
        "spec: workerReplicas needs an entry for WORKER in replicaSpecs",
        ("spec: Invalid value: workerReplicas needs an entry for WORKER in replicaSpecs",),
    ),
    Bad(
        "worker-replicas-negative",
        tfjob(workerReplicas=-1),
        "spec.workerReplicas: must be from 0 to 1000, is -1",
        (
            "spec.workerReplicas: Invalid value: -1: spec.workerReplicas in body should be greater than or equal to 0",
            ".spec.workerReplicas: Invalid value: -1: should be a non-negative integer",
        ),
    ),
    Bad(
        "worker-replicas-too-many",
        tfjob(workerReplicas=1001),
        "spec.workerReplicas: must be from 0 to 1000, is 1001",
        ("spec.workerReplicas: Invalid value: 1001: spec.workerReplicas in body should be less than or equal to 1000",),
    ),
    Bad(
        "ttl-negative",
        tfjob(ttlSecondsAfterFinished=-1),
        "spec.ttlSecondsAfterFinished: must be from 0 to 2147483647, is -1",
        (
            "spec.ttlSecondsAfterFinished: Invalid value: -1: spec.ttlSecondsAfterFinished in body should be greater than or equal to 0",
        ),
    ),
    Bad(
        "ttl-beyond-int32",
        tfjob(ttlSecondsAfterFinished=2**31),
        "spec.ttlSecondsAfterFinished: must be from 0 to 2147483647, is 2147483648",
        (
            '<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.ttlSecondsAfterFinished',
            "spec.ttlSecondsAfterFinished: Invalid value: 2147483648: spec.ttlSecondsAfterFinished in body should be less than or equal to 2147483647",
        ),
        without_formats=(
            "spec.ttlSecondsAfterFinished: Invalid value: 2147483648: spec.ttlSecondsAfterFinished in body should be less than or equal to 2147483647",
        ),
    ),
    Bad(
        "deadline-negative",
        tfjob(activeDeadlineSeconds=-1),
        "spec.activeDeadlineSeconds: must be from 0 to 2147483647, is -1",
        (
            "spec.activeDeadlineSeconds: Invalid value: -1: spec.activeDeadlineSeconds in body should be greater than or equal to 0",
        ),
    ),
    Bad(
        "deadline-is-a-duration",
        tfjob(activeDeadlineSeconds="10m"),
        "spec.activeDeadlineSeconds: expected int, got str",
        (
            'spec.activeDeadlineSeconds: Invalid value: "string": spec.activeDeadlineSeconds in body must be of type integer: "string"',
            SKIPPED,
        ),
    ),
    Bad(
        "backoff-limit-negative",
        tfjob(backoffLimit=-1),
        "spec.backoffLimit: must be from 0 to 2147483647, is -1",
        ("spec.backoffLimit: Invalid value: -1: spec.backoffLimit in body should be greater than or equal to 0",),
    ),
    Bad(
        "gang-on-timeout-unknown",
        tfjob(gang={"onTimeout": "Cry"}),
        "spec.gang.onTimeout: must be one of Wait, Fail, Suspend, is Cry",
        (
            'spec.gang.onTimeout: Unsupported value: "Cry": supported values: "Wait", "Fail", "Suspend"',
            SKIPPED,
        ),
    ),
    Bad(
        "gang-timeout-of-nothing",
        tfjob(gang={"timeoutSeconds": 0}),
        "spec.gang.timeoutSeconds: must be from 1 to 2147483647, is 0",
        (
            "spec.gang.timeoutSeconds: Invalid value: 0: spec.gang.timeoutSeconds in body should be greater than or equal to 1",
        ),
    ),
    Bad(
        "gang-enabled-is-text",
        tfjob(gang={"enabled": "yes"}),
        "spec.gang.enabled: expected bool, got str",
        (
            'spec.gang.enabled: Invalid value: "string": spec.gang.enabled in body must be of type boolean: "string"',
            SKIPPED,
        ),
    ),
    Bad(
        "gang-of-more-workers-than-there-are",
        tfjob(master(), workers(2), gang={"minWorkers": 3}),
        "spec: gang.minWorkers must not be more than the workers: lower it, or raise them",
        ("spec.gang: Invalid value: gang.minWorkers must not be more than the workers: lower it, or raise them",),
    ),
    Bad(
        "autoscaling-without-a-most",
        _scaled(maxWorkers=None),
        "spec.autoscaling: object missing required field maxWorkers",
        (
            "spec.autoscaling.maxWorkers: Required value",
            SKIPPED,
        ),
    ),
    Bad(
        "autoscaling-min-above-max",
        _scaled(minWorkers=5),
        "spec: autoscaling.minWorkers must not be more than maxWorkers: lower it, or raise maxWorkers",
        (
            "spec: Invalid value: autoscaling.minWorkers must not be more than maxWorkers: lower it, or raise maxWorkers",
        ),
    ),
    Bad(
        "autoscaling-min-of-nothing",
        _scaled(minWorkers=0),
        "spec.autoscaling.minWorkers: must be from 1 to 1000, is 0",
        (
            "spec.autoscaling.minWorkers: Invalid value: 0: spec.autoscaling.minWorkers in body should be greater than or equal to 1",
        ),
    ),
    Bad(
        "autoscaling-max-negative",
        _scaled(minWorkers=None, maxWorkers=-1),
        "spec.autoscaling.maxWorkers: must be from 1 to 1000, is -1",
        (
            "spec.autoscaling.maxWorkers: Invalid value: -1: spec.autoscaling.maxWorkers in body should be greater than or equal to 1",
            "spec: Invalid value: autoscaling.minWorkers must not be more than maxWorkers: lower it, or raise maxWorkers",
        ),
    ),
    Bad(
        "autoscaling-fewer-workers-than-min",
        _scaled(1, minWorkers=2),
        "spec: the workers (workerReplicas, or else replicas of WORKER) must be from autoscaling.minWorkers to maxWorkers: ask for as many, or widen autoscaling",
        (
            "spec: Invalid value: the workers (workerReplicas, or else replicas of WORKER) must be from autoscaling.minWorkers to maxWorkers: ask for as many, or widen autoscaling",
        ),
    ),
    Bad(
        "autoscaling-more-workers-than-max",
        tfjob(master(), workers(2), workerReplicas=5, autoscaling={"maxWorkers": 4}),
        "spec: the workers (workerReplicas, or else replicas of WORKER) must be from autoscaling.minWorkers to maxWorkers: ask for as many, or widen autoscaling",
        (
            "spec: Invalid value: the workers (workerReplicas, or else replicas of WORKER) must be from autoscaling.minWorkers to maxWorkers: ask for as many, or widen autoscaling",
        ),
    ),
    Bad(
        "autoscaling-of-no-workers-yet",
        _scaled(0, minWorkers=None),
        "spec: the workers (workerReplicas, or else replicas of WORKER) must be from autoscaling.minWorkers to maxWorkers: ask for as many, or widen autoscaling",
        (
            "spec: Invalid value: the workers (workerReplicas, or else replicas of WORKER) must be from autoscaling.minWorkers to maxWorkers: ask for as many, or widen autoscaling",
        ),
    ),
    Bad(
        "autoscaling-below-the-gangs-least",
        tfjob(master(), workers(3), gang={"minWorkers": 3}, autoscaling={"maxWorkers": 2}),
        "spec: autoscaling.minWorkers must not be more than maxWorkers: lower it, or raise maxWorkers",
        (
            "spec: Invalid value: autoscaling.minWorkers must not be more than maxWorkers: lower it, or raise maxWorkers",
        ),
    ),
    Bad(
        "autoscaling-and-gang-differ",
        tfjob(master(), workers(3), gang={"minWorkers": 2}, autoscaling={"minWorkers": 1, "maxWorkers": 4}),
        "spec: gang.minWorkers and autoscaling.minWorkers say different things: leave one of them out",
        (
            "spec: Invalid value: gang.minWorkers and autoscaling.minWorkers say different things: leave one of them out",
        ),
    ),
    Bad(
        "autoscaling-without-worker",
        tfjob(master(), autoscaling={"maxWorkers": 4, "totalSteps": 100}),
        "spec: autoscaling needs an entry for WORKER in replicaSpecs",
        ("spec: Invalid value: autoscaling needs an entry for WORKER in replicaSpecs",),
    ),
    Bad(
        "autoscaling-of-a-chief-that-may-leave",
        tfjob(workers(3), terminationPolicy=_chief("WORKER", 1), autoscaling={"maxWorkers": 4}),
        "spec: the chief is a worker that autoscaling may take away: name worker 0, the master or a PS, or leave autoscaling out",
        (
            "spec: Invalid value: the chief is a worker that autoscaling may take away: name worker 0, the master or a PS, or leave autoscaling out",
        ),
    ),
    Bad(
        "unknown-resize",
        _scaled(resize="Live"),
        "spec.autoscaling.resize: must be one of InPlace, Restart, is Live",
        (
            'spec.autoscaling.resize: Unsupported value: "Live": supported values: "InPlace", "Restart"',
            SKIPPED,
        ),
    ),
    Bad(
        "empty-resize",
        _scaled(resize=""),
        "spec.autoscaling.resize: must not be empty",
        (
            'spec.autoscaling.resize: Unsupported value: "": supported values: "InPlace", "Restart"',
            SKIPPED,
        ),
    ),
    Bad(
        "empty-clean-pod-policy",
        tfjob(cleanPodPolicy=""),
        "spec.cleanPodPolicy: must not be empty",
        (
            'spec.cleanPodPolicy: Unsupported value: "": supported values: "All", "Running", "None"',
            SKIPPED,
        ),
    ),
    Bad(
        "empty-failure-policy",
        tfjob(failurePolicy=""),
        "spec.failurePolicy: must not be empty",
        (
            'spec.failurePolicy: Unsupported value: "": supported values: "Chief", "AnyReplica"',
            SKIPPED,
        ),
    ),
    Bad(
        "empty-on-timeout",
        tfjob(gang={"onTimeout": ""}),
        "spec.gang.onTimeout: must not be empty",
        (
            'spec.gang.onTimeout: Unsupported value: "": supported values: "Wait", "Fail", "Suspend"',
            SKIPPED,
        ),
    ),
    Bad(
        "no-steps-in-all",
        _scaled(totalSteps=0),
        "spec.autoscaling.totalSteps: must be from 1 to 9007199254740991, is 0",
        (
            "spec.autoscaling.totalSteps: Invalid value: 0: spec.autoscaling.totalSteps in body should be greater than or equal to 1",
        ),
    ),
    Bad(
        "progress-without-pattern",
        _scaled(progress={}),
        "spec.autoscaling.progress: object missing required field pattern",
        (
            "spec.autoscaling.progress.pattern: Required value",
            SKIPPED,
        ),
    ),
    _bad_pattern("pattern-without-a-group", "step [0-9]+"),
    _bad_pattern("pattern-with-two-groups", "(step) ([0-9]+)"),
    _bad_pattern("pattern-that-is-no-expression", "step ([0-9]+"),
    _bad_pattern("pattern-with-a-set-that-does-not-end", "step ([0-9+)"),
    _bad_pattern("pattern-that-repeats-nothing", "*step ([0-9]+)"),
    _bad_pattern("pattern-that-could-take-for-ever", "(a+)+b"),
    _bad_pattern("pattern-that-repeats-too-much", ".*.*.*([0-9]+)"),
    _bad_pattern("pattern-that-looks-back", r"(.)\1"),
    Bad(
        "suspend-is-text",
        tfjob(suspend="yes"),
        "spec.suspend: expected bool, got str",
        (
            'spec.suspend: Invalid value: "string": spec.suspend in body must be of type boolean: "string"',
            SKIPPED,
        ),
    ),
    Bad(
        "unknown-clean-pod-policy",
        tfjob(cleanPodPolicy="Failed"),
        "spec.cleanPodPolicy: must be one of All, Running, None, is Failed",
        (
            'spec.cleanPodPolicy: Unsupported value: "Failed": supported values: "All", "Running", "None"',
            SKIPPED,
        ),
    ),
    Bad(
        "unknown-failure-policy",
        tfjob(failurePolicy="Never"),
        "spec.failurePolicy: must be one of Chief, AnyReplica, is Never",
        (
            'spec.failurePolicy: Unsupported value: "Never": supported values: "Chief", "AnyReplica"',
            SKIPPED,
        ),
    ),
    Bad(
        "manager-without-a-domain",
        tfjob(managedBy="me"),
        "spec.managedBy: must be a name with a domain in front, such as kueue.x-k8s.io/multikueue",
        (
            'spec.managedBy: Invalid value: "me": must be a name with a domain in front, such as kueue.x-k8s.io/multikueue',
        ),
    ),
    Bad(
        "runtime-id-too-long",
        tfjob(RuntimeId="76no7"),
        "spec.RuntimeId: must be four of 0-9 and a-z: leave it to the controller",
        ("spec.RuntimeId: Invalid value: \"76no7\": spec.RuntimeId in body should match '^([0-9a-z]{4})?$'",),
    ),
    Bad(
        "runtime-id-with-a-line-end",
        tfjob(RuntimeId="76no\n"),
        "spec.RuntimeId: must be four of 0-9 and a-z: leave it to the controller",
        ("spec.RuntimeId: Invalid value: \"76no\\n\": spec.RuntimeId in body should match '^([0-9a-z]{4})?$'",),
    ),
    Bad(
        "runtime-id-in-capitals",
        tfjob(RuntimeId="ABCD"),
        "spec.RuntimeId: must be four of 0-9 and a-z: leave it to the controller",
        ("spec.RuntimeId: Invalid value: \"ABCD\": spec.RuntimeId in body should match '^([0-9a-z]{4})?$'",),
    ),
    Bad(
        "image-is-a-number",
        tfjob(tfImage=3),
        "spec.tfImage: expected str, got int",
        (
            'spec.tfImage: Invalid value: "integer": spec.tfImage in body must be of type string: "integer"',
            SKIPPED,
        ),
    ),
    Bad(
        "scheduler-name-is-a-list",
        tfjob(schedulerName=["gang"]),
        "spec.schedulerName: expected str, got array",
        (
            'spec.schedulerName: Invalid value: "array": spec.schedulerName in body must be of type string: "array"',
            SKIPPED,
        ),
    ),
    Bad(
        "checkpoints-by-node",
        tfjob(checkpoint={"storageUri": "s3://a", "perNode": True}),
        "spec.checkpoint.perNode: perNode is for TrainJobs only, since the chief saves the checkpoints of a TFJob: leave it out",
        (
            "spec.checkpoint.perNode: Forbidden: perNode is for TrainJobs only, since the chief saves the checkpoints of a TFJob: leave it out",
        ),
    ),
    Bad(
        "checkpoints-on-a-web-server",
        tfjob(checkpoint={"storageUri": "https://host/a"}),
        "spec.checkpoint.storageUri: must begin with s3://, hf://, gs://, file:/// or pvc:// and say where there",
        (
            "spec.checkpoint.storageUri: Invalid value: must begin with s3://, hf://, gs://, file:/// or pvc:// and say where there",
        ),
    ),
    Bad(
        "checkpoints-with-a-password",
        tfjob(checkpoint={"storageUri": "s3://me:secret@a"}),
        "spec.checkpoint.storageUri: must not hold a user or password: put them into a Secret and name that in secretRef",
        (
            "spec.checkpoint.storageUri: Invalid value: must not hold a user or password: put them into a Secret and name that in secretRef",
        ),
    ),
    Bad(
        "checkpoints-nowhere",
        tfjob(checkpoint={"keep": 2}),
        "spec.checkpoint: object missing required field storageUri",
        (
            "spec.checkpoint.storageUri: Required value",
            SKIPPED,
        ),
    ),
    Bad(
        "checkpoints-above-their-folder",
        tfjob(checkpoint={"storageUri": "s3://a", "path": "/a/../etc"}),
        "spec.checkpoint.path: must be an absolute path, such as /workspace/checkpoints",
        ('spec.checkpoint.path: Invalid value: "/a/../etc": must be an absolute path, such as /workspace/checkpoints',),
    ),
    Bad(
        "no-checkpoint-is-kept",
        tfjob(checkpoint={"storageUri": "s3://a", "keep": 0}),
        "spec.checkpoint.keep: must be from 1 to 1000, is 0",
        ("spec.checkpoint.keep: Invalid value: 0: spec.checkpoint.keep in body should be greater than or equal to 1",),
    ),
    Bad(
        "variables-of-checkpoints-twice",
        tfjob(checkpoint={"storageUri": "s3://a", "env": [{"name": "A"}, {"name": "A"}]}),
        "spec.checkpoint.env[1].name: A is listed twice: leave one of them out",
        ('spec.checkpoint.env[1]: Duplicate value: {"name":"A"}',),
    ),
)
