"""Changes of a TrainJob that the API server and the controller allow or refuse."""

from __future__ import annotations

from helpers.refusals import Change
from helpers.trainmanifests import Manifest, override, trainjob
from tfjob_controller.api.common.managedby import MANAGED_BY_FIXED
from tfjob_controller.api.tfjob.validation import GANG_FIXED
from tfjob_controller.api.trainjob import validation as says

_RUNTIME = {"name": "torch-distributed"}


def _envs(source: str) -> Manifest:
    variable = {"name": "A", "valueFrom": {source: {"name": "x", "key": "y"}}}
    return trainjob(trainer={"env": [variable]})


def _tolerating(**toleration: object) -> Manifest:
    return trainjob(podSpecOverrides=[override(tolerations=[toleration])])


def _change(
    name: str,
    after: Manifest,
    at: str = "",
    refusal: str = "",
    before: Manifest | None = None,
    started: bool = True,
) -> Change:
    return Change(name, before or trainjob(), after, refusal, at, started)


def _fixed(name: str, at: str, after: Manifest, before: Manifest | None = None) -> Change:
    return _change(name, after, f"spec.{at}", says.STARTED_FIXED, before or trainjob())


_OF_RUNTIME = "spec.runtimeRef", says.RUNTIME_REF_FIXED
_WITH_RUNTIME = trainjob(runtimeRef=_RUNTIME)
# Refused before the job has started as well.
_AT_ANY_TIME = (
    _change("a-runtime", _WITH_RUNTIME, *_OF_RUNTIME, started=False),
    _change("another-runtime", trainjob(runtimeRef={"name": "mpi-distributed"}), *_OF_RUNTIME, _WITH_RUNTIME, False),
    _change("no-runtime", trainjob(), *_OF_RUNTIME, _WITH_RUNTIME, False),
    _change("another-manager", trainjob(managedBy="example.com/x"), "spec.managedBy", MANAGED_BY_FIXED, started=False),
)


_BOUNDS = {"minNodes": 1, "maxNodes": 4}


def _elastic(nodes: int | None = 2, least: int = 1) -> Manifest:
    return trainjob(nodes=nodes, elasticPolicy={**_BOUNDS, "minNodes": least})


def _of_elastic(name: str, after: Manifest, before: Manifest) -> Change:
    return _change(name, after, "spec.elasticPolicy", says.ELASTIC_FIXED, before)


TRAIN_CHANGES = (
    _change("nodes-of-an-elastic-job", _elastic(4), before=_elastic()),
    _change("no-nodes-of-an-elastic-job", _elastic(None), before=_elastic()),
    _fixed("image-of-an-elastic-job", "trainer", trainjob(elasticPolicy=_BOUNDS, trainer={"image": "o"}), _elastic()),
    _of_elastic("another-minimum", _elastic(least=2), _elastic()),
    _of_elastic("elastic-too-late", _elastic(), trainjob()),
    _of_elastic("not-elastic-any-more", trainjob(), _elastic()),
    _change("another-minimum-before-it-starts", _elastic(least=2), before=_elastic(), started=False),
    *_AT_ANY_TIME,
    _change("nothing", trainjob()),
    _change(
        "runtime-spelt-out",
        trainjob(runtimeRef={**_RUNTIME, "kind": "ClusterTrainingRuntime", "apiGroup": "kubeflow.org"}),
        before=trainjob(runtimeRef=_RUNTIME),
    ),
    _change("all-else-before-it-starts", trainjob(nodes=3, command=["other"], framework="torch"), started=False),
    _fixed("nodes", "numNodes", trainjob(nodes=3)),
    _fixed("no-nodes", "numNodes", trainjob(nodes=None)),
    _fixed("image", "trainer", trainjob(trainer={"image": "other"})),
    _fixed("command", "trainer", trainjob(command=["train", "more"])),
    _fixed("env-from-elsewhere", "trainer", _envs("secretKeyRef"), _envs("configMapKeyRef")),
    _fixed("a-dataset", "datasetConfig", trainjob(datasetConfig={"storageUri": "s3://b"})),
    _fixed("no-model", "modelConfig", trainjob(), trainjob(modelConfig={"output": {"storageUri": "s3://b"}})),
    _fixed("framework", "framework", trainjob(framework="jax"), trainjob(framework="torch")),
    _fixed("overrides", "podSpecOverrides", trainjob(podSpecOverrides=[override()])),
    _fixed("tolerations", "podSpecOverrides", _tolerating(key="a"), _tolerating(effect="NoExecute")),
    _fixed("labels", "labels", trainjob(labels={"a": "b"})),
    _fixed("annotations", "annotations", trainjob(annotations={"a": "c"}), trainjob(annotations={"a": "b"})),
    _change("gang", trainjob(gang={"enabled": True}), "spec.gang", GANG_FIXED),
    _change("no-gang", trainjob(), "spec.gang", GANG_FIXED, trainjob(gang={"enabled": False})),
    _fixed("checkpoint", "checkpoint", trainjob(checkpoint={"storageUri": "s3://a"})),
    _change(
        "policies",
        trainjob(
            suspend=True,
            ttlSecondsAfterFinished=60,
            activeDeadlineSeconds=60,
            maxRestarts=3,
            metrics={"names": ["loss"]},
            gang={"priority": 3, "timeoutSeconds": 5},
        ),
    ),
)
