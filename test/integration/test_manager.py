"""How the controller starts and stops on a real API server: missing CRDs and rights, signals, the lease."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from helpers.cluster import Cluster, delete_service_account, new_service_account, own_plane, write_kubeconfig
from helpers.controller import Jobs, running_controller
from helpers.kubectl import Kubectl
from helpers.manifests import container, master, pod_template, tfjob, workers
from helpers.poll import PATIENCE_SECONDS, eventually
from localcluster import stack
from localcluster.api import Api
from localcluster.crds import install_crds
from localcluster.faultproxy import FaultProxy, Reply
from localcluster.programs import Options

pytestmark = pytest.mark.cluster

# Ends what hangs. What is promised of a stop is 10 s.
END_SECONDS = 60.0


def ready(port: int) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=PATIENCE_SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def exposition(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_SECONDS) as answer:
        return str(answer.read().decode())


def page(port: int, path: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_SECONDS) as answer:
        shown: dict[str, Any] = json.load(answer)
    return shown


@contextmanager
def process(cluster: Cluster, namespace: str, log: Path, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    """`tfjob-controller run` as a program of its own; its log goes to a file."""
    command = [
        sys.executable,
        "-m",
        "tfjob_controller",
        "run",
        f"--kubeconfig={cluster.kubeconfig}",
        f"--namespace={namespace}",
        "--metrics-bind-address=0",
        "--health-probe-bind-address=0",
        *flags,
    ]
    with log.open("wb") as stream, subprocess.Popen(command, stderr=stream) as started:
        try:
            yield started
        finally:
            started.kill()


def await_log(log: Path, words: str, count: int = 1) -> None:
    eventually(lambda: log.read_text().count(words) >= count)


def test_a_missing_right_is_named_and_waited_for(
    control_plane: Cluster, kubectl: Kubectl, api: Api, namespace: str, tmp_path: Path
) -> None:
    read = ["get", "list", "watch"]
    rules = [
        {"apiGroups": ["kubeflow.org"], "resources": ["tfjobs"], "verbs": read},
        {"apiGroups": [""], "resources": ["pods", "configmaps"], "verbs": read},
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": read},
    ]
    token = new_service_account(api, namespace, "limited", rules)
    kubeconfig = write_kubeconfig(control_plane, token, tmp_path / "kubeconfig")
    with running_controller(kubeconfig, namespace, ready=False) as manager:
        port = manager.servers[0].port

        def is_named() -> bool:
            words = ready(port)[1]
            named = any(f'cannot {verb} resource "services"' in words for verb in ("list", "watch"))
            return named and "services not synced" in words and "pods" not in words

        eventually(is_named)
    delete_service_account(api, namespace, "limited")


def test_a_missing_crd_is_named(own_control_plane: Cluster) -> None:
    with running_controller(own_control_plane.kubeconfig, "default", ready=False) as manager:
        port = manager.servers[0].port
        eventually(lambda: "check that its CRD is installed:" in ready(port)[1])
        status, words = ready(port)
        assert status == 503
        assert words.startswith("not ready: tfjobs")
        install_crds(own_control_plane.api)
        eventually(lambda: ready(port) == (200, "ok\n"))


@pytest.mark.kubernetes("1.36", "emulated versions are three at most, and 1.33 is the oldest here")
def test_a_server_that_emulates_an_older_version_gets_what_that_one_knows() -> None:
    """It says `minor: 36`, and drops the restartPolicy of containers, which is newer: its kubelets restart nothing."""
    if stack.existing_kubeconfig() is not None:
        pytest.skip("needs a control plane with flags of its own: unset KUBECONFIG")
    flags = ("--emulated-version=1.33",)
    with own_plane("emulating", Options(apiserver_flags=flags)) as cluster:
        install_crds(cluster.api)
        with running_controller(cluster.kubeconfig, "default") as manager:
            jobs = Jobs(cluster.api, "default")
            jobs.submit(tfjob(master()))
            (child,) = eventually(lambda: [*jobs.children("jobs").values()], END_SECONDS)
            informers = manager.caches.informers.statistics().values()
    pod = child["spec"]["template"]["spec"]
    assert (pod["restartPolicy"], child["spec"]["backoffLimit"]) == ("Never", 0)
    assert not {"restartPolicy", "restartPolicyRules"} & pod["containers"][0].keys()
    # 1.33 has no streaming lists either. That is no failure.
    assert {each.reflector.streaming_lists for each in informers} == {0}
    assert {each.reflector.failures for each in informers} == {0}


def test_a_server_without_gangs_of_its_own_is_told_what_it_lacks(control_plane: Cluster, kubectl: Kubectl) -> None:
    """They are off by default in Kubernetes 1.36, and unknown to older versions."""
    options = {"gang_backend": "kubernetes", "ready": False}
    with running_controller(control_plane.kubeconfig, "default", **options) as manager:
        port = manager.servers[0].port
        eventually(lambda: "podgroups.scheduling.k8s.io" in ready(port)[1])
        status, words = ready(port)
        assert status == 503
        (line,) = [line for line in words.splitlines() if "podgroups" in line]
        assert "does not serve PodGroup scheduling.k8s.io/v1alpha2; that needs Kubernetes 1.36 with the " in line
        assert "--runtime-config=scheduling.k8s.io/v1alpha2=true" in line


def test_an_api_server_that_is_not_there_yet_is_waited_for(
    control_plane: Cluster, kubectl: Kubectl, namespace: str, tmp_path: Path
) -> None:
    with FaultProxy(control_plane.own.server) as proxy:
        proxy.next(Reply(503), times=3)
        kubeconfig = proxy.kubeconfig(tmp_path, control_plane.own.token)
        with running_controller(kubeconfig, namespace, ready=False) as manager:
            eventually(lambda: "version is not known" in ready(manager.servers[0].port)[1])
            eventually(lambda: ready(manager.servers[0].port)[0] == 200)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_in_order_and_in_time(
    control_plane: Cluster, kubectl: Kubectl, namespace: str, tmp_path: Path, number: signal.Signals
) -> None:
    log = tmp_path / "log"
    with process(control_plane, namespace, log) as controller:
        await_log(log, '"event": "workers started"')
        began = time.monotonic()
        controller.send_signal(number)
        assert controller.wait(END_SECONDS) == 0
        assert time.monotonic() - began < 10
    await_log(log, '"event": "stopped"')


def test_an_instance_that_waits_to_lead_keeps_no_list_of_jobs_that_come_and_go_and_counts_none(
    control_plane: Cluster, kubectl: Kubectl, api: Api, namespace: str
) -> None:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    api.create(
        leases,
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "tfjob-controller"},
            "spec": {"holderIdentity": "another", "leaseDurationSeconds": 3600},
        },
    )
    jobs = Jobs(api, namespace)
    options = {"leader_elect": True, "leader_elect_lease_namespace": namespace}
    with running_controller(control_plane.kubeconfig, namespace, **options) as standby:
        for number in range(5):
            jobs.submit(tfjob(master(), name=f"job-{number}"))
            eventually(lambda: len(standby.jobs["tfjob"].jobs.store) == 1)
            jobs.delete(f"job-{number}")
            eventually(lambda: len(standby.jobs["tfjob"].jobs.store) == 0)
        jobs.submit(tfjob(master(), name="stays"))
        eventually(lambda: len(standby.jobs["tfjob"].jobs.store) == 1)
        assert page(standby.servers[0].port, "/debug/queue")["queued"] == 0
        assert "\ntfjob_jobs{" not in exposition(standby.servers[0].port)
        api.patch(f"{leases}/tfjob-controller", {"spec": {"holderIdentity": ""}})
        jobs.await_phase("Creating", "stays")
        assert "\ntfjob_jobs{" in exposition(standby.servers[0].port)


def test_a_lost_lease_ends_the_process_at_once_with_a_code(
    control_plane: Cluster, kubectl: Kubectl, api: Api, namespace: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    flags = ("--leader-elect", f"--leader-elect-lease-namespace={namespace}", "--leader-elect-retry-period=500ms")
    with process(control_plane, namespace, log, *flags) as controller:
        await_log(log, '"event": "workers started"')
        path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/tfjob-controller"
        api.patch(path, {"spec": {"holderIdentity": "somebody-else"}})
        assert controller.wait(END_SECONDS) == 1
    await_log(log, "the lease is lost")


def test_of_jobs_that_were_deleted_nothing_is_remembered(
    control_plane: Cluster, kubectl: Kubectl, api: Api, namespace: str
) -> None:
    jobs = Jobs(api, namespace)
    nowhere = pod_template(container(), nodeSelector={"no": "such-node"})
    weeks = {"activeDeadlineSeconds": 1209600, "ttlSecondsAfterFinished": 1209600}
    with running_controller(control_plane.kubeconfig, namespace) as manager:
        names = [f"job-{number}" for number in range(12)]
        for number, name in enumerate(names):
            jobs.submit(tfjob(master(template=nowhere), workers(1, template=nowhere), name=name, **weeks))
            if number % 3 == 0:
                jobs.change({"spec": {"suspend": True}}, name)
            if number % 4 == 0:  # in the middle of its first syncs
                jobs.delete(name)
        kept = [name for number, name in enumerate(names) if number % 4]
        eventually(lambda: all(jobs.phase(name) == "Creating" for name in kept))
        for name in kept:
            jobs.delete(name)
        port = manager.servers[0].port
        rest = {"queued": 0, "processing": 0, "dirty_while_processing": 0, "delayed": 0, "is_shutting_down": False}
        # Their children are the garbage collector's, which takes its time.
        eventually(lambda: page(port, "/debug/caches")["tfjobs"]["objects"] == 0)
        eventually(lambda: page(port, "/debug/queue") == rest)
        assert page(port, "/debug/syncs") == {"jobs_remembered": 0}


def test_no_secret_is_ever_logged(control_plane: Cluster, kubectl: Kubectl, namespace: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with process(control_plane, namespace, log, "--log-level=debug") as controller:
        await_log(log, '"event": "workers started"')
        controller.send_signal(signal.SIGTERM)
        controller.wait(END_SECONDS)
    assert control_plane.own.token not in log.read_text()
