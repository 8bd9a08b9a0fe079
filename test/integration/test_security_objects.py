"""Hostile objects that the API server accepts, or has accepted with older CRDs: they affect only their author.

On a control plane of its own, since other tests' tools could not read some of these objects either.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from helpers import plugin
from helpers.cluster import Cluster
from helpers.controller import Jobs, running_controller
from helpers.manifests import container, master, pod_template, tfjob
from helpers.opencrds import install_open_crds
from helpers.poll import eventually
from helpers.trainmanifests import trainjob
from tfjob_controller.api.trainjob.types import TRAINJOBS
from tfjob_controller.kube import nesting

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

NAMESPACE = "default"
# The API server refuses what is nested more than 10,000 levels deep.
LEVELS = 5_000
# etcd takes 1.5 MB, and the API server keeps a second copy of field names in managedFields.
HUGE_BYTES = 1_200_000
TOO_DEEP = ("Failed", f"invalid job spec: nested more than {nesting.MAX_LEVELS} levels deep")
HOLE = "a hole in the manifest"


def submit_deep(jobs: Jobs, manifest: Object) -> None:
    """With `HOLE` filled by a value of that many levels."""
    deep = b'{"deeper":' * LEVELS + b"1" + b"}" * LEVELS
    body = json.dumps(manifest).encode().replace(json.dumps(HOLE).encode(), deep)
    # The server's answer is the object, which the tests' own client cannot read.
    with suppress(RecursionError):
        jobs.api.create(jobs.path, body)


def deep_template() -> Object:
    return pod_template(container(), x=HOLE)


def submit_all(jobs: Jobs, train: Jobs) -> None:
    submit_deep(jobs, tfjob(master(template=deep_template()), name="deep"))
    overrides = [{"targetJobs": [{"name": "node"}], "volumes": [{"name": "deep", "emptyDir": HOLE}]}]
    submit_deep(train, trainjob("deep-train", podSpecOverrides=overrides))
    huge = pod_template(container(env=[{"name": "HUGE", "value": "x" * HUGE_BYTES}]))
    jobs.submit(tfjob(master(template=huge), name="huge", suspend=True))


def write_a_huge_status(jobs: Jobs, name: str) -> None:
    """As nobody may who has the roles that come along: admins of the whole cluster can do what they want."""
    condition = {"status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "Huge", "message": "x" * 40}
    conditions = [{"type": f"Strange{number}", **condition} for number in range(2_000)]
    status = {"phase": "Strange", "conditions": conditions}
    jobs.api.request(
        "PATCH", f"{jobs.path}/{name}/status", {"status": status}, content_type="application/merge-patch+json"
    )


def test_objects_nested_too_deep_or_huge_stop_nobody_else(
    own_control_plane: Cluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """All in one test: a control plane of its own costs seconds."""
    # Those of this tree prune what is nested deeper than fields of pods are.
    install_open_crds(own_control_plane.api)
    jobs, train = Jobs(own_control_plane.api, NAMESPACE), Jobs(own_control_plane.api, NAMESPACE, TRAINJOBS)
    run = plugin.runner(capfd, own_control_plane.kubeconfig, NAMESPACE)
    submit_all(jobs, train)

    def state(name: str) -> tuple[str, str]:
        """As the plugin sees it, since the tests' own tools cannot read all of them."""
        shown = json.loads(run("describe", name, "-o", "json")[1])
        return shown["phase"], shown.get("reason", "")

    with running_controller(own_control_plane.kubeconfig, NAMESPACE) as manager:
        jobs.submit(tfjob(master(), name="in-order"))
        eventually(lambda: jobs.phase("in-order") == "Creating")
        eventually(lambda: jobs.phase("huge") != "")
        for each in ("tfjob/deep", "trainjob/deep-train"):
            eventually(lambda: state(each) == TOO_DEEP)  # noqa: B023 -- called now
        write_a_huge_status(jobs, "in-order")
        eventually(lambda: jobs.phase("in-order") == "Creating")
        informers = manager.caches.informers.statistics()
    assert [each.thread_restarts for each in informers.values()] == [0] * len(informers)
    for arguments in (("describe", "deep", "-o", "yaml"), ("list",)):
        assert run(*arguments)[0] == 0
