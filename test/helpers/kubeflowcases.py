"""Runs the cases of `kubeflowcases` on a cluster, and compares pure ones with the plan of their job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from helpers.cluster import set_pod_terminated
from helpers.kubeflowjobs import GROUP_PATH, RUNTIMES_PATH, KubeflowCluster, KubeflowTrial
from helpers.kubeflowmanifests import GROUP, kubeflow_trainjob
from helpers.kubeflowworld import decoded_kubeflow, decoded_runtime, kubeflow_recipe
from kubeflowcases.model import (
    Another,
    Case,
    Change,
    ChangeRuntime,
    DeleteRuntime,
    End,
    Fails,
    Has,
    HasNone,
    NotStored,
    Step,
    mismatches,
)
from localcluster.api import RefusedError
from tfjob_controller.api.kubeflowtrainer.validation import validate, validate_runtime
from tfjob_controller.jobs.actions.children import build_job
from tfjob_controller.jobs.plan.model import UnplannableError
from tfjob_controller.kinds.kubeflowtrainer.plan import build_kubeflow_plan

Object = dict[str, Any]

_CLUSTER_KIND = "ClusterTrainingRuntime"
_PATHS = {
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "Pod": "/api/v1/namespaces/{}/pods",
    "Service": "/api/v1/namespaces/{}/services",
    "Secret": "/api/v1/namespaces/{}/secrets",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
}


def job_manifest(case: Case) -> Object:
    kind = {"kind": case.runtime_kind} if case.runtime_kind else {}
    manifest = kubeflow_trainjob(case.job_name or case.name, **case.job)
    return {**manifest, "spec": {**manifest["spec"], "runtimeRef": {"name": _runtime_name(case), **kind}}}


def runtime_manifest(case: Case) -> Object:
    given = dict(case.runtime)
    metadata = {**given.pop("metadata", {}), "name": _runtime_name(case)}
    kind = case.runtime_kind or _CLUSTER_KIND
    return {"apiVersion": GROUP, "kind": kind, "metadata": metadata, "spec": given}


def _runtime_name(case: Case) -> str:
    return case.runtime_name or f"case-{case.name}"


def check_plan(case: Case) -> None:
    """Raises AssertionError if the plan of a pure case's job is not as its steps say."""
    manifest = runtime_manifest(case)
    job = decoded_kubeflow(job_manifest(case))
    problem = validate(job) or validate_runtime(decoded_runtime(manifest))
    recipe = kubeflow_recipe(runtime=manifest, name=job.metadata.name, **case.job)
    for step in case.steps:
        if isinstance(step, Fails):
            if not problem:
                with pytest.raises(UnplannableError) as caught:
                    build_kubeflow_plan(recipe)
                problem = str(caught.value)
            assert step.words in problem, problem
            continue
        assert problem is None, problem
        assert isinstance(step, Has), f"a pure case cannot have the step {step}"
        plan = build_kubeflow_plan(recipe)
        replica = next(each for each in plan.replicas.all if each.role.name == step.name)
        found = mismatches(build_job(plan, replica), step.values)
        assert not found, "; ".join(found)


def _lost(sent: Any, stored: Any, path: str = "") -> list[str]:
    """Returns the paths of what was sent and is not stored."""
    if isinstance(sent, dict) and isinstance(stored, dict):
        return [lost for key, value in sent.items() for lost in _lost(value, stored.get(key), f"{path}.{key}")]
    if isinstance(sent, list) and isinstance(stored, list) and len(sent) == len(stored):
        pairs = enumerate(zip(sent, stored, strict=True))
        return [lost for index, pair in pairs for lost in _lost(*pair, f"{path}[{index}]")]
    return [] if sent == stored else [path]


@dataclass(frozen=True, slots=True)
class CaseRun:
    """A case on a cluster."""

    cluster: KubeflowCluster
    case: Case

    @property
    def trial(self) -> KubeflowTrial:
        return KubeflowTrial(self.cluster, self.case.job_name or self.case.name)

    @property
    def runtimes(self) -> str:
        is_cluster_wide = self.case.runtime_kind in ("", _CLUSTER_KIND)
        return (
            RUNTIMES_PATH if is_cluster_wide else f"{GROUP_PATH}/namespaces/{self.cluster.namespace}/trainingruntimes"
        )

    def check(self) -> None:
        """Creates the objects and goes through the steps. Raises AssertionError with the first one that is not so."""
        refused = [each for each in self.case.steps if isinstance(each, NotStored)]
        if self.case.runtime:
            self._create("TrainingRuntime", self.runtimes, runtime_manifest(self.case), refused)
        if not any(each.kind == "TrainingRuntime" for each in refused):
            self._create("TrainJob", self.trial.path, job_manifest(self.case), refused)
        for step in self.case.steps:
            self._take(step)
        if self.case.runtime and not refused:
            self._delete_runtime()

    def check_stored(self) -> None:
        """Raises AssertionError with what the API server would leave out of the objects; stores nothing."""
        for path, manifest in (
            (self.runtimes, runtime_manifest(self.case)),
            (self.trial.path, job_manifest(self.case)),
        ):
            stored = self.cluster.api.create(f"{path}?dryRun=All", manifest)
            assert (lost := _lost(manifest, stored)) == [], f"{self.case.name}: {lost}"

    def _create(self, kind: str, path: str, manifest: Object, refused: list[NotStored]) -> None:
        words = [each.words for each in refused if each.kind == kind]
        if not words:
            self.cluster.api.create(path, manifest)
            return
        with pytest.raises(RefusedError) as caught:
            self.cluster.api.create(path, manifest)
        assert words[0] in str(caught.value), str(caught.value)

    def _delete_runtime(self) -> None:
        path = f"{self.runtimes}/{_runtime_name(self.case)}"
        if self.cluster.api.find(path) is not None:
            self.cluster.api.delete(path)

    def _take(self, step: Step) -> None:
        match step:
            case Has():
                self._await(lambda: self._missing(step))
            case HasNone():
                self._await(lambda: [each["metadata"]["name"] for each in self._objects(step.kind, step.name)])
            case Fails():
                self._check_refusal(step)
            case Change():
                self._change(step)
            case ChangeRuntime():
                self._change_runtime(step)
            case DeleteRuntime():
                self._delete_runtime()
            case End():
                self._end(step)
            case Another():
                self._run_another(step)
            case NotStored():
                pass

    def _change_runtime(self, step: ChangeRuntime) -> None:
        """Changes the runtime, and waits until the controller has cached it: a change of the job may arrive earlier."""
        name = _runtime_name(self.case)
        version = self.cluster.api.patch(f"{self.runtimes}/{name}", {"spec": step.spec})["metadata"]["resourceVersion"]
        runtimes = self.cluster.manager.jobs["kubeflow-trainjob"].all[1].store

        def is_cached() -> bool:
            found = runtimes.get(f"{self.cluster.namespace}/{name}")
            return found is not None and int(found.metadata.resource_version) >= int(version)

        self.trial.eventually(is_cached)

    def _check_refusal(self, step: Fails) -> None:
        failed = self.trial.await_condition("Failed")
        told = f"{failed['reason']}: {failed['message']}"
        assert told.startswith(f"{step.reason}: "), told
        assert step.words in told, told
        assert self._objects("Job", "") == []

    def _change(self, step: Change) -> None:
        if not step.refused:
            self.trial.change(**step.spec)
            return
        with pytest.raises(RefusedError) as caught:
            self.trial.change(**step.spec)
        assert step.refused in str(caught.value), str(caught.value)

    def _run_another(self, step: Another) -> None:
        other = self.cluster.submit(trainer={"command": ["torchrun", "train.py"]}, **step.spec)
        if step.condition:
            other.await_condition(step.condition)
        else:
            other.await_pods(1)

    def _await(self, mismatched: Callable[[], list[str]]) -> None:
        """Waits until there is no mismatch. Raises AssertionError with the last ones."""
        last: list[str] = []

        def holds() -> bool:
            last[:] = mismatched()
            return not last

        try:
            self.trial.eventually(holds)
        except AssertionError as error:
            raise AssertionError(f"{'; '.join(last)}: {error}") from None

    def _missing(self, step: Has) -> list[str]:
        found = self._objects(step.kind, step.name)
        if len(found) != 1:
            return [f"there are {len(found)} objects {step.kind} {step.name}"]
        return mismatches(found[0], step.values)

    def _objects(self, kind: str, name: str) -> list[Object]:
        """Returns the objects of the job of one kind, whose names go on like this behind the job's name."""
        trial = self.trial
        if kind == "TrainJob":
            return [trial.get()]
        if kind == "TrainingRuntime":
            return [self.cluster.api.get(f"{self.runtimes}/{_runtime_name(self.case)}")]
        if kind not in _PATHS:
            # The CRD of a scheduler that is not installed.
            return []
        start = f"{trial.name}-{name}-0" if kind == "Job" and name else f"{trial.name}{name}"
        items = self.cluster.api.list(_PATHS[kind].format(self.cluster.namespace), "kubeflow.org")
        return [each for each in items if self._is_own(each) and each["metadata"]["name"].startswith(start)]

    def _is_own(self, item: Object) -> bool:
        return (item["metadata"].get("labels") or {}).get("train_job_name") == self.trial.name

    def _end(self, step: End) -> None:
        container = step.name if step.name.endswith("-initializer") else "node"

        def run() -> list[str]:
            pods = self._objects("Pod", f"-{step.name}-")
            running = [each["metadata"]["name"] for each in pods if each.get("status", {}).get("phase") == "Running"]
            return running if len(running) == step.pods else []

        for name in self.trial.eventually(run):
            set_pod_terminated(self.cluster.api, self.cluster.namespace, name, step.exit_code, container=container)
