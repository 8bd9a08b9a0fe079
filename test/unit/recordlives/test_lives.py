"""What all recordings keep to, by the containers that run, whatever phases say.

A rule is checked on each different story: what it reads of a replica or of a job, in order. Many recordings, of other
versions of Kubernetes or with other policies, tell the same one; a failure names the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta

from helpers.recordedlives import CREATED, Life, Moment, recorded_lives
from helpers.replayedlives import owners
from helpers.shownlives import MAIN
from tfjob_controller.api.common.core import ContainerStatus, Pod
from tfjob_controller.jobs.state.pods import deletion_request_time, is_finished
from tfjob_controller.jobs.state.replica_state import LOST_AFTER_SECONDS
from tfjob_controller.util.timestamps import format_time

LIVES = tuple(recorded_lives())

# What happened to the pods of a replica or of a job: a pod's number, or nothing, and a word.
Story = tuple[tuple[str, str], ...]


def different(stories: Callable[[Life], Iterable[Story]]) -> dict[Story, str]:
    """Returns each story once, with the name of the first recording that tells it."""
    first: dict[Story, str] = {}
    for life in LIVES:
        for story in stories(life):
            first.setdefault(story, life.name)
    assert first, "no recording tells one"
    return first


def pods_at(life: Life) -> Iterator[tuple[Moment, dict[str, Pod]]]:
    """Yields each moment of a pod, and all pods that exist then, by their recorded names."""
    pods: dict[str, Pod] = {}
    for moment in life.moments:
        if moment.kind == "pod":
            pods.pop(moment.name, None)
            if isinstance(moment.obj, Pod):
                pods[moment.name] = moment.obj
            yield moment, pods


def main_container(pod: Pod) -> ContainerStatus:
    return next((each for each in pod.status.container_statuses if each.name in MAIN), ContainerStatus())


def exits(pod: Pod) -> Iterator[tuple[str, int]]:
    """Yields when the program, or what came before it, ended by itself, and the exit codes."""
    inits = (each for each in pod.status.init_container_statuses if each.state.terminated is not None)
    requested = deletion_request_time(pod)
    for each in (*inits, main_container(pod)):
        ended = each.state.terminated
        if ended is not None and (requested is None or (ended.finished_at or "") < requested):
            yield each.name, ended.exit_code


def starts_and_successes(life: Life) -> Iterator[Story]:
    """Yields when the program of each replica ran, and when it succeeded.

    A parameter server runs until the job ends, and replicas that restart together begin again with another Job. The Job
    controller replaces elastic nodes, and goes by phases, which sidecars decide as well.
    """
    if life.inputs["role"] == "elastic-node" and life.inputs["composition"].startswith("sidecar"):
        return
    owner_of, stories = owners(life), dict[str, dict[tuple[str, str], None]]()
    for moment, pods in pods_at(life):
        pod = pods.get(moment.name)
        if pod is None or moment.replica.startswith("ps-"):
            continue
        main, number = main_container(pod), moment.name.rpartition(".")[2]
        is_together = moment.replica.startswith(("node", "launcher"))
        story = stories.setdefault(owner_of[moment.name] + moment.replica if is_together else moment.replica, {})
        if main.state.running is not None:
            story.pop((number, "runs"), None)
            story[number, "runs"] = None
        if pod.metadata.deletion_timestamp is None and (main.name, 0) in exits(pod):
            story.setdefault((number, "succeeds"))
    yield from map(tuple, stories.values())


def test_what_has_succeeded_never_runs_again() -> None:
    for story, name in different(starts_and_successes).items():
        words = [word for _, word in story]
        assert "succeeds" not in words or "runs" not in words[words.index("succeeds") :], name


def creations_and_ends(life: Life) -> Iterator[Story]:
    """Yields when pods of a finished job were created, and what ended by itself and counts for the job's phase.

    Sidecars and pods that are being deleted count for none.
    """
    if life.phase not in ("Done", "Failed"):
        return
    is_tfjob = life.inputs["role"] in ("chief", "worker", "ps")
    seen, story = set[tuple[str, int]](), list[tuple[str, str]]()

    def add(what: tuple[str, int], word: str) -> None:
        if what not in seen:
            story.append(("", word))
        seen.add(what)

    for moment, pods in pods_at(life):
        add((moment.name, 0), "created")
        if moment.name not in pods or (life.phase == "Done" and is_tfjob and moment.replica != "master-0"):
            continue
        codes = [code for _, code in exits(pods[moment.name])]
        if any(codes) if life.phase == "Failed" else 0 in codes:
            add((moment.name, len(codes)), "ends")
    yield tuple(story)


def test_no_pod_is_created_after_the_end_of_the_job() -> None:
    assert [name for story, name in different(creations_and_ends).items() if story[-1] != ("", "ends")] == []


def may_run(pod: Pod, lost_before: float) -> bool:
    is_lost = (pod.metadata.deletion_timestamp or "9") < format_time(CREATED + timedelta(seconds=lost_before))
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return not is_finished(pod) and not is_lost and any(each.state.running is not None for each in statuses)


def pods_that_run(life: Life) -> Iterator[Story]:
    """Yields which pods of each replica ran together."""
    stories: dict[str, dict[tuple[str, str], None]] = {}
    for moment, pods in pods_at(life):
        running = [
            name.rpartition(".")[2]
            for name, pod in pods.items()
            if name.rpartition(".")[0] == moment.replica and may_run(pod, moment.seconds - LOST_AFTER_SECONDS)
        ]
        stories.setdefault(moment.replica, {}).setdefault((" ".join(running), "run"))
    yield from map(tuple, stories.values())


def test_one_pod_of_a_replica_runs_at_a_time() -> None:
    """A pod on a lost node counts as ended some time after its grace period."""
    for story, name in different(pods_that_run).items():
        assert [running for running, _ in story if " " in running] == [], name
