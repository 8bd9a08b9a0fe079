"""What all recordings keep to, by the containers that run, whatever phases say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import pytest

from helpers.recordedlives import CREATED, Life, Moment, recorded_lives
from helpers.replayedlives import owners
from helpers.shownlives import MAIN
from tfjob_controller.api.common.core import ContainerStatus, Pod
from tfjob_controller.trainer.state.pods import deletion_request_time, is_finished
from tfjob_controller.trainer.state.replica_state import LOST_AFTER_SECONDS
from tfjob_controller.util.timestamps import format_time

LIVES = tuple(recorded_lives())


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


def has_a_success(life: Life) -> bool:
    """The Job controller replaces elastic nodes, and goes by phases, which sidecars decide as well."""
    if life.inputs["role"] == "elastic-node" and life.inputs["composition"].startswith("sidecar"):
        return False
    ends = (main_container(each.obj).state.terminated for each in life.moments if isinstance(each.obj, Pod))
    return any(each is not None and each.exit_code == 0 for each in ends)


@pytest.mark.parametrize("life", [*filter(has_a_success, LIVES)], ids=lambda life: life.name)
def test_what_has_succeeded_never_runs_again(life: Life) -> None:
    """A parameter server runs until the job ends, and replicas that restart together begin again with another Job."""
    owner_of, succeeded = owners(life), dict[str, str]()
    for moment, pods in pods_at(life):
        pod = pods.get(moment.name)
        if pod is None or moment.replica.startswith("ps-"):
            continue
        main = main_container(pod)
        is_together = moment.replica.startswith(("node", "launcher"))
        key = owner_of[moment.name] + moment.replica if is_together else moment.replica
        first = succeeded.get(key)
        assert first is None or main.state.running is None, f"{moment.seconds}: {moment.name} runs after {first}"
        if pod.metadata.deletion_timestamp is None and (main.name, 0) in exits(pod):
            succeeded[key] = moment.name


@pytest.mark.parametrize(
    "life", [life for life in LIVES if life.phase in ("Done", "Failed")], ids=lambda life: life.name
)
def test_no_pod_is_created_after_the_end_of_the_job(life: Life) -> None:
    """The last end by itself that counts for the phase of the job ends it; sidecars and deleted pods count for none."""
    is_tfjob = life.inputs["role"] in ("chief", "worker", "ps")
    ended_at, created_at = dict[tuple[str, int], float](), dict[str, float]()
    for moment, pods in pods_at(life):
        created_at.setdefault(moment.name, moment.seconds)
        if moment.name not in pods or (life.phase == "Done" and is_tfjob and moment.replica != "master-0"):
            continue
        codes = [code for _, code in exits(pods[moment.name])]
        if any(codes) if life.phase == "Failed" else 0 in codes:
            ended_at.setdefault((moment.name, len(codes)), moment.seconds)
    late = {name for name, seconds in created_at.items() if seconds > max(ended_at.values(), default=0.0)}
    assert not late


def has_a_second_pod(life: Life) -> bool:
    names = {(each.replica, each.name) for each in life.moments if each.kind == "pod"}
    return max(Counter(replica for replica, _ in names).values(), default=0) > 1


@pytest.mark.parametrize("life", [*filter(has_a_second_pod, LIVES)], ids=lambda life: life.name)
def test_one_pod_of_a_replica_runs_at_a_time(life: Life) -> None:
    """A pod on a lost node counts as ended some time after its grace period."""
    for moment, pods in pods_at(life):
        running = [
            name
            for name, pod in pods.items()
            if name.rpartition(".")[0] == moment.replica and may_run(pod, moment.seconds - LOST_AFTER_SECONDS)
        ]
        assert len(running) <= 1, f"{moment.seconds}: {running}"


def may_run(pod: Pod, lost_before: float) -> bool:
    is_lost = (pod.metadata.deletion_timestamp or "9") < format_time(CREATED + timedelta(seconds=lost_before))
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return not is_finished(pod) and not is_lost and any(each.state.running is not None for each in statuses)
