"""From a release to this tree, with the released manifests and the released programs: existing jobs continue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.cluster import Cluster, new_namespace, new_token, set_pod_terminated, write_kubeconfig
from helpers.controller import Jobs
from helpers.controllerprocess import WORKING
from helpers.fleet import fleet_kubelet, runs
from helpers.kubectl import MANIFESTS, Kubectl
from helpers.manifests import master, tfjob, workers
from helpers.poll import eventually
from helpers.released import THIS_TREE, Program
from helpers.renderings import CRDS_OVERLAY, SYSTEM, render_overlay
from helpers.trainmanifests import runtime, trainjob
from localcluster.api import Api
from release.records import Release, exceptions, releases
from tfjob_controller.api.trainjob.types import TRAINJOBS
from tfjob_controller.trainer.naming import runtime_id_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

OVERLAY = "gang-scheduling"
KINDS = "tfjobs.kubeflow.org,trainjobs.kubeflow.org,trainingruntimes.kubeflow.org,gangs.scheduling.kubeflow.org"
# Jobs by their names; of each kind one that runs until it is told to end, and one that is over.
RUNNING, OVER, GANGED, ASLEEP = "running", "over", "ganged", "asleep"
PODS = 2
META = ("name", "uid", "generation", "creationTimestamp", "labels", "annotations", "ownerReferences")
STATUS = ("phase", "startTime", "completionTime", "restarts", "restartCounts", "attempt", "placement")
LAST = releases()[-1]

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Installation:
    """A cluster with a release, and jobs in one namespace."""

    cluster: Cluster
    system: Kubectl
    user: Kubectl
    tfjobs: Jobs
    trainjobs: Jobs
    folder: Path

    def apply(self, objects: list[Object]) -> None:
        """As a user does; nothing may be said against it."""
        answer = self.system.run("apply", "-f", "-", manifest=yaml.safe_dump_all(objects))
        assert (answer.code, answer.error) == (0, "")

    def apply_crds(self) -> None:
        """As docs/upgrade.md says; the release itself was applied on the client side."""
        folder = MANIFESTS / "overlays" / CRDS_OVERLAY
        answer = self.system.run("apply", "--server-side", "-k", str(folder))
        assert (answer.code, answer.error) == (0, "")

    def controller(self, source: Path) -> Program:
        lease = ("--leader-elect", f"--leader-elect-lease-namespace={SYSTEM}", "--leader-elect-retry-period=500ms")
        return self._program(source, "run", "tfjob-controller", *lease, "--gang-mode=affinity")

    def gang_scheduler(self, source: Path) -> Program:
        return self._program(source, "extender", "gang-scheduler", "--mode=affinity")

    def _program(self, source: Path, command: str, account: str, *flags: str) -> Program:
        """With the rights of its ServiceAccount, and those alone."""
        name = f"{command}-{'new' if source == THIS_TREE else 'old'}"
        token = new_token(self.cluster.api, SYSTEM, account)
        kubeconfig = write_kubeconfig(self.cluster, token, self.folder / f"{name}.kubeconfig")
        argv = [command, f"--kubeconfig={kubeconfig}", "--metrics-bind-address=0", "--health-probe-bind-address=0"]
        return Program.start(source, [*argv, *flags], self.folder / f"{name}.log", self.cluster.folder)

    def upgrade(self, controller: Program, gang_scheduler: Program) -> None:
        """Replaces the programs of the release by those of this tree, which work on its return."""
        self.apply_crds()
        self.apply(render_overlay(self.system, OVERLAY))
        # As Deployments do it: the gang scheduler ends before the next one begins, the controller after.
        gang_scheduler.stop()
        self.gang_scheduler(THIS_TREE).await_log(WORKING)
        successor = self.controller(THIS_TREE)
        successor.await_log('"event": "manager initialized"')
        controller.stop()
        successor.await_log(WORKING)
        # They do something new.
        self.tfjobs.submit(tfjob(master(template=runs(0.2)), name="new", gang={"enabled": True}))
        self.tfjobs.await_phase("Done", "new")

    def submit(self) -> None:
        forever, soon = runs_forever(), runs(0.2)
        notes = soon["metadata"]["annotations"]
        for name, template, spec in (
            (RUNNING, forever, {}),
            (GANGED, forever, {"gang": {"enabled": True}}),
            (ASLEEP, forever, {"suspend": True}),
        ):
            self.tfjobs.submit(tfjob(master(template=template), workers(1, template=template), name=name, **spec))
        # The end of its one pod is the last that happens.
        self.tfjobs.submit(tfjob(master(template=soon), name=OVER))
        self.user.must("create", "-f", "-", manifest=runtime("own", namespaced=True, framework="torch"))
        self.trainjobs.submit(trainjob(f"train-{RUNNING}", PODS, ["torchrun"]))
        self.trainjobs.submit(trainjob(f"train-{OVER}", PODS, annotations=notes))

    def has_settled(self) -> bool:
        """Whether all that happens by itself has happened, and stands in the statuses."""
        found = {name: each.get("status", {}) for name, each in self.stored().items()}
        whole = [
            found[f"TFJob/{name}"].get("ready") == {"master": "1/1", "worker": "1/1"} for name in (RUNNING, GANGED)
        ]
        over = [found[name].get("phase") == "Done" for name in (f"TFJob/{OVER}", f"TrainJob/train-{OVER}")]
        train = found[f"TrainJob/train-{RUNNING}"]
        whole.append(train.get("phase") == "Running" and train["jobsStatus"][0]["ready"] == PODS)
        return all(whole + over) and "conditions" in found[f"TFJob/{ASLEEP}"]

    def stored(self) -> dict[str, Object]:
        """All objects of our kinds."""
        found = yaml.safe_load(self.user.must("get", KINDS, "-o", "yaml"))["items"]
        return {f"{each['kind']}/{each['metadata']['name']}": each for each in found}

    def children(self) -> dict[str, tuple[str, int]]:
        """The UIDs of all that belongs to jobs, and how often the containers of a pod were started anew."""
        plurals = ("pods", "jobs", "services")
        found = {(plural, name): each for plural in plurals for name, each in self.tfjobs.children(plural).items()}
        return {" ".join(key): (each["metadata"]["uid"], restarts(each)) for key, each in found.items()}

    def end(self, job: str) -> None:
        """Let those pods of a job succeed that decide: the others are deleted once these have."""
        roles = {name: each["job_type"].lower() for name, each in self.pods_of(job).items()}
        deciding = next(role for role in ("master", "launcher", "node") if role in roles.values())
        for name, role in roles.items():
            if role == deciding:
                set_pod_terminated(self.cluster.api, self.user.namespace, name)

    def pods_of(self, job: str) -> dict[str, Object]:
        """The labels of a job's pods, by their names."""
        found = {name: pod["metadata"]["labels"] for name, pod in self.tfjobs.children("pods").items()}
        return {
            name: each for name, each in found.items() if job in (each.get("tf_job_name"), each.get("train_job_name"))
        }


def runs_forever() -> Object:
    return {**runs(0), "metadata": {}}


def restarts(child: Object) -> int:
    return sum(each["restartCount"] for each in child.get("status", {}).get("containerStatuses", ()))


@pytest.fixture(params=[LAST], ids=lambda release: release.version)
def release(request: pytest.FixtureRequest) -> Release:
    found: Release = request.param
    return found


@pytest.fixture
def installed(own_control_plane: Cluster, release: Release, tmp_path: Path) -> Iterator[Installation]:
    """The release as its users have it."""
    api, cache = own_control_plane.api, tmp_path / "cache"
    namespace = new_namespace(api)
    system, user = (Kubectl(own_control_plane.kubeconfig, cache, each) for each in (SYSTEM, namespace))
    jobs = Jobs(api, namespace), Jobs(api, namespace, TRAINJOBS)
    installation = Installation(own_control_plane, system, user, *jobs, tmp_path)
    installation.apply([*release.objects(OVERLAY), *release.crds])
    eventually(lambda: user.run("get", KINDS).code == 0, period=0.2)
    with fleet_kubelet(Api.from_kubeconfig(own_control_plane.kubeconfig), namespace):
        yield installation


def essence(stored: Mapping[str, Object]) -> dict[str, Object]:
    """What nobody changes once jobs have settled. The rest of a status may still catch up; it must only be there."""
    return {
        name: {**each, "metadata": _of(each["metadata"], META), "status": _status(each)}
        for name, each in stored.items()
    }


def _status(each: Object) -> Object:
    status = each.get("status", {})
    return dict.fromkeys(status, "there") | _of(status, STATUS)


def _of(fields: Object, names: tuple[str, ...]) -> Object:
    return {name: fields[name] for name in names if name in fields}


def lost(before: Any, after: Any) -> dict[str, Any]:
    """What of `before` is no longer so, by its path."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        found = {name: lost(value, after.get(name)) for name, value in before.items()}
        return {f"{name} {path}".strip(): what for name, each in found.items() for path, what in each.items()}
    return {} if before == after else {"": (before, after)}


def is_deliberate(release: Release, path: str) -> bool:
    """Whether a path of `lost` is a field that test/data/releases/exceptions.yaml lists."""
    kind, _, field = path.partition(" ")
    plurals = {f"{each.path.replace('.', ' ')}": each.crd for each in exceptions(release.version)}
    return plurals.get(field, "").startswith(f"{kind.partition('/')[0].lower()}s.")


def test_jobs_go_on_and_what_is_stored_stays(installed: Installation, release: Release, tmp_path: Path) -> None:
    released = release.unpack_program(tmp_path / "released")
    controller, gang_scheduler = installed.controller(released), installed.gang_scheduler(released)
    installed.submit()
    eventually(installed.has_settled, period=0.2)
    stored, children = installed.stored(), installed.children()
    essential = essence(stored)

    installed.upgrade(controller, gang_scheduler)
    now, there = essence(installed.stored()), installed.children()
    assert [path for path in lost(essential, now) if not is_deliberate(release, path)] == []
    assert {name: there.get(name) for name in children} == children

    every_stored_object_can_be_written_again(installed.user, without_deliberate_breaks(release, stored))
    running_jobs_can_be_changed_and_end(installed)


def without_deliberate_breaks(release: Release, stored: Mapping[str, Object]) -> dict[str, Object]:
    """The objects without the status fields that exceptions.yaml lists, which strict validation would reject."""

    def keeps(name: str, field: str) -> bool:
        return not is_deliberate(release, f"{name} status {field}")

    return {
        name: {**each, "status": {field: value for field, value in each["status"].items() if keeps(name, field)}}
        if "status" in each
        else each
        for name, each in stored.items()
    }


def every_stored_object_can_be_written_again(user: Kubectl, stored: Mapping[str, Object]) -> None:
    """Wholly, as it was before the upgrade: the server looks at each field."""
    for each in stored.values():
        meta = {name: each["metadata"][name] for name in ("name", "namespace")} | {"labels": {"upgraded": "yes"}}
        answer = user.run("replace", "--dry-run=server", "-f", "-", manifest={**each, "metadata": meta})
        assert (answer.code, answer.error) == (0, "")


def running_jobs_can_be_changed_and_end(installed: Installation) -> None:
    installed.user.must("scale", f"tfjob/{RUNNING}", "--replicas=2")
    installed.user.must("patch", "tfjob", ASLEEP, "--type=merge", "--patch", '{"spec": {"suspend": false}}')
    for jobs, name in (
        (installed.tfjobs, ASLEEP),
        (installed.tfjobs, RUNNING),
        (installed.trainjobs, f"train-{RUNNING}"),
    ):
        jobs.await_phase("Running", name)
        installed.end(name)
        jobs.await_phase("Done", name)


# TrainJobs by what becomes of them.
KEPT, RESUMED, RESTARTED, LAUNCHED, PLACED = "kept", "resumed", "restarted", "launched", "placed"
TRAINJOB_SPECS: Mapping[str, Object] = {
    KEPT: {},
    RESUMED: {},
    RESTARTED: {},
    LAUNCHED: {"command": ["mpirun"]},
    PLACED: {"gang": {"enabled": True}},
}


@pytest.mark.parametrize("release", releases()[:1], ids=lambda release: release.version, indirect=True)
def test_nodes_of_a_trainjob_have_a_job_each_until_they_are_restarted(
    installed: Installation, release: Release, tmp_path: Path
) -> None:
    """The first release gave each node a Job and a Service of its own; now there is one of each for all nodes."""
    released = release.unpack_program(tmp_path / "released")
    controller, gang_scheduler = installed.controller(released), installed.gang_scheduler(released)
    trainjobs = installed.trainjobs
    for name, spec in TRAINJOB_SPECS.items():
        trainjobs.submit(trainjob(name, PODS, **{"command": ["torchrun"], **spec}))
    eventually(lambda: all(is_ready(trainjobs.status(name)) for name in TRAINJOB_SPECS), period=0.2)
    trainjobs.change({"spec": {"suspend": True}}, RESUMED)
    eventually(lambda: not installed.pods_of(RESUMED), period=0.2)
    before = {name: children_of(trainjobs, name) for name in TRAINJOB_SPECS}
    assert {name: counts(each) for name, each in before.items()} == dict.fromkeys(before, (PODS, PODS)) | {
        LAUNCHED: (PODS + 1, PODS)
    }

    installed.upgrade(controller, gang_scheduler)
    assert {name: children_of(trainjobs, name) for name in before} == before

    trainjobs.change({"spec": {"suspend": False}}, RESUMED)
    eventually(lambda: is_ready(trainjobs.status(RESUMED)), period=0.2)
    for name in (KEPT, RESUMED):
        installed.end(name)
        assert trainjobs.await_phase("Done", name).get("restarts", 0) == 0
        assert children_of(trainjobs, name) == before[name]
    for name in (RESTARTED, LAUNCHED, PLACED):
        (pod,) = [
            pod
            for pod, each in installed.pods_of(name).items()
            if (each["job_type"], each["task_index"]) == ("node", "1")
        ]
        set_pod_terminated(installed.cluster.api, trainjobs.namespace, pod, 137)
    for name in (RESTARTED, LAUNCHED, PLACED):
        eventually(lambda name=name: is_ready(trainjobs.status(name), restarts=1), period=0.2)  # type: ignore[misc] # now
        now = children_of(trainjobs, name)
        assert counts(now) == (2 if name == LAUNCHED else 1, 1), now
        assert not set(now.values()) & set(before[name].values())
        runtime_id = runtime_id_of(trainjobs.get(name)["metadata"]["uid"])
        assert now.keys() >= {f"jobs {name}-node-{runtime_id}", f"services {name}-{runtime_id}"}
        if name == LAUNCHED:
            hosts = [f"{name}-node-{runtime_id}-{index}.{name}-{runtime_id}" for index in range(PODS)]
            assert [line.split()[0] for line in hostfile(trainjobs, name).splitlines()] == hosts
        installed.end(name)
        assert trainjobs.await_phase("Done", name)["restarts"] == 1


def is_ready(status: Object, restarts: int = 0) -> bool:
    ready = {each["name"]: each["ready"] for each in status.get("jobsStatus", ())}
    return ready.pop("node", 0) == PODS and all(ready.values()) and status.get("restarts", 0) == restarts


def children_of(jobs: Jobs, name: str) -> dict[str, str]:
    """The UIDs of a TrainJob's Jobs and Services."""
    found = {
        f"{plural} {child}": each["metadata"]
        for plural in ("jobs", "services")
        for child, each in jobs.children(plural).items()
    }
    return {child: each["uid"] for child, each in found.items() if each["labels"].get("train_job_name") == name}


def counts(children: Mapping[str, str]) -> tuple[int, int]:
    """The numbers of Jobs and Services."""
    kinds = [each.partition(" ")[0] for each in children]
    return kinds.count("jobs"), kinds.count("services")


def hostfile(jobs: Jobs, name: str) -> str:
    """What the launcher reads."""
    (pod,) = [each for child, each in jobs.children("pods").items() if child.startswith(f"{name}-launcher-")]
    (volume,) = [each["configMap"]["name"] for each in pod["spec"]["volumes"] if each["name"] == "mpi-config"]
    return str(jobs.children("configmaps")[volume]["data"]["hostfile"])
