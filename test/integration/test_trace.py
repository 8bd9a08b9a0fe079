"""One id connects the event that caused a sync, the log, the API server's audit log, and the Event.

The audit log also counts what a gang costs.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.cluster import Cluster, new_namespace, own_plane
from helpers.controller import Jobs
from helpers.controllerprocess import WORKING, controller_process
from helpers.gangowner import Owner
from helpers.gangscheduler import running_gang_scheduler, running_schedulers
from helpers.manifests import master, tfjob, workers
from helpers.poll import eventually
from localcluster.auditlog import audit_log, json_lines
from localcluster.crds import install_crds
from localcluster.fakekubelet import make_node
from localcluster.programs import Options
from tfjob_controller.api.gang import GANGS
from tfjob_controller.kube.trace import RECONCILE_ID_ANNOTATION

pytestmark = pytest.mark.cluster

WRITES = {"create", "patch", "update", "delete"}
AUDIT_ID = re.compile("([0-9a-f]{32})-([0-9]+)")

Object = dict[str, Any]


@pytest.fixture(scope="module")
def audited() -> Iterator[tuple[Cluster, Path]]:
    """A control plane with an audit log, and this tree's kinds."""
    with audit_log() as (log, flags), own_plane("audited", Options(apiserver_flags=flags)) as cluster:
        install_crds(cluster.api)
        yield cluster, log


def creations_told(jobs: Jobs) -> list[Object]:
    """The Job controller of Kubernetes has events of the same reason."""
    return [
        each
        for each in jobs.events()
        if each["reason"] == "SuccessfulCreate" and each["reportingController"] == "tfjob-controller"
    ]


def test_a_reconcile_id_finds_the_cause_the_requests_and_the_events(
    audited: tuple[Cluster, Path], tmp_path: Path
) -> None:
    cluster, audit = audited
    namespace, log = new_namespace(cluster.api), tmp_path / "log"
    jobs = Jobs(cluster.api, namespace)
    with controller_process(cluster.kubeconfig, namespace, log, "--log-level=debug", "--qps=0") as controller:
        controller.await_log(WORKING)
        jobs.submit(tfjob(master(), workers(3)))
        eventually(lambda: len(jobs.children("jobs")) == 4)
        eventually(lambda: creations_told(jobs))
        # The server writes an audit event once it has answered.
        eventually(lambda: len(creates_of_jobs(audit, namespace)) == 4)
    lines = [line for line in json_lines(log) if line.get("key") == f"{namespace}/example-job"]

    created = creates_of_jobs(audit, namespace)
    reconcile_ids = {reconcile_id_of(entry) for entry in created}
    assert len(reconcile_ids) == 1, "the fan-out's threads write for one sync"
    (reconcile_id,) = reconcile_ids
    of_sync = [line for line in lines if line.get("reconcile_id") == reconcile_id]
    begin = next(line for line in of_sync if line["event"] == "sync started")
    assert any(cause.startswith("ADDED TFJob example-job resourceVersion=") for cause in begin["triggers"])
    requests = {line["audit_id"]: line for line in of_sync if line["event"] == "request"}
    for entry in created:
        line = requests[entry["auditID"]]
        assert (line["verb"], line["path"], line["code"]) == ("POST", entry["requestURI"], "201")
        assert line["duration_seconds"] > 0
    told = {each["metadata"]["annotations"][RECONCILE_ID_ANNOTATION] for each in creations_told(jobs)}
    assert told == {reconcile_id}


def test_the_gang_schedulers_writes_have_ids_too(audited: tuple[Cluster, Path]) -> None:
    cluster, audit = audited
    namespace = new_namespace(cluster.api)
    path = f"/apis/{GANGS.api_version}/namespaces/{namespace}/gangs"
    meta = {"apiVersion": GANGS.api_version, "kind": GANGS.kind, "metadata": {"name": "one"}}

    def writes() -> list[Object]:
        return [each for each in writes_of_controller(audit, namespace) if each["objectRef"]["resource"] == "gangs"]

    with running_gang_scheduler(cluster.kubeconfig):
        cluster.api.create(path, {**meta, "spec": {"members": [{"name": "worker", "resources": {"cpu": "1"}}]}})
        eventually(lambda: cluster.api.get(f"{path}/one").get("status", {}).get("phase"))
        eventually(writes)
        told = eventually(lambda: Jobs(cluster.api, namespace).events())
    ids = {reconcile_id_of(entry) for entry in writes()}
    assert told[0]["metadata"]["annotations"][RECONCILE_ID_ANNOTATION] in ids


def test_a_gang_of_n_bare_pods_costs_n_pods_n_bindings_the_gang_and_its_two_statuses(
    audited: tuple[Cluster, Path],
) -> None:
    cluster, audit = audited
    namespace, names, count = new_namespace(cluster.api), ("one", "two"), 4

    def writes() -> Counter[str]:
        return Counter(
            "/".join(filter(None, (entry["verb"], reference["resource"], reference.get("subresource"))))
            for entry in json_lines(audit)
            if (reference := entry.get("objectRef") or {}).get("namespace") == namespace
            and entry["verb"] in WRITES
            and reference["resource"] in ("gangs", "pods")
        )

    make_node(cluster.api, "node", {"cpu": "32", "memory": "8Gi", "pods": "40"})
    owner = Owner(cluster.api, namespace)
    with running_schedulers(cluster):
        for name in names:
            owner.submit(name, worker=count)
        for name in names:
            owner.await_phase(name, "Admitted")
            owner.make_pods(name)
        for name in names:
            owner.await_phase(name, "Bound")
        expected = {"create/gangs": 1, "create/pods": count, "create/pods/binding": count, "patch/gangs/status": 2}
        eventually(lambda: sum(writes().values()) >= len(names) * (2 * count + 3))
        # Longer than any program needs for further writes.
        time.sleep(2.0)
        assert writes() == {kind: len(names) * number for kind, number in expected.items()}


def writes_of_controller(audit: Path, namespace: str) -> list[Object]:
    return [
        entry
        for entry in json_lines(audit)
        if entry["verb"] in WRITES
        and entry["userAgent"].startswith("tfjob-controller/")
        and (entry.get("objectRef") or {}).get("namespace") == namespace
    ]


def creates_of_jobs(audit: Path, namespace: str) -> list[Object]:
    return [
        entry
        for entry in writes_of_controller(audit, namespace)
        if entry["verb"] == "create" and entry["objectRef"]["resource"] == "jobs"
    ]


def reconcile_id_of(entry: Object) -> str:
    match = AUDIT_ID.fullmatch(entry["auditID"])
    assert match is not None, entry["auditID"]
    return match[1]
