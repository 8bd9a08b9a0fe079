"""What is told of restarts: of a set in one sentence, of replicas by name."""

from __future__ import annotations

import pytest

from helpers.clusterinmemory import World, running_world
from helpers.manifests import container, master
from helpers.trainworld import ends, running_train_world
from tfjob_controller.util.text import MAX_WORDS


def notes(cluster: World) -> list[tuple[str, str]]:
    return [(each.type, each.note) for each in cluster.events if each.reason == "Restarted"]


@pytest.mark.parametrize(
    ("limit", "count"), [(None, "restart 1"), (3, "restart 1 of 3")], ids=["without-a-limit", "with-a-limit"]
)
def test_a_restart_of_all_replicas_is_reported_once_with_the_failed_one_and_the_reason(
    limit: int | None, count: str
) -> None:
    cluster = running_train_world(nodes=3, maxRestarts=limit)
    cluster.exits("node-2", 137, "Error", message="last words\nof the program")
    cluster.job_ends("node-2", "Failed")
    cluster.advance(1)
    ends(cluster, "node-1", exit_code=143)
    cluster.settle()
    ((kind, note),) = notes(cluster)
    assert kind == "Warning"
    assert note.startswith("Restarting all replicas: node-2 failed: exit code 137")
    assert note.endswith(f" ({count})")


def test_the_event_of_a_restart_has_its_count_after_a_long_message() -> None:
    cluster = running_train_world()
    cluster.exits("node-0", 137, message="x" * 4096)
    cluster.job_ends("node-0", "Failed")
    cluster.settle()
    ((_, note),) = notes(cluster)
    assert note.endswith("x (restart 1)")
    assert "…x" in note
    assert len(note) <= MAX_WORDS + len(" (restart 1)")


def test_replicas_that_are_restarted_alone_are_named() -> None:
    cluster = running_world()
    cluster.exits("worker-0", 137, phase="Running")
    cluster.settle()
    cluster.runs("worker-0", restart_count=1)
    cluster.settle()
    assert notes(cluster) == [("Warning", "Restarted worker-0: worker-0 failed: exit code 137 (1 restarts so far)")]


def test_a_program_with_a_post_start_hook_may_have_been_ended_for_the_failure_of_that() -> None:
    """Both end the container, and its status does not say which of them failed."""
    hooked = container(lifecycle={"postStart": {"exec": {"command": ["false"]}}})
    cluster = running_world(master(template={"spec": {"containers": [hooked]}}))
    cluster.exits("master-0", 2)
    cluster.settle()
    assert cluster.job.status.reason == "master-0 failed: program or postStart hook: exit code 2"
