"""Jobs of `kubeflow.org/v1` in the Python client: which kinds are asked for, and what is read and changed of a job."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from helpers.answering import Answering, Lines, Request
from helpers.v1manifests import v1_manifest, v1_replicas
from tfjob_controller.client import Client, ClientError
from tfjob_controller.client.diagnostics.collection import collect_diagnostics
from tfjob_controller.client.diagnostics.description import summary
from tfjob_controller.client.diagnostics.diagnosis import diagnose
from tfjob_controller.client.diagnostics.timeline import timeline
from tfjob_controller.client.job import Job
from tfjob_controller.kube.errors import ApiError

Object = dict[str, Any]
V1 = "/apis/kubeflow.org/v1"
OF_TEAM = f"{V1}/namespaces/team"
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
CREATED = "2026-01-01T11:00:00Z"
UNKNOWN = ApiError(404, "", "404 page not found")
FORBIDDEN = ApiError(403, "Forbidden", 'pytorchjobs is forbidden: User "u" cannot list resource "pytorchjobs"')


class Server(Answering):
    """An API server with these objects by path, lists by that of their collection; it serves `plurals` of v1."""

    def __init__(self, objects: Object | None = None, plurals: Sequence[str] = ("tfjobs", "pytorchjobs")) -> None:
        super().__init__()
        self.objects = {"/api/v1/namespaces/team": {"metadata": {"name": "team"}}, **(objects or {})}
        self.plurals = plurals

    def answer(self, request: Request) -> bytes:
        if request.path == V1 and self.plurals:
            served = [{"name": name} for plural in self.plurals for name in (plural, f"{plural}/status")]
            return json.dumps({"kind": "APIResourceList", "resources": served}).encode()
        if request.method != "GET":
            return json.dumps(self.objects.get(request.path) or request.body).encode()
        found = self.objects.get(request.path, UNKNOWN)
        if isinstance(found, ApiError):
            raise found
        body = {"metadata": {"resourceVersion": "1"}, "items": found} if isinstance(found, list) else found
        return json.dumps(body).encode()

    def stream(self, path: str, *, query: Mapping[str, str], **options: Any) -> Lines:
        return Lines([f"the log of {query['container']} in {path.split('/')[-2]}".encode()])

    @property
    def paths(self) -> list[str]:
        return [request.path for request in self.sent]


def client_of(server: Server, **options: Any) -> Client:
    return Client.over(server, "team", "there", **options)


def condition(type_: str, status: str = "True", message: str = "") -> Object:
    return {"type": type_, "status": status, "reason": f"X{type_}", "message": message, "lastTransitionTime": CREATED}


def job_manifest(kind: str, replicas: Object, conditions: Sequence[Object] = (), **spec: Any) -> Object:
    manifest = v1_manifest(kind, replicas, **spec)
    manifest["metadata"]["creationTimestamp"] = CREATED
    return {**manifest, "status": {"conditions": [*conditions]}} if conditions else manifest


def pod(replica: str, kind: str = "pytorch", owner: str = "test-uid", **status: Any) -> Object:
    role, _, index = replica.rpartition("-")
    labels = {"job-name": "test", "operator-name": f"{kind}job-controller", "replica-type": role}
    return {
        "metadata": {
            "name": f"test-{replica}",
            "namespace": "team",
            "uid": f"{replica}-of-{owner}",
            "creationTimestamp": CREATED,
            "labels": {
                f"training.kubeflow.org/{name}": text for name, text in {**labels, "replica-index": index}.items()
            },
            "ownerReferences": [{"kind": "PyTorchJob", "name": "test", "uid": owner, "controller": True}],
        },
        "status": {"phase": "Pending", **status},
    }


def waiting(reason: str, message: str) -> Object:
    return {"containerStatuses": [{"name": "pytorch", "state": {"waiting": {"reason": reason, "message": message}}}]}


RUNNING: Object = {
    "phase": "Running",
    "containerStatuses": [{"name": "pytorch", "ready": True, "state": {"running": {"startedAt": CREATED}}}],
}


def pytorch_server(
    conditions: Sequence[Object], pods: Sequence[Object], status: Object | None = None, **spec: Any
) -> Server:
    manifest = job_manifest("PyTorchJob", {"Master": 1, "Worker": 2}, conditions, **spec)
    manifest["status"] = {**manifest.get("status", {}), **(status or {})}
    server = Server({f"{OF_TEAM}/pytorchjobs/test": manifest, "/api/v1/namespaces/team/pods": [*pods]})
    server.objects["/api/v1/namespaces/team/events"] = []
    server.now = NOW
    return server


def job_of(server: Server, kind: str = "pytorchjob") -> Job:
    return client_of(server).job("test", kind)


def test_all_kinds_cost_one_more_request_in_a_cluster_without_v1() -> None:
    server = Server({f"/apis/kubeflow.org/{version}": [] for version in ("v1alpha1", "v2alpha1")}, plurals=())
    assert len(client_of(server).jobs()) == 0
    assert server.paths == [
        V1,
        "/apis/kubeflow.org/v1alpha1/namespaces/team/tfjobs",
        "/apis/kubeflow.org/v2alpha1/namespaces/team/trainjobs",
    ]


def test_only_the_kinds_that_the_cluster_serves_are_asked_for() -> None:
    jobs = {
        name: [job_manifest(kind, {"Worker": 1})] for name, kind in (("tfjobs", "TFJob"), ("pytorchjobs", "PyTorchJob"))
    }
    server = Server({f"{OF_TEAM}/{plural}": items for plural, items in jobs.items()})
    assert [job.kind for job in client_of(server).jobs()] == ["pytorchjob", "tfjob"]
    assert server.paths == [
        V1,
        "/apis/kubeflow.org/v2alpha1/namespaces/team/trainjobs",
        f"{OF_TEAM}/tfjobs",
        f"{OF_TEAM}/pytorchjobs",
    ]


def test_what_is_served_is_asked_once_for_several_jobs() -> None:
    server = Server({f"{OF_TEAM}/pytorchjobs/{name}": job_manifest("PyTorchJob", {"Master": 1}) for name in "ab"})
    client = client_of(server)
    assert [client.job(name).kind for name in "ab"] == ["pytorchjob", "pytorchjob"]
    assert server.paths.count(V1) == 1


def test_a_tfjob_is_of_the_api_that_the_cluster_serves() -> None:
    manifest = job_manifest("TFJob", {"Worker": 1})
    server = Server({f"{OF_TEAM}/tfjobs/test": manifest, f"{OF_TEAM}/tfjobs": [manifest]})
    for job in (job_of(server, "tfjob"), client_of(server).jobs(kind="tfjob")[0]):
        assert job.manifest["apiVersion"] == "kubeflow.org/v1"
        assert (job.kind, job.name) == ("tfjob", "test")


def test_a_role_for_some_kinds_shows_their_jobs() -> None:
    """Those of Kubeflow's profiles have no rights on the kinds of this project."""
    of_ours = "/apis/kubeflow.org/v2alpha1/namespaces/team/trainjobs"
    server = Server({f"{OF_TEAM}/tfjobs": [job_manifest("TFJob", {"Worker": 1})], of_ours: FORBIDDEN})
    assert [job.kind for job in client_of(server).jobs()] == ["tfjob"]
    with pytest.raises(ClientError, match="ask for the role `view`"):
        client_of(Server({of_ours: FORBIDDEN})).jobs()


def test_the_kinds_of_v1_that_a_user_may_not_list_hide_no_others() -> None:
    server = Server({f"{OF_TEAM}/tfjobs": [job_manifest("TFJob", {"Worker": 1})], f"{OF_TEAM}/pytorchjobs": FORBIDDEN})
    assert [job.kind for job in client_of(server).jobs()] == ["tfjob"]
    with pytest.raises(ClientError, match='cannot list resource "pytorchjobs": ask for the role `view`'):
        client_of(server).jobs(kind="pytorchjob")


def test_a_name_that_no_job_has_is_reported_for_the_kinds_that_were_asked() -> None:
    missing = {
        f"{OF_TEAM}/{plural}/a": ApiError(404, "NotFound", f'{plural}.kubeflow.org "a" not found')
        for plural in ("tfjobs", "pytorchjobs")
    }
    with pytest.raises(ClientError, match=r'^no TFJob and no PyTorchJob with the name "a" found in namespace "team"'):
        client_of(Server(missing)).job("a")
    server = Server({**missing, f"{OF_TEAM}/pytorchjobs/a": FORBIDDEN})
    with pytest.raises(ClientError, match=r'^tfjobs\.kubeflow\.org "a" not found'):
        client_of(server).job("a")


@pytest.mark.parametrize(
    ("conditions", "phase", "state"),
    [
        ([], "", ""),
        ([condition("Created")], "Creating", "Pending"),
        ([condition("Created"), condition("Running")], "Running", "Running"),
        ([condition("Created"), condition("Suspended")], "Creating", "Suspended"),
        (
            [condition("Created"), condition("Running", "False"), condition("Succeeded", message="done")],
            "Done",
            "Succeeded",
        ),
        ([condition("Created"), condition("Failed", message="worker failed")], "Failed", "Failed"),
    ],
)
def test_phase_and_state_are_those_of_all_kinds(conditions: Sequence[Object], phase: str, state: str) -> None:
    job = job_of(pytorch_server(conditions, []))
    assert job.phase == phase
    assert summary(job.describe())["State"] == state
    assert job.reason == (conditions[-1]["message"] if phase in ("Done", "Failed") else "")


def test_ready_replicas_are_counted_of_those_that_the_spec_wants() -> None:
    counts = {"replicaStatuses": {"Worker": {"active": 1}, "Master": {"succeeded": 1}}}
    job = job_of(pytorch_server([condition("Created"), condition("Running")], [], counts))
    assert summary(job.describe())["Ready"] == "master 1/1, worker 1/2"


def test_why_a_pod_waits_is_the_state_of_its_replica() -> None:
    pods = [
        pod("master-0", **RUNNING),
        pod("worker-0", **waiting("ImagePullBackOff", "no such image")),
        pod("worker-1", owner="another"),
    ]
    server = pytorch_server([condition("Created")], pods)
    description = job_of(server).describe()
    rows = {row.replica: (row.state, row.pod, row.message) for row in description.replicas}
    assert rows["master-0"] == ("Running", "test-master-0", "")
    assert rows["worker-0"] == ("ImagePullBackOff", "test-worker-0", "ImagePullBackOff: no such image")
    # The pod with these labels is another job's.
    assert rows["worker-1"] == ("Pending", "", "waiting for its pod")
    # Those of the job are read once, although it is the owner of the pods as well.
    selectors = [sent.query.get("fieldSelector") for sent in server.sent if sent.path.endswith("/events")]
    assert selectors.count("involvedObject.uid=test-uid") == 1
    lists = [dict(sent.query) for sent in server.sent if sent.path.endswith("/pods")]
    selector = "training.kubeflow.org/job-name=test,training.kubeflow.org/operator-name=pytorchjob-controller"
    assert [query["labelSelector"] for query in lists if "operator-name" in query["labelSelector"]] == [selector]


def test_replicas_are_judged_by_their_pods_as_the_controller_judges_them() -> None:
    ended = {"terminated": {"exitCode": 1, "finishedAt": CREATED}}
    failed = pod("worker-0", phase="Failed", containerStatuses=[{"name": "pytorch", "state": ended}])
    conditions = [condition("Created"), condition("Running")]
    rows = job_of(pytorch_server(conditions, [failed])).describe().replicas
    assert [(row.state, row.last_exit, row.restarts) for row in rows if row.pod] == [("Restarting", "exit code 1", 1)]
    ending = pod("master-0", **RUNNING)
    ending["metadata"]["deletionTimestamp"] = CREATED
    conditions = [condition("Created"), condition("Suspended")]
    rows = job_of(pytorch_server(conditions, [ending], runPolicy={"suspend": True})).describe().replicas
    assert {row.state for row in rows} == {"Suspended"}


def diagnosis_of(server: Server) -> tuple[str, str]:
    case = collect_diagnostics(server, job_of(server).snapshot)
    found = diagnose(case, NOW)
    return found.now, found.next


def test_the_diagnosis_names_what_the_user_can_do() -> None:
    created = condition("Created")
    server = pytorch_server([created], [pod("worker-0", **waiting("ImagePullBackOff", "no such image"))])
    now, then = diagnosis_of(server)
    assert now == "worker-0 waits: ImagePullBackOff: no such image"
    assert then.startswith("the kubelet tries again")
    now, then = diagnosis_of(pytorch_server([created, condition("Suspended")], [], runPolicy={"suspend": True}))
    assert now == "it is suspended: spec.runPolicy.suspend is true"
    assert then == "it runs once it is resumed: kubectl tfjob resume pytorchjob/test -n team"
    now, _ = diagnosis_of(pytorch_server([], [], runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"}))
    assert now == "another controller runs it: kueue.x-k8s.io/multikueue"
    now, _ = diagnosis_of(pytorch_server([], [], runPolicy={"managedBy": "kubeflow.org/training-operator"}))
    assert now.startswith("no controller has processed the job yet")


def test_the_timeline_has_the_pods_and_events_of_the_job_alone() -> None:
    server = pytorch_server(
        [condition("Created"), condition("Failed", message="it failed")], [pod("worker-0"), pod("worker-9", owner="b")]
    )
    about = ("test-worker-1", "test-worker-2-3", "test-2-worker-1", "test-worker-x", "another-worker-1")
    server.objects["/api/v1/namespaces/team/events"] = [
        {
            "metadata": {"creationTimestamp": CREATED},
            "involvedObject": {"kind": "Pod", "name": name, "uid": name},
            "reason": "Pulled",
        }
        for name in about
    ]
    entries = timeline(collect_diagnostics(server, job_of(server).snapshot))
    assert {entry.source: entry.replica for entry in entries} == {
        "pytorchjob/test": "",
        "pod/test-worker-0": "worker-0",
        "pod/test-worker-1": "worker-1",
    }


def test_a_log_is_that_of_the_training_container() -> None:
    server = pytorch_server([condition("Created"), condition("Running")], [pod("master-0", **RUNNING)])
    assert [line.text for line in job_of(server).logs()] == ["the log of pytorch in test-master-0"]
    with pytest.raises(ClientError, match="test has no replica worker-5: it has master-0, worker-0, worker-1"):
        list(job_of(server).logs("worker-5"))


def test_the_log_of_a_failed_job_is_that_of_the_replica_that_failed() -> None:
    """The reason of such a job names no replica."""
    ended = {"terminated": {"exitCode": 1, "finishedAt": CREATED}}
    failed = {"phase": "Failed", "containerStatuses": [{"name": "pytorch", "state": ended}]}
    conditions = [
        condition("Created"),
        condition("Failed", message="PyTorchJob test is failed because 1 Worker failed."),
    ]
    server = pytorch_server(conditions, [pod("master-0", **RUNNING), pod("worker-1", **failed)])
    with pytest.warns(UserWarning, match="because 1 Worker failed; this is the log of worker-1"):
        assert [line.text for line in job_of(server).logs()] == ["the log of pytorch in test-worker-1"]
    now, then = diagnosis_of(server)
    assert now == "it has failed: PyTorchJob test is failed because 1 Worker failed."
    assert "see the log of worker-1: kubectl tfjob logs pytorchjob/test -n team --replica worker-1;" in then


def test_why_pods_cannot_be_created_is_read_from_the_events() -> None:
    server = pytorch_server([condition("Created")], [pod("master-0", **RUNNING)])
    server.objects["/api/v1/namespaces/team/events"] = [
        {
            "metadata": {"creationTimestamp": CREATED},
            "involvedObject": {"kind": "PyTorchJob", "name": "test", "uid": "test-uid"},
            "reason": "FailedCreatePod",
            "message": "test-worker-0: exceeded quota: q",
        }
    ]
    now, then = diagnosis_of(server)
    assert now.startswith("it waits: test-worker-0: exceeded quota: q (master 0/1, worker 0/2)")
    assert then.startswith("the quota has to be raised")


def changes(server: Server) -> list[tuple[str, Any]]:
    return [(sent.path, sent.body["spec"]) for sent in server.sent if sent.method == "PATCH"]


def test_a_job_is_suspended_by_its_run_policy() -> None:
    server = pytorch_server([condition("Created"), condition("Running")], [])
    job_of(server).suspend()
    assert changes(server) == [(f"{OF_TEAM}/pytorchjobs/test", {"runPolicy": {"suspend": True}})]


def test_workers_are_scaled_by_the_subresource_where_the_kind_has_one() -> None:
    server = pytorch_server([condition("Created"), condition("Running")], [])
    job_of(server).scale(3)
    assert changes(server) == [(f"{OF_TEAM}/pytorchjobs/test/scale", {"replicas": 3})]
    server = Server({f"{OF_TEAM}/tfjobs/test": job_manifest("TFJob", {"Chief": 1, "worker": 1})})
    job_of(server, "tfjob").scale(0)
    assert changes(server) == [(f"{OF_TEAM}/tfjobs/test", {"tfReplicaSpecs": {"worker": {"replicas": 0}}})]


@pytest.mark.parametrize(
    ("kind", "replicas", "size", "why"),
    [
        (
            "PyTorchJob",
            {"Master": 1, "Worker": 1},
            0,
            "pytorchReplicaSpecs.Worker.replicas: Forbidden: must be at least 1",
        ),
        ("PyTorchJob", {"Master": 1}, 2, "pytorchReplicaSpecs.Worker.replicas: the job has no workers"),
        ("TFJob", {"Worker": 1}, 0, "tfReplicaSpecs.Worker.replicas: the job would have no replicas"),
        ("TFJob", {"Worker": 1}, 5001, "must have at most 5000 replicas in all"),
    ],
)
def test_a_size_with_which_a_job_would_fail_is_refused(kind: str, replicas: Object, size: int, why: str) -> None:
    server = Server({f"{OF_TEAM}/{kind.lower()}s/test": job_manifest(kind, replicas)})
    with pytest.raises(ClientError, match=why.replace(".", r"\.")):
        job_of(server, kind.lower()).scale(size)
    assert changes(server) == []


def test_a_manifest_is_validated_and_one_pod_of_each_type_before_it_is_created() -> None:
    server = Server()
    manifest = job_manifest("PyTorchJob", {"Master": 1, "Worker": 2})
    client_of(server).submit(manifest, dry_run=True)
    creates = [(sent.path, sent.body["metadata"]["name"]) for sent in server.sent if sent.method == "POST"]
    assert creates == [
        ("/api/v1/namespaces/team/pods", "test-master-0"),
        ("/api/v1/namespaces/team/pods", "test-worker-0"),
        (f"{OF_TEAM}/pytorchjobs", "test"),
    ]
    assert all(sent.query["dryRun"] == "All" for sent in server.sent if sent.method == "POST")
    named = {**manifest, "metadata": {"generateName": "test-"}}
    assert client_of(server).submit(named).kind == "pytorchjob"
    wrong = job_manifest("PyTorchJob", {"Master": v1_replicas("TFJob", 1)})
    with pytest.raises(ClientError, match="must have at least one container with name pytorch"):
        client_of(server).submit(wrong)


def test_a_pod_that_kubernetes_refuses_is_reported_with_its_field() -> None:
    class Refusing(Server):
        def answer(self, request: Request) -> bytes:
            if request.path.endswith("/pods"):
                raise ApiError(422, "Invalid", "Pod is invalid", causes=(("spec.containers[0].name", "no name"),))
            return super().answer(request)

    with pytest.raises(ClientError, match=r"refuses the pods of master: spec\.containers\[0\]\.name: no name"):
        client_of(Refusing()).submit(job_manifest("PyTorchJob", {"Master": 1}))


def test_a_replica_whose_node_is_lost_names_it_and_what_lets_the_next_pod_start() -> None:
    lost = pod("worker-1", **RUNNING, conditions=[{"type": "Ready", "status": "False"}])
    lost["spec"] = {"nodeName": "node-2"}
    lost["metadata"]["deletionTimestamp"] = "2026-01-01T11:30:00Z"
    server = pytorch_server([condition("Restarting", message="worker failed")], [pod("master-0", **RUNNING), lost])
    (row,) = [row for row in job_of(server).describe().replicas if row.replica == "worker-1"]
    assert row.state == "Terminating"
    assert row.message == "its node node-2 does not report; the pod stays until it does, or is deleted"
    assert diagnosis_of(server) == (
        "the pod of worker-1 is being deleted, but its node node-2 does not report",
        "another pod follows once the node reports again, or is deleted: kubectl delete node node-2",
    )


def test_a_pod_that_ends_within_its_grace_period_has_lost_no_node() -> None:
    reason = {"type": "Ready", "status": "False", "reason": "ContainersNotReady"}
    for conditions in ([{"type": "Ready", "status": "True"}], [reason], []):
        ending = pod("worker-1", **RUNNING, conditions=conditions)
        ending["metadata"]["deletionTimestamp"] = "2026-01-01T11:30:00Z"
        server = pytorch_server([condition("Running")], [pod("master-0", **RUNNING), ending])
        (row,) = [row for row in job_of(server).describe().replicas if row.replica == "worker-1"]
        assert (row.state, row.message) == ("Terminating", "")
        assert "does not report" not in diagnosis_of(server)[0]


def test_pods_that_still_run_after_the_end_are_named_with_the_command_that_deletes_them() -> None:
    pods = [pod("master-0", **RUNNING), pod("worker-1", **RUNNING), pod("worker-0", phase="Failed")]
    failed = condition("Failed", message="worker-0 failed")
    delete = "kubectl delete pytorchjobs.kubeflow.org test -n team"
    _, next_ = diagnosis_of(pytorch_server([failed], pods))
    assert next_ == f"the pods of master-0, worker-1 still run until the job is deleted: {delete}"
    _, next_ = diagnosis_of(pytorch_server([failed], pods, runPolicy={"cleanPodPolicy": "Running"}))
    assert next_.startswith("nothing: it stays"), "they are about to be deleted"
