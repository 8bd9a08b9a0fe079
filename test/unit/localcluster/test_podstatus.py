"""The rules of localcluster/podstatus.py."""

from __future__ import annotations

from typing import Any

import pytest

from localcluster import podstatus
from localcluster.podstatus import Outcome

POD: dict[str, Any] = {
    "spec": {"containers": [{"name": "tensorflow", "image": "i"}, {"name": "sidecar", "image": "i"}]},
    "status": {},
}


def ends(outcome: Outcome) -> dict[str, Any]:
    statuses = podstatus.terminated(POD, outcome)["containerStatuses"]
    return {status["name"]: status["state"]["terminated"] for status in statuses}


def test_only_the_named_container_ends_badly() -> None:
    found = ends(Outcome(exit_code=137, reason="OOMKilled", message="words", container="tensorflow"))
    assert (found["tensorflow"]["exitCode"], found["tensorflow"]["reason"]) == (137, "OOMKilled")
    assert found["tensorflow"]["message"] == "words"
    assert (found["sidecar"]["exitCode"], found["sidecar"]["reason"]) == (0, "Completed")
    assert "message" not in found["sidecar"]


@pytest.mark.parametrize(("code", "reason"), [(0, "Completed"), (1, "Error"), (143, "Error")])
def test_the_reason_fits_the_exit_code(code: int, reason: str) -> None:
    assert ends(Outcome(exit_code=code))["tensorflow"]["reason"] == reason


def test_a_waiting_pod_is_pending_with_the_reason() -> None:
    status = podstatus.waiting(POD, "ErrImagePull", "no such image")
    assert status["phase"] == "Pending"
    assert status["containerStatuses"][0]["state"]["waiting"] == {"reason": "ErrImagePull", "message": "no such image"}


def test_nothing_runs_after_an_init_container_that_fails() -> None:
    pod = {**POD, "spec": {**POD["spec"], "initContainers": [{"name": name, "image": "i"} for name in "abc"]}}
    outcome = Outcome(exit_code=3, message="words", container="b")
    assert podstatus.initializing(pod, outcome)["phase"] == "Pending"
    status = podstatus.terminated(pod, outcome)
    states = {each["name"]: each["state"] for each in status["initContainerStatuses"]}
    assert status["phase"] == "Failed"
    assert (states["a"]["terminated"]["exitCode"], states["b"]["terminated"]["exitCode"]) == (0, 3)
    assert states["b"]["terminated"]["message"] == "words"
    assert set(states["c"]) == {"waiting"}
    assert all(set(each["state"]) == {"waiting"} for each in status["containerStatuses"])
