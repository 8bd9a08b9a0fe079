"""The status of a pod as a kubelet would report it: pure functions from a pod to the `status` of a patch."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

Object = dict[str, Any]

# The exit code of a container that ends at SIGTERM.
TERMINATED_BY_SIGTERM = 143


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the containers of a pod end: after `after_seconds` of running (None: they run until they are stopped).

    `container` names the one that ends with `exit_code`; the others then end with 0. Without a name, all end alike.
    If it is an init container, those after it never run.
    `reason` is that of the container (`Error`, `OOMKilled`), by default derived from the exit code; `message` is its
    termination log. `pod_reason` is the reason of the pod (`Evicted`).
    """

    after_seconds: float | None = None
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    container: str = ""
    pod_reason: str = ""


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def running(pod: Object, pod_ip: str, restarts: int = 0, last: Outcome | None = None) -> Object:
    """Returns the status in which all containers run and are ready; `last` is how they ended before a restart."""
    moment = now()
    state = {"running": {"startedAt": moment}}
    statuses = _all_in(state, pod, ready=True)
    init_statuses = _init_statuses(pod, moment, state)
    if last is not None:
        restarted = [each for each in (*statuses, *init_statuses) if each["name"] == last.container]
        for status in restarted if last.container else statuses:
            status["restartCount"] = restarts
            status["lastState"] = {"terminated": _terminated(status["name"], last, moment, moment)}
    addresses = {"podIP": pod_ip, "podIPs": [{"ip": pod_ip}], "hostIP": "127.0.0.1"}
    return _status(pod, "Running", statuses, init_statuses, ready=True) | addresses


def ended(pod: Object, outcome: Outcome) -> Object:
    """Returns the status that comes before `terminated`: a kubelet reports the ends of containers before the phase."""
    before, after = pod["status"], terminated(pod, outcome)
    changed = ["containerStatuses", *(["initContainerStatuses"] if ends_in_init(pod, outcome) else [])]
    return {key: after[key] if key in changed else value for key, value in before.items()}


def terminated(pod: Object, outcome: Outcome) -> Object:
    """Returns the status after the end of all containers: Failed if one of them failed. Restart counts remain."""
    before = pod.get("status", {})
    known = {each["name"]: each for each in before.get("containerStatuses", ())}
    started, moment = before.get("startTime", now()), now()
    if ends_in_init(pod, outcome):
        end = {"terminated": _terminated(outcome.container, outcome, started, moment)}
        return _with_init(pod, "Failed", end, outcome)
    statuses = []
    for container in pod["spec"]["containers"]:
        state = {"terminated": _terminated(container["name"], outcome, started, moment)}
        statuses.append(_container(container, state, ready=False) | _past_of(known.get(container["name"], {})))
    stopped = {"terminated": _terminated("", Outcome(exit_code=TERMINATED_BY_SIGTERM), started, moment)}
    failed = outcome.exit_code != 0 or bool(outcome.pod_reason)
    status = _status(pod, "Failed" if failed else "Succeeded", statuses, _init_statuses(pod, moment, stopped))
    return status | ({"reason": outcome.pod_reason, "message": outcome.message} if outcome.pod_reason else {})


def ends_in_init(pod: Object, outcome: Outcome) -> bool:
    """Reports whether the pod ends before its containers start."""
    return any(each["name"] == outcome.container for each in pod["spec"].get("initContainers", ()))


def initializing(pod: Object, outcome: Outcome) -> Object:
    """Returns the status in which the init container of `outcome` runs and the containers wait."""
    return _with_init(pod, "Pending", {"running": {"startedAt": now()}}, outcome)


def _with_init(pod: Object, phase: str, state: Object, outcome: Outcome) -> Object:
    """Adds the init containers: those before that one have succeeded, those after it have not started."""
    before, statuses, succeeded = True, [], _succeeded(now())
    still: Object = {"waiting": {"reason": "PodInitializing"}}
    for container in pod["spec"]["initContainers"]:
        is_it = container["name"] == outcome.container
        before = before and not is_it
        statuses.append(_container(container, state if is_it else succeeded if before else still, ready=before))
    return _status(pod, phase, _all_in(still, pod), statuses)


def waiting(pod: Object, reason: str, message: str = "") -> Object:
    """Returns the status in which no container has started: `ErrImagePull`, `CreateContainerConfigError`, …"""
    return _status(pod, "Pending", _all_in({"waiting": {"reason": reason, "message": message}}, pod), [])


def _status(
    pod: Object, phase: str, statuses: list[Object], init_statuses: list[Object], *, ready: bool = False
) -> Object:
    return {
        "phase": phase,
        "startTime": pod.get("status", {}).get("startTime", now()),
        "conditions": _conditions(ready=ready),
        "containerStatuses": statuses,
        "initContainerStatuses": init_statuses,
    }


def _all_in(state: Object, pod: Object, *, ready: bool = False) -> list[Object]:
    """Returns the statuses of all containers in this state."""
    return [_container(container, state, ready=ready) for container in pod["spec"]["containers"]]


def _container(container: Object, state: Object, *, ready: bool) -> Object:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": container["image"],
        "ready": ready,
        "started": ready,
        "restartCount": 0,
        "state": state,
    }


def _past_of(status: Object) -> Object:
    """Returns the fields of a container's status that its next end does not change."""
    return {key: status[key] for key in ("restartCount", "lastState") if key in status}


def _terminated(name: str, outcome: Outcome, started: str, finished: str) -> Object:
    concerned = outcome.container in ("", name)
    code = outcome.exit_code if concerned else 0
    state = {"exitCode": code, "startedAt": started, "finishedAt": finished}
    state["reason"] = (concerned and outcome.reason) or ("Error" if code else "Completed")
    return state | ({"message": outcome.message} if concerned and outcome.message else {})


def _init_statuses(pod: Object, moment: str, native: Object) -> list[Object]:
    """Returns the statuses of init containers that have succeeded; `native` is the state of native sidecars."""
    return [
        _container(container, native if container.get("restartPolicy") == "Always" else _succeeded(moment), ready=True)
        for container in pod["spec"].get("initContainers", ())
    ]


def _succeeded(moment: str) -> Object:
    return {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": moment, "finishedAt": moment}}


def _conditions(*, ready: bool) -> list[Object]:
    moment = now()
    values = {"PodScheduled": True, "Initialized": True, "ContainersReady": ready, "Ready": ready}
    return [
        {"type": kind, "status": "True" if value else "False", "lastTransitionTime": moment}
        for kind, value in values.items()
    ]
