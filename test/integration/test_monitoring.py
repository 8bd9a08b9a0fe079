"""Alerts and dashboards on a real Prometheus that scrapes real programs at work: every query runs there.

Everything is real but the kubelet, the holder of the gang scheduler's lease, and the discovery of pods, which Debian's
Prometheus lacks: it gets the targets that the discovery would find for the Deployments' pods.
"""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml

from helpers.cluster import Cluster, clear_jobs, clear_nodes, delete_namespace, new_namespace
from helpers.controller import Jobs, running_controller
from helpers.gangowner import SMALL
from helpers.gangscheduler import extender_url, hold_lease, running_gang_scheduler
from helpers.kubectl import Kubectl
from helpers.monitoringfiles import FILES, RULES
from helpers.monitoringqueries import ALL, await_every_panel, await_every_series
from helpers.playground import job_name_of
from helpers.poll import eventually
from helpers.prometheusserver import Prometheus, discovered, running_prometheus, tools
from helpers.renderings import named, render_overlay
from helpers.trainmanifests import trainjob
from localcluster.api import Api
from localcluster.fakekubelet import FakeKubelet, make_node
from localcluster.gangscheduler import GangScheduler
from localcluster.podstatus import Outcome
from tfjob_controller.api.trainjob.types import TRAINJOBS

pytestmark = pytest.mark.cluster

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "metrics.md"
NODES = ("watched-a", "watched-b")
LEASE = "gang-scheduler"
STAYING = ("holder", "trains-on")
# Two samples and some to spare: what `rate` and `increase` need.
SCRAPES = 3
PROGRAMS = 3
# No job prints metrics here, and nothing is reserved once all of a gang is bound.
MAY_BE_EMPTY = {"tfjob_training_metric_jobs", "gang_reserved_amount"}

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Watched:
    """What is scraped, and by whom. Addresses by what the program is."""

    prometheus: Prometheus
    addresses: Mapping[str, str]


@pytest.fixture(scope="module")
def watched(gang_plane: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Two controllers of which one leads, a gang scheduler, jobs that end, run and wait; all seen by Prometheus."""
    tools()
    folder = tmp_path_factory.mktemp("prometheus")
    clear_jobs(gang_plane.api)
    clear_nodes(gang_plane.api)
    namespace = new_namespace(gang_plane.api, "watched")
    for name in NODES:
        make_node(gang_plane.api, name, SMALL)
    try:
        with programs(gang_plane, namespace) as addresses:
            kubectl = Kubectl(gang_plane.kubeconfig, folder / "kubectl")
            config = configuration(kubectl, folder, addresses)
            with running_prometheus(config, folder) as prometheus:
                eventually(lambda: scrapes(prometheus) >= 1)
                work(Jobs(gang_plane.api, namespace), Jobs(gang_plane.api, namespace, TRAINJOBS))
                before = scrapes(prometheus)
                eventually(lambda: scrapes(prometheus) >= before + SCRAPES)
                yield Watched(prometheus, addresses)
    finally:
        delete_namespace(gang_plane.api, namespace)
        for name in NODES:
            gang_plane.api.delete(f"/api/v1/nodes/{name}")


@contextlib.contextmanager
def programs(cluster: Cluster, namespace: str) -> Iterator[Mapping[str, str]]:
    """Where their metrics are."""
    # As long as on no machine the leader is too slow to renew it.
    long = {"leader_elect_lease_duration": 300.0, "leader_elect_renew_deadline": 200.0}
    elected: dict[str, Any] = {"leader_elect": True, "leader_elect_lease_namespace": namespace, **long}
    with (
        FakeKubelet(
            Api.from_kubeconfig(cluster.kubeconfig),
            namespace=namespace,
            nodes=NODES,
            resources=SMALL,
            behaviour=ends_unless_it_stays,
        ),
        running_gang_scheduler(
            cluster.kubeconfig, leader_lease_namespace=namespace, leader_lease_name=LEASE
        ) as scheduler,
        renewed(cluster.api, namespace),
        GangScheduler(cluster.own, extender_url(scheduler)),
        running_controller(cluster.kubeconfig, namespace, **elected) as one,
        running_controller(cluster.kubeconfig, namespace, **elected) as other,
    ):
        found = {"controller-a": one.servers, "controller-b": other.servers, "gang-scheduler": scheduler.servers}
        yield {name: f"127.0.0.1:{servers[0].port}" for name, servers in found.items()}


@contextlib.contextmanager
def renewed(api: Api, namespace: str) -> Iterator[None]:
    """The gang scheduler's lease, as the kube-scheduler beside it would hold it."""
    stop = threading.Event()

    def renew() -> None:
        while not stop.wait(1.0):
            hold_lease(api, namespace, LEASE, socket.gethostname())

    thread = threading.Thread(target=renew, name="lease")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def ends_unless_it_stays(pod: Object, attempt: int) -> Outcome:
    return Outcome() if job_name_of(pod["metadata"]["labels"]) in STAYING else Outcome(after_seconds=0.1)


def configuration(kubectl: Kubectl, folder: Path, addresses: Mapping[str, str]) -> Object:
    """The shipped one, which looks every two seconds, and is told of the shipped Deployments' pods."""
    config: Object = yaml.safe_load((FILES / "prometheus" / "prometheus.yaml").read_text())
    (folder / "rules.yaml").write_text((FILES / "prometheus" / "rules.yaml").read_text())
    config["global"] = {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "1s"}
    (scrape,) = config["scrape_configs"]
    (discovery,) = scrape.pop("kubernetes_sd_configs")
    assert discovery == {"role": "pod", "namespaces": {"names": ["tfjob-system"]}}
    rendered = render_overlay(kubectl, "gang-scheduling")
    of = {pod: named(rendered, "Deployment", _deployment(pod)) for pod in addresses}
    found = [target for pod, address in addresses.items() for target in discovered(of[pod], pod, address)]
    scrape["static_configs"] = found
    return config


def _deployment(pod: str) -> str:
    return "gang-scheduler" if pod == "gang-scheduler" else "tfjob-controller"


def scrapes(prometheus: Prometheus) -> int:
    """Good ones of the target that has fewest."""
    counts = [int(each["value"][1]) for each in prometheus.query("sum_over_time(up[1h])")]
    return min(counts) if len(counts) == PROGRAMS else 0


def work(jobs: Jobs, trainjobs: Jobs) -> None:
    """A gang that ends, one that runs, one that waits for it; a TrainJob that ends, and one that runs and saves."""
    jobs.submit(gang("ends", 2))
    trainjobs.submit(trainjob("trains", 1))
    trainjobs.submit(trainjob("trains-on", 1, checkpoint={"storageUri": "s3://bucket/job"}))
    jobs.await_phase("Done", "ends", 60)
    jobs.submit(gang("holder", 5))
    jobs.await_phase("Running", "holder", 60)
    jobs.submit(gang("waits", 5))
    trainjobs.await_phase("Done", "trains", 60)
    trainjobs.await_phase("Running", "trains-on", 60)
    eventually(lambda: "cpu" in jobs.status("waits").get("reason", ""))


def gang(name: str, worker_count: int) -> Object:
    """A master and workers of one CPU each, on nodes that take eight."""
    container = {"name": "tensorflow", "image": "localhost/none", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"containers": [container]}}
    specs = [
        {"tfReplicaType": "MASTER", "replicas": 1, "template": template},
        {"tfReplicaType": "WORKER", "replicas": worker_count, "template": template},
    ]
    metadata = {"name": name}
    spec = {"replicaSpecs": specs, "gang": {"enabled": True}}
    return {"apiVersion": "kubeflow.org/v1alpha1", "kind": "TFJob", "metadata": metadata, "spec": spec}


def test_every_replica_is_scraped_and_no_other_port_of_its_pod(watched: Watched) -> None:
    eventually(lambda: {each["health"] for each in watched.prometheus.targets()} == {"up"})
    found = {each["labels"]["pod"]: each for each in watched.prometheus.targets()}
    assert {pod: each["scrapeUrl"] for pod, each in found.items()} == {
        pod: f"http://{address}/metrics" for pod, address in watched.addresses.items()
    }
    jobs = {pod: (each["labels"]["job"], each["labels"]["container"]) for pod, each in found.items()}
    assert jobs["controller-a"] == jobs["controller-b"] == ("tfjob-controller", "manager")
    assert jobs["gang-scheduler"] == ("gang-scheduler", "extender")


def test_the_reference_lists_what_each_program_shows_and_nothing_else(watched: Watched) -> None:
    of_run, of_extender, of_both = (
        _listed(part) for part in re.split(r"^## (?!Metrics)", REFERENCE.read_text(), flags=re.MULTILINE)[1:]
    )
    shown = {pod: _shown(watched.prometheus, pod) for pod in ("controller-a", "gang-scheduler")}
    assert shown["controller-a"] == of_run | of_both
    assert shown["gang-scheduler"] - of_run - of_both == of_extender
    assert of_extender | of_both <= shown["gang-scheduler"]
    assert of_run | of_extender >= MAY_BE_EMPTY


def _listed(part: str) -> set[str]:
    return {name.removesuffix("_total") for name in re.findall(r"^\| `([^`]+)` \|", part, re.MULTILINE)}


def _shown(prometheus: Prometheus, pod: str) -> set[str]:
    found = prometheus.get("targets/metadata", match_target=f'{{pod="{pod}"}}')
    return {each["metric"].removesuffix("_total") for each in found}


def test_every_alert_is_evaluated_and_none_fires_where_all_is_well(watched: Watched) -> None:
    names = sorted(rule["alert"] for rule in RULES)
    eventually(lambda: {rule["health"] for rule in watched.prometheus.rules()}.isdisjoint({"unknown"}))
    rules = watched.prometheus.rules()
    assert sorted(rule["name"] for rule in rules) == names
    assert [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] != "ok"] == []
    assert [rule["name"] for rule in rules if rule["state"] == "firing"] == []


def test_every_query_is_valid_and_every_series_that_it_names_exists(watched: Watched) -> None:
    assert len(ALL) > 100
    await_every_series(watched.prometheus, MAY_BE_EMPTY)


def test_every_panel_shows_something_with_the_labels_of_its_legend(watched: Watched) -> None:
    await_every_panel(watched.prometheus, MAY_BE_EMPTY)


def test_a_gang_that_waits_for_another_is_shown_as_one_that_does_not_fit(watched: Watched) -> None:
    def fits() -> dict[str, str]:
        found = watched.prometheus.query("gang_queue_length")
        return {each["metric"]["fits"]: each["value"][1] for each in found}

    eventually(lambda: fits() == {"yes": "0", "held": "0", "no": "1", "unknown": "0"})


def test_of_two_controllers_one_leads(watched: Watched) -> None:
    def leaders() -> dict[str, str]:
        found = watched.prometheus.query("sum by (job) (leader_election_master_status)")
        return {each["metric"]["job"]: each["value"][1] for each in found}

    eventually(lambda: leaders() == {"tfjob-controller": "1", "gang-scheduler": "1"})


@pytest.mark.parametrize("pod", ["controller-a", "gang-scheduler"])
def test_promtool_has_nothing_to_criticise_in_what_is_shown(pod: str, watched: Watched) -> None:
    body = urllib3.request("GET", f"http://{watched.addresses[pod]}/metrics", timeout=30.0).data
    done = subprocess.run(
        [tools().promtool, "check", "metrics"], input=body, capture_output=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")
