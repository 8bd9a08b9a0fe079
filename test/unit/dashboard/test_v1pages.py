"""Jobs of `kubeflow.org/v1` on the pages: which kinds are followed, what is shown of a job, and its buttons."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from starlette.testclient import TestClient

from helpers.answering import Lines, Request
from helpers.fakeclock import FakeClock
from helpers.memoryapi import MemoryApi
from helpers.poll import eventually
from helpers.v1manifests import v1_manifest
from tfjob_controller.api.gang import GANGS
from tfjob_controller.api.kubeflowv1.types import V1_RESOURCES
from tfjob_controller.dashboard.app import create_app
from tfjob_controller.dashboard.feeds import JobFeed, Notifier, WatchedJob
from tfjob_controller.dashboard.pages.login import Logins, OneTimeLink
from tfjob_controller.dashboard.users import User
from tfjob_controller.kube.errors import ApiError

Object = dict[str, Any]
HOST = "127.0.0.1:8001"
V1 = "/apis/kubeflow.org/v1"
PAGE = "/jobs/team/pytorchjob/train"
PODS = "/api/v1/namespaces/team/pods"
CREATED = "2026-01-01T00:00:00Z"
OWN = ("tfjobs", "trainjobs")
# More than the time for which answers about kinds and rights are kept, and that between two looks.
A_WHILE = 71.0
_CSRF = re.compile(r'"X-CSRF-Token": "([^"]+)"')


class Cluster(MemoryApi):
    """Serves these kinds of v1, by their plurals, and `own`; the person may not list `hidden`."""

    def __init__(self, *plurals: str, hidden: tuple[str, ...] = (), own: tuple[str, ...] = OWN) -> None:
        super().__init__()
        self.plurals = [*plurals]
        # The CRD of TFJobs has one version.
        self.own = [plural for plural in own if plural not in plurals]
        self.hidden = hidden
        self.is_down = False
        """Requests about kinds and rights fail."""
        self.put("/api/v1/namespaces", {"metadata": {"name": "team"}})

    def answer(self, request: Request) -> bytes:
        if self.is_down and request.path.startswith((V1, "/apis/authorization.k8s.io/")):
            raise ApiError(503, "ServiceUnavailable", "the server is starting")
        if request.path == V1 and self.plurals:
            return json.dumps({"resources": [{"name": plural} for plural in self.plurals]}).encode()
        if request.path.endswith("/selfsubjectaccessreviews"):
            resource = request.body["spec"]["resourceAttributes"]["resource"]
            return json.dumps({"status": {"allowed": resource not in self.hidden}}).encode()
        self._check_kind(request.path)
        return super().answer(request)

    def stream(
        self, path: str, *, query: Mapping[str, str], read_timeout_seconds: float, max_line_bytes: int = 0
    ) -> Lines:
        self._check_kind(path)
        return super().stream(path, query=query, read_timeout_seconds=read_timeout_seconds)

    def _check_kind(self, path: str) -> None:
        version, plural = path.split("/")[3], path.partition("/namespaces/team/")[2].split("/")[0]
        is_served = plural in self.plurals if version == "v1" else plural in self.own
        if path == V1 or (path.startswith("/apis/kubeflow.org/") and not is_served):
            raise ApiError(404, "", "404 page not found")
        if plural in self.hidden:
            raise ApiError(403, "Forbidden", f"{plural} is forbidden")

    def job(self, kind: str, replicas: Object, name: str = "train", **spec: Any) -> str:
        """Creates a job; returns its path."""
        manifest = v1_manifest(kind, replicas, name, **spec)
        path = V1_RESOURCES[kind].path("team")
        self.put(path, {**manifest, "metadata": {"name": name}})
        return f"{path}/{name}"

    def condition(self, path: str, type_: str, message: str = "") -> None:
        condition = {"type": type_, "status": "True", "reason": f"X{type_}", "message": message}
        self.change(path, {"status": {"conditions": [{**condition, "lastTransitionTime": CREATED}]}})

    def pod(self, job: str, replica: str, operator: str, **status: Any) -> None:
        role, _, index = replica.rpartition("-")
        owner = self.objects[job]
        name = owner["metadata"]["name"]
        labels = {"job-name": name, "operator-name": operator, "replica-type": role, "replica-index": index}
        reference = {"kind": owner["kind"], "name": name, "uid": owner["metadata"]["uid"], "controller": True}
        metadata = {
            "name": f"{name}-{replica}",
            "labels": {f"training.kubeflow.org/{key}": value for key, value in labels.items()},
            "ownerReferences": [reference],
        }
        self.put(PODS, {"metadata": metadata, "status": status})


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


class Visit:
    """A person's browser."""

    def __init__(self, browser: TestClient) -> None:
        self._browser = browser

    def page(self, path: str) -> str:
        return self._browser.get(path).text

    def jobs(self, parameters: str = "") -> list[str]:
        """The rows as `kind/name`."""
        links = re.findall(
            r'<th scope="row"><a href="/jobs/team/(\w+/[-\w]+)', self.page(f"/jobs?namespace=team{parameters}")
        )
        return sorted(links)

    def kinds(self, parameters: str = "") -> list[str]:
        """What the filter offers."""
        page = self.page(f"/jobs?namespace=team{parameters}")
        return re.findall(r"<option[^>]*>(\w+job)</option>", page)

    def buttons(self, job: str) -> list[str]:
        """Of suspend and resume the style sheet shows the one that the state allows."""
        main = self.page(job).partition('<div class="actions">')[2].partition('<div id="answer"')[0]
        return re.findall(r">(\w+)</(?:button|a)>", main)

    def press(self, job: str, action: str, **fields: str) -> str:
        uid = re.search(r'name="uid" value="([^"]+)"', self.page(job))
        assert uid is not None
        return self._post(f"{job}/{action}", {"uid": uid[1], **fields})

    def send_form(self, button: str, **fields: str) -> str:
        """Presses a button of the page of a new job."""
        return self._post("/new", {"do": button, **fields})

    def _post(self, path: str, fields: Mapping[str, str]) -> str:
        token = _CSRF.search(self.page("/queue"))
        assert token is not None
        headers = {"X-CSRF-Token": token[1], "HX-Request": "true", "Origin": f"http://{HOST}"}
        return self._browser.post(path, data=fields, headers=headers).text


@contextmanager
def visit(cluster: Cluster, clock: FakeClock) -> Iterator[Visit]:
    user = User("me", cluster, "team", "there", clock)
    app = create_app(Logins(link=OneTimeLink(user, "secret")), [HOST], clock, is_secure=False)
    with TestClient(app, base_url=f"http://{HOST}") as browser:
        browser.cookies.update(browser.get("/login?token=secret", follow_redirects=False).cookies)
        yield Visit(browser)


@pytest.fixture
def cluster() -> Cluster:
    """It serves TFJobs and PyTorchJobs of v1."""
    return Cluster("tfjobs", "pytorchjobs")


@pytest.fixture
def person(cluster: Cluster, clock: FakeClock) -> Iterator[Visit]:
    with visit(cluster, clock) as person:
        yield person


def test_the_list_has_the_kinds_that_the_cluster_serves(cluster: Cluster, person: Visit) -> None:
    cluster.job("TFJob", {"Worker": 1})
    running = cluster.job("PyTorchJob", {"Master": 1, "Worker": 2})
    cluster.condition(running, "Running")
    for replica in ("master-0", "worker-0"):
        cluster.pod(running, replica, "pytorchjob-controller", phase="Running")
    assert person.jobs() == ["pytorchjob/train", "tfjob/train"]
    assert person.jobs("&kind=pytorchjob") == ["pytorchjob/train"]
    assert person.kinds() == ["trainjob", "tfjob", "pytorchjob"]
    page = person.page("/jobs?namespace=team&kind=pytorchjob")
    assert '<tr id="job-uid-1" class="running">' in re.sub('id="job-[^"]+"', 'id="job-uid-1"', page)
    assert "may be out of date" not in page


def test_a_job_whose_pod_has_a_broken_image_needs_somebody(cluster: Cluster, person: Visit) -> None:
    job = cluster.job("PyTorchJob", {"Master": 1, "Worker": 2})
    cluster.condition(job, "Created")
    waits = {"name": "pytorch", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}
    cluster.pod(job, "worker-0", "pytorchjob-controller", phase="Pending", containerStatuses=[waits])

    def is_shown() -> bool:
        page = person.page("/jobs?namespace=team")
        return "Broken image" in page and "worker-0: ImagePullBackOff: no such image" in page

    eventually(is_shown)
    assert person.jobs("&state=needs-you") == ["pytorchjob/train"]


def test_a_cluster_without_v1_has_the_kinds_of_this_project(clock: FakeClock) -> None:
    cluster = Cluster()
    with visit(cluster, clock) as person:
        assert person.jobs() == []
        assert person.kinds() == ["tfjob", "trainjob"]
        assert "may be out of date" not in person.page("/jobs?namespace=team")
    assert [request.path for request in cluster.requests(part=V1)] == [V1]


def test_kinds_of_this_project_that_the_cluster_lacks_are_left_out(clock: FakeClock) -> None:
    cluster = Cluster("tfjobs", own=())
    cluster.job("TFJob", {"Worker": 1})
    with visit(cluster, clock) as person:
        assert person.jobs() == ["tfjob/train"]
        assert person.kinds() == ["tfjob"]
        assert "may be out of date" not in person.page("/jobs?namespace=team")
    with visit(Cluster(own=()), clock) as person:
        page = person.page("/jobs?namespace=team")
        assert "This may be out of date: cannot watch tfjobs.kubeflow.org: the API server does not serve TFJob" in page


def test_kinds_that_the_person_may_not_list_are_left_out(clock: FakeClock) -> None:
    cluster = Cluster("tfjobs", "pytorchjobs", "jaxjobs", hidden=("trainjobs", "jaxjobs"))
    cluster.job("PyTorchJob", {"Worker": 1})
    with visit(cluster, clock) as person:
        assert person.jobs() == ["pytorchjob/train"]
        assert person.kinds() == ["tfjob", "pytorchjob"]
        assert "may be out of date" not in person.page("/jobs?namespace=team")


def test_who_may_list_jobs_of_v1_alone_sees_them(clock: FakeClock) -> None:
    cluster = Cluster("pytorchjobs", hidden=("tfjobs", "trainjobs"))
    cluster.job("PyTorchJob", {"Worker": 1})
    with visit(cluster, clock) as person:
        assert person.jobs() == ["pytorchjob/train"]
    refused = Cluster("pytorchjobs", hidden=("tfjobs", "trainjobs", "pytorchjobs"))
    with visit(refused, clock) as person:
        assert "You may not list jobs in namespace team" in person.page("/jobs?namespace=team")


def test_kinds_and_rights_that_are_added_later_follow_without_a_new_page(clock: FakeClock) -> None:
    cluster = Cluster("jaxjobs", hidden=("jaxjobs",))
    cluster.job("JAXJob", {"Worker": 1})
    with visit(cluster, clock) as person:
        assert person.jobs() == []
        cluster.plurals.append("pytorchjobs")
        cluster.job("PyTorchJob", {"Worker": 1})
        cluster.hidden = ()
        eventually(lambda: clock.advance(A_WHILE) or person.jobs() == ["jaxjob/train", "pytorchjob/train"])
        cluster.plurals.remove("jaxjobs")
        eventually(lambda: clock.advance(A_WHILE) or person.jobs() == ["pytorchjob/train"])


def test_kinds_that_were_guessed_while_the_server_was_down_are_left_out_later(clock: FakeClock) -> None:
    cluster = Cluster("pytorchjobs", hidden=OWN)
    cluster.job("PyTorchJob", {"Worker": 1})
    cluster.is_down = True
    loop = asyncio.new_event_loop()
    feed = JobFeed(User("me", cluster, "team", "there", clock), "team", Notifier(loop), clock)
    feed.start()
    try:
        eventually(lambda: {kind.word for kind in feed.kinds} == {"tfjob", "trainjob"})
        cluster.is_down = False
        eventually(lambda: clock.advance(A_WHILE) or [kind.word for kind in feed.kinds] == ["pytorchjob"])
    finally:
        feed.stop()
        loop.close()


def test_a_job_has_the_page_of_other_jobs(cluster: Cluster, person: Visit) -> None:
    job = cluster.job("PyTorchJob", {"Master": 1, "Worker": 2})
    cluster.condition(job, "Created", "it was created")
    started = {"state": {"running": {"startedAt": CREATED}}, "ready": True}
    waits = {"state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}
    for replica, state in (("master-0", started), ("worker-0", waits)):
        status = {"phase": "Running", "startTime": CREATED, "containerStatuses": [{"name": "pytorch", **state}]}
        cluster.pod(job, replica, "pytorchjob-controller", **status)
    cluster.pod(job, "worker-1", "tfjob-controller", phase="Running")
    page = person.page(PAGE)
    assert "<strong>Now:</strong> worker-0 waits: ErrImagePull: no such image." in page
    rows = re.findall(r'data-replica="([-\w]+)".*?<span class="pill [-\w]+">.*?</svg>(\w+)</span>', page, re.DOTALL)
    assert rows == [("master-0", "Running"), ("worker-0", "ImagePullBackOff"), ("worker-1", "Pending")]
    assert re.findall(r"<option>([-\w]+)</option>", page) == ["master-0", "worker-0", "worker-1"]
    assert re.findall(r'<svg class="gantt" role="img" aria-label="([-\w]+):', page) == ["master-0", "worker-0"]
    assert '<th scope="row">Created</th><td class="side">True</td>' in page
    assert "kind: PyTorchJob" in page


def test_buttons_suspend_resume_scale_and_delete(cluster: Cluster, person: Visit) -> None:
    job = cluster.job("PyTorchJob", {"Master": 1, "Worker": 2})
    assert person.buttons(PAGE) == ["Suspend", "Resume", "Scale", "Clone", "Compare", "Delete"]
    person.press(PAGE, "suspend")
    assert cluster.objects[job]["spec"]["runPolicy"] == {"suspend": True}
    assert person.buttons(PAGE) == ["Suspend", "Resume", "Scale", "Clone", "Compare", "Delete"]
    person.press(PAGE, "resume")
    assert cluster.objects[job]["spec"]["runPolicy"] == {"suspend": False}
    person.press(PAGE, "scale", replicas="3")
    assert cluster.requests("PATCH", f"{job}/scale")[0].body["spec"] == {"replicas": 3}
    person.press(PAGE, "delete")
    assert job not in cluster.objects


def test_a_job_that_has_ended_can_only_be_deleted(cluster: Cluster, person: Visit) -> None:
    cluster.condition(cluster.job("PyTorchJob", {"Worker": 1}), "Succeeded")
    assert person.buttons(PAGE) == ["Clone", "Compare", "Delete"]


def test_a_job_without_workers_cannot_be_scaled(cluster: Cluster, person: Visit) -> None:
    cluster.job("PyTorchJob", {"Master": 1})
    assert person.buttons(PAGE) == ["Suspend", "Resume", "Clone", "Compare", "Delete"]


def test_a_reason_that_is_a_sentence_ends_once(cluster: Cluster, person: Visit) -> None:
    cluster.condition(cluster.job("PyTorchJob", {"Worker": 1}), "Failed", "1 Worker replica(s) failed.")
    assert "1 Worker replica(s) failed.</p>" in person.page(PAGE)


def test_the_page_of_a_job_that_has_not_changed_reads_no_pods_again(cluster: Cluster, person: Visit) -> None:
    cluster.pod(cluster.job("PyTorchJob", {"Worker": 1}), "worker-0", "pytorchjob-controller", phase="Running")

    def lists_of_pods() -> int:
        before = len(cluster.sent)
        assert 'data-replica="worker-0"' in person.page(PAGE)
        return sum(request.path == PODS and request.method == "GET" for request in cluster.sent[before:])

    # The watches of the first page may still report what it has read.
    eventually(lambda: lists_of_pods() == 0)


def test_a_tfjob_has_one_page_whatever_its_version(cluster: Cluster, person: Visit) -> None:
    cluster.job("TFJob", {"Chief": 1, "Worker": 1})
    assert "tfReplicaSpecs" in person.page("/jobs/team/tfjob/train")
    assert person.buttons("/jobs/team/tfjob/train") == ["Suspend", "Resume", "Scale", "Clone", "Compare", "Delete"]


def test_a_kind_that_the_cluster_lacks_has_a_page_with_the_reason(cluster: Cluster, person: Visit) -> None:
    assert "the cluster knows no JAXJobs: see docs/kubeflow-v1.md" in person.page("/jobs/team/jaxjob/train")


def test_a_job_is_cloned_as_yaml_without_what_the_controller_wrote(cluster: Cluster, person: Visit) -> None:
    job = cluster.job("PyTorchJob", {"Worker": 1})
    annotations = {"kubeflow.org/training-status": "{}", "team": "vision"}
    cluster.change(job, {"metadata": {"annotations": annotations}, "status": {"startTime": CREATED}})
    page = person.page("/new?from=pytorchjob/team/train")
    assert "The other fields of a PyTorchJob of kubeflow.org/v1 are written as YAML." in page
    assert 'value="train-copy"' in page
    assert "team: vision" in page
    assert "name: train-copy" in page
    assert not re.search("training-status|startTime|problem-image", page)


def test_a_yaml_of_v1_is_read_checked_and_created(cluster: Cluster, person: Visit) -> None:
    manifest = {**v1_manifest("PyTorchJob", {"Worker": 1}), "metadata": {"name": "pasted", "namespace": "team"}}
    text = json.dumps(manifest)
    assert "The form and the YAML differ" in person.send_form("create", kind="TrainJob", yaml=text)
    read = person.send_form("read", kind="TrainJob", yaml=text)
    assert '<option value="PyTorchJob of kubeflow.org/v1" selected>' in read
    assert 'value="pasted"' in read
    shown = {"kind": "PyTorchJob of kubeflow.org/v1", "name": "named", "namespace": "team"}
    assert "name: named" in (written := person.send_form("write", yaml=text, **shown))
    assert "pytorchReplicaSpecs:" in written
    person.send_form("create", yaml=text.replace("pasted", "named"), **shown)
    assert cluster.paths("/pytorchjobs/") == ["/apis/kubeflow.org/v1/namespaces/team/pytorchjobs/named"]


def test_what_is_wrong_with_a_yaml_of_v1_is_above_it(person: Visit) -> None:
    metadata = {"name": "wrong", "namespace": "team"}
    manifest = {**v1_manifest("PyTorchJob", {"Worker": {"template": {"spec": {}}}}), "metadata": metadata}
    page = person.send_form("check", kind="PyTorchJob of kubeflow.org/v1", yaml=json.dumps(manifest), **metadata)
    assert re.search(r'id="problem-yaml"[^>]*>spec.pytorchReplicaSpecs\[Worker\]', page)


def test_a_form_of_another_kind_keeps_the_metadata_of_a_yaml_of_v1(person: Visit) -> None:
    metadata = {"name": "train", "namespace": "team"}
    text = json.dumps({**v1_manifest("TFJob", {"Worker": 1}), "metadata": metadata})
    for kind in ("TrainJob", "TFJob"):
        page = person.send_form("write", kind=kind, nodes="1", yaml=text, **metadata)
        assert f"kind: {kind}" in page
        assert "name: train" in page
        assert "tfReplicaSpecs" not in page


def test_the_queue_leads_to_the_job_of_a_gang(cluster: Cluster, person: Visit) -> None:
    owner = {"kind": "PyTorchJob", "name": "train", "uid": "u", "controller": True}
    gang = {"metadata": {"name": "train-gang", "ownerReferences": [owner]}, "spec": {"members": []}}
    cluster.put(GANGS.path("team"), {**gang, "status": {"phase": "Waiting", "position": 1, "message": "no room"}})
    link = f'<a href="{PAGE}">train</a> <span class="minor">PyTorchJob in team</span>'
    assert link in person.page("/queue?namespace=team")


def test_the_cluster_page_has_the_pods_of_a_job(cluster: Cluster, person: Visit) -> None:
    job = cluster.job("PyTorchJob", {"Worker": 1})
    cluster.pod(job, "worker-0", "pytorchjob-controller", phase="Running")
    cluster.change(f"{PODS}/train-worker-0", {"spec": {"nodeName": "n1", "containers": []}})
    cluster.fail(403, "Forbidden", part="/api/v1/nodes")
    link = f'<a href="{PAGE}">train</a> <span class="minor">team</span></span> <span class="minor">1 pod</span>'
    assert link in person.page("/cluster?namespace=team")


def test_no_log_is_read_for_charts(cluster: Cluster, person: Visit) -> None:
    job = cluster.job("PyTorchJob", {"Worker": 1})
    cluster.pod(job, "worker-0", "pytorchjob-controller", phase="Running")
    assert person.page("/metrics/team/pytorchjob/train") == "[]"
    assert cluster.requests(part="/pods") == []


def test_the_page_of_a_job_follows_its_pods(cluster: Cluster, clock: FakeClock) -> None:
    cluster.job("PyTorchJob", {"Worker": 1})
    snapshot = User("me", cluster, "team", "there", clock).client.job("train", "pytorchjob").snapshot
    labels = {"job-name": "train", "operator-name": "pytorchjob-controller"}
    selector = ",".join(f"training.kubeflow.org/{name}={value}" for name, value in labels.items())
    assert sorted(WatchedJob.of(snapshot).child_selector.split(",")) == sorted(selector.split(","))
