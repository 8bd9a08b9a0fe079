"""The kinds of faults of `make chaos`, and the requests that each kind affects. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from chaos import requests
from chaos.requests import RequestFault, Targets
from localcluster.faultproxy import Late, LoseAnswer, LoseRequest, Reply

# A request of the controller times out after 30 s, and one for its Lease after 2 s.
_LATEST_SECONDS = 4.0

_CUSTOM = r"/apis/(kubeflow\.org|scheduling\.kubeflow\.org)/"
_CHILDREN = r"/(jobs|services|configmaps|secrets|gangs)"
_TARGETS: Targets = {
    "creates": ("POST", re.compile(rf"{_CHILDREN}(\?|$)")),
    "deletes": ("DELETE", re.compile(r"/namespaces/")),
    "patches": ("PATCH", re.compile(r"/(tfjobs|trainjobs|jobs|gangs|services)/[^/?]+(\?|$)")),
    "statuses": ("PATCH", re.compile(r"/(tfjobs|trainjobs)/[^/]+/status(\?|$)")),
    "puts": ("PUT", re.compile(rf"{_CUSTOM}|/batch/")),
    "reads": ("GET", re.compile(r"/namespaces/[^/]+/(tfjobs|trainjobs|jobs|services|pods|gangs)/[^/?]+$")),
    "lists": ("GET", re.compile(r"^(?!.*watch=).*(\?)")),
    "watches": ("GET", re.compile(r"[?&]watch=")),
    "leases": ("PUT", re.compile(r"/leases/")),
    "events": ("POST", re.compile(r"/events(\?|$)")),
}
_CODES = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}
# The status codes that are injected into each kind of request, with equal probability.
_ANSWERS: Mapping[str, tuple[int, ...]] = {
    "creates": (409, 429, 500, 503),
    "deletes": (409, 429, 500),
    "patches": (409, 429, 500),
    "statuses": (409, 429, 500, 503),
    "puts": (409, 429, 500),
    "reads": (429, 500),
    "lists": (410, 429, 500),
    "watches": (410, 429, 500),
    "leases": (409, 429, 500),
    "events": (429, 500),
}


def _refusal(target: str, code: int) -> RequestFault:
    reply = Reply(code, _CODES[code], retry_after_seconds=1 if code == 429 else None)
    return RequestFault(target, lambda _: reply)


def _request_faults() -> dict[str, RequestFault]:
    found = dict(requests.REQUEST_FAULTS)
    for target, codes in _ANSWERS.items():
        for code in codes:
            found[f"{target} {code}"] = _refusal(target, code)
        found[f"{target} lost"] = RequestFault(target, lambda _: LoseRequest())
        found[f"{target} unanswered"] = RequestFault(target, lambda _: LoseAnswer())
        found[f"{target} late"] = RequestFault(target, lambda chance: Late(0.2 + (_LATEST_SECONDS - 0.2) * chance))
    return found


TARGETS: Targets = {**requests.TARGETS, **_TARGETS}
REQUEST_FAULTS: Mapping[str, RequestFault] = _request_faults()
# Relative frequency of the requests of a target: writes are affected more often than reads.
_WEIGHTS = {"creates": 4, "statuses": 4, "deletes": 3, "patches": 3, "watches": 3}

# These faults leave no leader for some seconds, or restart a server.
ELECTED = ("controller killed", "controller stopped", "controller frozen", "both controllers killed", "lease stolen")
# Relative frequency of each kind.
FAULTS: Mapping[str, int] = {
    **{
        kind: _WEIGHTS.get(fault.target, 1 if fault.target in _ANSWERS else 2) for kind, fault in REQUEST_FAULTS.items()
    },
    "controller killed": 4,
    "both controllers killed": 1,
    "controller stopped": 3,
    "controller frozen": 2,
    "lease stolen": 2,
    "clock jump": 8,
    "disk full": 6,
    "connections cut": 8,
    "connections half-open": 4,
    "connections refused": 3,
    "answers slow": 4,
    "gang scheduler killed": 5,
    "gang kube-scheduler killed": 2,
    "gang scheduler frozen": 2,
    "gang lease stolen": 1,
    "kube-scheduler killed": 2,
    "kube-controller-manager killed": 3,
    "kube-apiserver killed": 2,
    "etcd killed": 2,
    "foreign pods": 4,
    "node cordoned": 3,
    "node deleted": 3,
    "job suspended": 8,
    "job scaled": 10,
    "job deleted in the background": 4,
    "job deleted in the foreground": 4,
    "job deleted, children orphaned": 3,
    "pod deleted": 10,
    "pod deleted at once": 6,
    "child Job deleted": 5,
    "Service deleted": 4,
    "Gang deleted": 3,
}
