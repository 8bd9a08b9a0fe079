"""Short ways to write the cases, their objects and facts.

case("name", "upstream's test").promises("A sentence.").given(job, runtime).then(step, …).but("What differs.")
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kubeflowcases.model import Case, Contains, Has, Object, Step, Values

ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
DATASET, MODEL, NODE, LAUNCHER = "dataset-initializer", "model-initializer", "node", "launcher"

# Paths in a Job.
POD = "spec.template.spec"
CONTAINER = f"{POD}.containers[node]"
# What Kubernetes puts into the place of the number of a pod in its Job.
INDEX = "$(JOB_COMPLETION_INDEX)"

TORCH: Object = {"numNodes": 1, "torch": {}}
CPU_4 = {"cpu": "1", "memory": "4Gi"}


def container(name: str = NODE, **more: Any) -> Object:
    return {"name": name, "image": "test:runtime", **more}


def replicated(
    name: str = NODE, *containers: Object, ancestor: str | None = None, job: Object | None = None, **more: Any
) -> Object:
    """Returns a replicated job with the label that its name suggests. `job` has further fields of its Job's spec."""
    label = {NODE: "trainer", LAUNCHER: ""}.get(name, name) if ancestor is None else ancestor
    pod = {"containers": list(containers) or [container(name if label in (DATASET, MODEL) else NODE)]}
    spec = {"template": {"spec": pod}, **(job or {})}
    metadata = {"metadata": {"labels": {ANCESTOR: label}}} if label else {}
    return {"name": name, "template": {**metadata, "spec": spec}, **more}


def runtime(*jobs: Object, policy: Object | None = None, **more: Any) -> Object:
    """Returns the spec of a runtime, by default with a node. `more` has further fields of the JobSet's spec."""
    found: Object = {"template": {"spec": {"replicatedJobs": list(jobs) or [replicated()], **more}}}
    return {**found, "mlPolicy": policy} if policy is not None else found


def three_jobs(policy: Object | None = None, node: Object | None = None, **more: Any) -> Object:
    """Returns a runtime with both initializers beside the node, as upstream's tests have it."""
    return runtime(replicated(DATASET), replicated(MODEL), node or replicated(), policy=policy, **more)


def steps(policy: Object | None = None) -> Object:
    """Returns a runtime whose node waits for both initializers."""
    needed = [{"name": each, "status": "Complete"} for each in (DATASET, MODEL)]
    return three_jobs(policy, replicated(dependsOn=needed))


def mpi_runtime(*more: Object, launcher: Object | None = None, node: Object | None = None, **policy: Any) -> Object:
    """Returns a runtime with a launcher that trains and nodes that wait for it."""
    after = [{"name": NODE, "status": "Ready"}]
    given = {"mpiImplementation": "OpenMPI", **policy}
    number = {"numNodes": given.pop("numNodes", 1)}
    return runtime(
        *more,
        node or replicated(NODE, ancestor=""),
        launcher or replicated(LAUNCHER, ancestor="trainer", dependsOn=after),
        policy={**number, "mpi": given},
    )


def trainer(**more: Any) -> Object:
    """Returns a job with the trainer's fields."""
    return {"trainer": {"image": "test:trainjob", "command": ["trainjob"], "args": ["trainjob"], **more}}


def patch(*jobs: Object, manager: str = "test.io/manager", **metadata: Any) -> Object:
    """Returns an entry of runtimePatches for replicated jobs; `metadata` is that of the JobSet."""
    template = {"spec": {"replicatedJobs": list(jobs)}} if jobs else {}
    more = {"metadata": metadata} if metadata else {}
    return {"manager": manager, "trainingRuntimeSpec": {"template": {**more, **template}}}


def pod_patch(name: str = NODE, metadata: Object | None = None, **pod_spec: Any) -> Object:
    """Returns the part of a patch that changes the pods of a replicated job."""
    template = {"spec": pod_spec, **({"metadata": metadata} if metadata else {})}
    return {"name": name, "template": {"spec": {"template": template}}}


def patched(**pod_spec: Any) -> Object:
    """Returns a job whose one patch changes the pods of the nodes."""
    return {"runtimePatches": [patch(pod_patch(**pod_spec))]}


def job(name: str = NODE, *values: Values) -> Has:
    """Returns a fact about the Job of a replicated job."""
    return Has("Job", name, {path: wanted for each in values for path, wanted in each.items()})


def env(name: str = NODE, kind: str = "containers", /, **given: str | None) -> Values:
    """Returns the expected values of a container's variables."""
    return {f"{POD}.{kind}[{name}].env[{variable}].value": value for variable, value in given.items()}


def variables(*names: str) -> Values:
    """Returns the names of all variables of a node's container, to which its Job adds the number of the node."""
    return {f"{CONTAINER}.env#name": sorted((*names, "JOB_COMPLETION_INDEX"))}


def count(number: int) -> Values:
    """Returns the number of a Job's pods."""
    return {"spec.parallelism": number, "spec.completions": number, "spec.completionMode": "Indexed"}


def condition(name: str, reason: str, status: str = "True", *, message: str | Contains = "") -> Has:
    """Returns a fact about a condition of the TrainJob."""
    at = f"status.conditions[{name}]"
    more = {f"{at}.message": message} if message else {}
    return Has("TrainJob", "", {f"{at}.status": status, f"{at}.reason": reason, **more})


def numbers(name: str, **given: int) -> Values:
    """Returns the numbers of an entry of jobsStatus; those that are not given are 0."""
    wanted = {**dict.fromkeys(("ready", "succeeded", "failed", "active", "suspended"), 0), **given}
    return {f"status.jobsStatus[{name}].{field}": number for field, number in wanted.items()}


def status(*values: Values) -> Has:
    """Returns a fact about the TrainJob."""
    return Has("TrainJob", "", {path: wanted for each in values for path, wanted in each.items()})


@dataclass(frozen=True, slots=True)
class Draft:
    """A case without its steps. By default its job has an image and a command, and its runtime one node with torch."""

    name: str
    source: str
    promise: str = ""
    parts: tuple[tuple[str, Any], ...] = ()

    def promises(self, promise: str) -> Draft:
        return replace(self, promise=promise)

    def given(self, job: Object | None = None, runtime: Object | None = None, **fields: str | bool) -> Draft:
        """Sets the specs of the job and of its runtime. `fields` are further ones of the case."""
        specs = {"job": job, "runtime": runtime}
        parts = {name: spec for name, spec in specs.items() if spec is not None} | fields
        return replace(self, parts=tuple(parts.items()))

    def then(self, *steps: Step) -> Case:
        defaults = {"job": trainer(), "runtime": runtime(policy=TORCH)}
        fields = {**defaults, **dict(self.parts)}
        return Case(self.name, self.source, self.promise, steps=steps, **fields)

    def then_node(self, *values: Values) -> Case:
        """Ends the case with facts about the Job of the nodes."""
        return self.then(job(NODE, *values))


def case(name: str, source: str) -> Draft:
    return Draft(name, source)
