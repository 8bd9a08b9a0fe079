"""A cluster with a release, its programs and jobs, for tests of the way to this tree and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from helpers.cluster import Cluster, new_namespace, new_token, set_pod_terminated, write_kubeconfig
from helpers.controller import Jobs
from helpers.controllerprocess import WORKING
from helpers.fleet import runs
from helpers.kubectl import MANIFESTS, Kubectl
from helpers.manifests import master, tfjob, workers
from helpers.poll import eventually
from helpers.released import THIS_TREE, Program
from helpers.renderings import CRDS_OVERLAY, SYSTEM, render_overlay
from helpers.trainmanifests import runtime, trainjob
from release.records import Release, exceptions
from tfjob_controller.api.trainjob.types import TRAINJOBS

OVERLAY = "gang-scheduling"
KINDS = "tfjobs.kubeflow.org,trainjobs.kubeflow.org,trainingruntimes.kubeflow.org,gangs.scheduling.kubeflow.org"
# Jobs by their names; of each kind one that runs until it is told to end, and one that is over.
RUNNING, OVER, GANGED, ASLEEP = "running", "over", "ganged", "asleep"
PODS = 2
META = ("name", "uid", "generation", "creationTimestamp", "labels", "annotations", "ownerReferences")
STATUS = ("phase", "startTime", "completionTime", "restarts", "restartCounts", "attempt", "placement")

# For tests that install the recorded 0.1.0.
RELEASED_CRDS_SINCE = "1.34"
RELEASED_CRDS = "1.33 refuses the CRD of TrainJobs of release 0.1.0, of which it estimates the cost of a rule higher"

Object = dict[str, Any]
# Controller and gang scheduler.
Programs = tuple[Program, Program]


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

    def restore_crds(self, release: Release) -> None:
        """Those of the release, which drop the fields of this tree from objects."""
        answer = self.system.run("apply", "--server-side", "-f", "-", manifest=yaml.safe_dump_all(release.crds))
        assert (answer.code, answer.error) == (0, "")

    def controller(self, source: Path) -> Program:
        lease = ("--leader-elect", f"--leader-elect-lease-namespace={SYSTEM}", "--leader-elect-retry-period=500ms")
        return self._program(source, "run", "tfjob-controller", *lease, "--gang-mode=affinity")

    def gang_scheduler(self, source: Path) -> Program:
        return self._program(source, "extender", "gang-scheduler", "--mode=affinity")

    def _program(self, source: Path, command: str, account: str, *flags: str) -> Program:
        """With the rights of its ServiceAccount, and those alone."""
        name = f"{command}-{'new' if source == THIS_TREE else 'old'}-{len(list(self.folder.glob('*.log')))}"
        token = new_token(self.cluster.api, SYSTEM, account)
        kubeconfig = write_kubeconfig(self.cluster, token, self.folder / f"{name}.kubeconfig")
        argv = [command, f"--kubeconfig={kubeconfig}", "--metrics-bind-address=0", "--health-probe-bind-address=0"]
        return Program.start(source, [*argv, *flags], self.folder / f"{name}.log", self.cluster.folder)

    def upgrade(self, controller: Program, gang_scheduler: Program) -> Programs:
        """Replaces the programs of the release by those of this tree, which work on its return."""
        self.apply_crds()
        self.apply(render_overlay(self.system, OVERLAY))
        # As Deployments do it: the gang scheduler ends before the next one begins, the controller after.
        gang_scheduler.stop()
        next_scheduler = self.gang_scheduler(THIS_TREE)
        next_scheduler.await_log(WORKING)
        successor = self.controller(THIS_TREE)
        successor.await_log('"event": "manager initialized"')
        controller.stop()
        successor.await_log(WORKING)
        self.do_something_new("new")
        return successor, next_scheduler

    def go_back(self, release: Release, source: Path, programs: Programs) -> Programs:
        """Replaces the programs of this tree by those of the release, which work on its return. CRDs stay."""
        self.apply(release.objects(OVERLAY))
        for program in programs:
            program.stop()
        previous = self.controller(source), self.gang_scheduler(source)
        self.do_something_new("back")
        return previous

    def do_something_new(self, name: str) -> None:
        """A gang runs and ends, so both programs work."""
        self.tfjobs.submit(tfjob(master(template=runs(0.2)), name=name, gang={"enabled": True}))
        self.tfjobs.await_phase("Done", name)

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

    def change_and_end_running_jobs(self) -> None:
        self.user.must("scale", f"tfjob/{RUNNING}", "--replicas=2")
        self.user.must("patch", "tfjob", ASLEEP, "--type=merge", "--patch", '{"spec": {"suspend": false}}')
        for jobs, name in (
            (self.tfjobs, ASLEEP),
            (self.tfjobs, RUNNING),
            (self.trainjobs, f"train-{RUNNING}"),
        ):
            jobs.await_phase("Running", name)
            self.end(name)
            jobs.await_phase("Done", name)

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


def install(cluster: Cluster, release: Release, folder: Path) -> Installation:
    """Installs the release as its users have it, without its programs."""
    cache = folder / "cache"
    namespace = new_namespace(cluster.api)
    system, user = (Kubectl(cluster.kubeconfig, cache, each) for each in (SYSTEM, namespace))
    jobs = Jobs(cluster.api, namespace), Jobs(cluster.api, namespace, TRAINJOBS)
    installation = Installation(cluster, system, user, *jobs, folder)
    installation.apply([*release.objects(OVERLAY), *release.crds])
    eventually(lambda: user.run("get", KINDS).code == 0, period=0.2)
    return installation
