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


def _at_any_time(started: bool, when: str) -> tuple[Change, ...]:
    """Returns the cases of a change that is also refused before the job has started."""
    of_runtime = "spec.runtimeRef", says.RUNTIME_REF_FIXED
    with_runtime, with_other = trainjob(runtimeRef=_RUNTIME), trainjob(runtimeRef={"name": "mpi-distributed"})
    manager = trainjob(managedBy="example.com/x")
    return (
        _change(f"a-runtime {when}", with_runtime, *of_runtime, started=started),
        _change(f"another-runtime {when}", with_other, *of_runtime, with_runtime, started),
        _change(f"no-runtime {when}", trainjob(), *of_runtime, with_runtime, started),
        _change(f"another-manager {when}", manager, "spec.managedBy", MANAGED_BY_FIXED, started=started),
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
    *_at_any_time(False, "before it starts"),
    *_at_any_time(True, "of a started job"),
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
    _fixed("no-command", "trainer", trainjob(command=None)),
    _fixed("env-from-elsewhere", "trainer", _envs("secretKeyRef"), _envs("configMapKeyRef")),
    _fixed("a-dataset", "datasetConfig", trainjob(datasetConfig={"storageUri": "s3://b"})),
    _fixed("no-model", "modelConfig", trainjob(), trainjob(modelConfig={"output": {"storageUri": "s3://b"}})),
    _fixed("framework", "framework", trainjob(framework="jax"), trainjob(framework="torch")),
    _fixed("overrides", "podSpecOverrides", trainjob(podSpecOverrides=[override()])),
    _fixed("tolerations", "podSpecOverrides", _tolerating(key="a"), _tolerating(effect="a")),
    _fixed("labels", "labels", trainjob(labels={"a": "b"})),
    _fixed("annotations", "annotations", trainjob(annotations={"a": "c"}), trainjob(annotations={"a": "b"})),
    _change("gang", trainjob(gang={"enabled": True}), "spec.gang", GANG_FIXED),
    _change("no-gang", trainjob(), "spec.gang", GANG_FIXED, trainjob(gang={"enabled": False})),
    _fixed("checkpoint", "checkpoint", trainjob(checkpoint={"storageUri": "s3://a"})),
    _change("gang-but-not-whether", trainjob(gang={"priority": 3, "timeoutSeconds": 5})),
    _change("suspend", trainjob(suspend=True)),
    _change("time-to-live", trainjob(ttlSecondsAfterFinished=60)),
    _change("deadline", trainjob(activeDeadlineSeconds=60)),
    _change("restarts", trainjob(maxRestarts=3)),
    _change("metrics", trainjob(metrics={"names": ["loss"]})),
)
