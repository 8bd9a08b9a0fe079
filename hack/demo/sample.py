"""What the scenes of one sample have in common: it is applied, followed to its end, and judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from demo.follow import FINISHED_PHASES, Followed, Look, Subject, follow, ignore
from demo.screen import Check
from demo.stage import ROOT, RUNTIMES, Object, Stage
from localcluster.errors import LocalClusterError

# Changes the objects of a sample.
Adapt = Callable[[Sequence[Object]], None]


@dataclass(frozen=True, slots=True)
class Sample:
    """A manifest whose last object is the job, named like its file. `settings` slow the program down."""

    path: Path
    kind: str
    image: str
    settings: Mapping[str, str] = field(default_factory=dict)
    timeout_seconds: float = 300

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def subject(self) -> Subject:
        return Subject(self.kind, self.name)

    @property
    def node_0(self) -> str:
        """The selector of the first pod of a TrainJob."""
        return f"train_job_name={self.name},job_type=node,batch.kubernetes.io/job-completion-index=0"

    def objects(self, image: str) -> list[Object]:
        """Returns the objects with this image and the settings."""
        text = (ROOT / self.path).read_text()
        objects: list[Object] = list(yaml.safe_load_all(text.replace(self.image, image)))
        if self.settings:
            environment = [{"name": name, "value": value} for name, value in self.settings.items()]
            objects[-1]["spec"]["trainer"]["env"] = environment
        return objects


def run_sample(stage: Stage, sample: Sample, look: Look = ignore, adapt: Adapt = lambda _: None) -> Followed:
    """Applies the sample and follows its job. Raises LocalClusterError."""
    _remove_earlier(stage, sample.subject)
    if sample.kind == "trainjob":
        stage.screen.step(f"kubectl apply -k {RUNTIMES}")
        stage.install_runtimes()
    settings = " ".join(f"{name}={value}" for name, value in sample.settings.items())
    stage.screen.step(f"kubectl apply -f {sample.path}" + (f"   (with {settings})" if settings else ""))
    objects = sample.objects(stage.image)
    adapt(objects)
    stage.screen.output(stage.apply(*objects))
    stage.screen.blank()
    return follow(stage, sample.subject, sample.timeout_seconds, look)


def _remove_earlier(stage: Stage, subject: Subject) -> None:
    """Deletes the job of an earlier demo, except for a running one on a foreign cluster, which may be a user's."""
    kind, name = subject.kind, subject.name
    if not stage.kubectl.exists(kind, name):
        return
    phase = stage.kubectl.get(kind, name).get("status", {}).get("phase")
    if not stage.own_nodes and phase not in FINISHED_PHASES:
        raise LocalClusterError(f"a {kind} {name} exists already: kubectl delete {kind} {name}, and run it again")
    stage.screen.step(f"kubectl delete {kind} {name}   (of an earlier demo)")
    stage.kubectl.run("delete", kind, name, "--ignore-not-found", "--cascade=foreground")


def show_end(stage: Stage, sample: Sample) -> None:
    """Shows the events of the job, and its row."""
    stage.show(f"kubectl events --for {sample.kind}/{sample.name}")
    stage.show(f"kubectl get {sample.kind}s")


def check_job(job: Object, wanted: str = "SUCCESS") -> Check:
    """Checks that the job is Done, and in this state."""
    status = job.get("status", {})
    phase, state = status.get("phase", ""), status.get("state", "")
    reason = f": {status['reason']}" if status.get("reason") else ""
    return Check(phase == "Done" and state == wanted, f"the job ended {phase or '-'}/{state or '-'}{reason}")


def check_spread(own_nodes: int, followed: Followed) -> list[Check]:
    """Checks that pods used all of our own nodes; an existing cluster may have only one node."""
    used = followed.nodes
    text = f"its pods ran on {len(used)} node{'s' * (len(used) != 1)}: {', '.join(used)}"
    return [Check(len(used) >= own_nodes, text)] if own_nodes else []
