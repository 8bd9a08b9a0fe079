"""The shipped admission policies on a real API server; the shipped service accounts write with tokens of their own.

Requests that must be refused use `dryRun`, so that they leave nothing if they are not. test_rights and test_gang_rights
show that whole jobs and gangs run under the policies.
"""

from __future__ import annotations

from typing import Any

import pytest

from helpers.cluster import new_service_account
from helpers.manifests import master, tfjob, workers
from helpers.policies import (
    CHILDREN,
    CONTROLLER,
    GANG_SCHEDULER,
    IMAGE,
    NODE,
    Object,
    Site,
    assert_passes,
    assert_refused,
    attempt,
    child,
    job_of,
    new_name,
    new_pod,
    owned_by,
    path_of,
)
from helpers.poll import eventually
from helpers.renderings import SYSTEM
from helpers.rights import Right, await_rights
from helpers.trainmanifests import trainjob
from localcluster.api import STRATEGIC_MERGE_PATCH
from tfjob_controller.api.gang import PLACEMENT_GATE, REQUIRED_NODE_AFFINITY, required_on_node
from tfjob_controller.api.tfjob.types import TFJOBS
from tfjob_controller.api.trainjob.types import TRAINJOBS

pytestmark = pytest.mark.cluster

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"

KUBERNETES_OWN = "in the namespaces of Kubernetes itself"
ONLY_OWNED = "the controller writes only objects whose controller is a TFJob or TrainJob"
CHANGES_OWNED = "the controller changes and deletes only objects whose controller is a TFJob or TrainJob"
ONLY_PODS_OF_JOBS = "the controller deletes only pods with the label runtime_id whose controller is a Job"
ONLY_SUSPEND = "of the spec of a job the controller changes only suspend, and sets RuntimeId once"
ONLY_SPEC = "the controller does not change the labels, annotations, finalizers or owners of a job"
ONLY_TTL = "the controller deletes only jobs with ttlSecondsAfterFinished"
NOTHING_OF_A_POD = (
    "the gang scheduler changes nothing of a pod but the annotation scheduling.kubeflow.org/node, or pins a gated pod"
)
NO_ANNOTATION = "the gang scheduler changes no annotation of a pod but scheduling.kubeflow.org/node"
NO_FOREIGN_EVICTIONS = "the gang scheduler evicts no pods in the namespaces of Kubernetes itself and in its own"
EVICTIONS_BY_UID = "the gang scheduler evicts pods only by their uid"
PLAIN_BINDINGS = "the gang scheduler binds pods without annotations and labels"


def test_the_server_accepts_each_policy_and_finds_no_wrong_type_in_it(site: Site) -> None:
    def checked() -> bool:
        return all("typeChecking" in each.get("status", {}) for each in site.admin.list(POLICIES))

    eventually(checked)
    found = {each["metadata"]["name"]: each["status"]["typeChecking"] for each in site.admin.list(POLICIES)}
    shipped = (
        *(f"{GANG_SCHEDULER}-{each}" for each in _OF_GANG_SCHEDULER),
        *(f"{CONTROLLER}-{each}" for each in _OF_CONTROLLER),
    )
    assert {name: found[name] for name in shipped} == {name: {} for name in shipped}


_OF_GANG_SCHEDULER = ("bindings", "evictions", "pods", "volumes")
_OF_CONTROLLER = ("children", "jobs", "pods")
# What the controller may patch, and what it may delete as well.
PATCHED, DELETED = ("jobs", "services", "configmaps", "gangs"), ("jobs", "services")


@pytest.mark.parametrize("plural", CHILDREN)
def test_the_controller_creates_children_of_jobs_and_nothing_else(site: Site, plural: str) -> None:
    path = path_of(plural, site.namespace)
    assert_refused(site.controller, ONLY_OWNED, "POST", path, child(plural))
    wrong = (
        owned_by("Deployment", "apps/v1"),
        owned_by("TFJob", "example.com/v1"),
        owned_by("TFJob", "kubeflow.org/v1alpha1", controller=False),
    )
    for metadata in wrong:
        assert_refused(site.controller, ONLY_OWNED, "POST", path, child(plural, metadata))
    for kind in ("TFJob", "TrainJob"):
        assert_passes(site.controller, "POST", path, child(plural, job_of(site, kind)))


@pytest.mark.parametrize("plural", CHILDREN)
def test_the_controller_writes_no_children_into_the_namespaces_of_kubernetes(site: Site, plural: str) -> None:
    for namespace in ("kube-system", "kube-public"):
        body = child(plural, owned_by("TFJob", "kubeflow.org/v1alpha1"))
        assert_refused(site.controller, KUBERNETES_OWN, "POST", path_of(plural, namespace), body)
    if plural not in PATCHED:
        return
    body = child(plural, job_of(site, namespace="kube-system"))
    site.admin.create(path_of(plural, "kube-system"), body)
    path = path_of(plural, "kube-system", body["metadata"]["name"])
    assert_refused(site.controller, KUBERNETES_OWN, "PATCH", path, {"metadata": {"labels": {"a": "b"}}})
    if plural in DELETED:
        assert_refused(site.controller, KUBERNETES_OWN, "DELETE", path)


@pytest.mark.parametrize("plural", PATCHED)
def test_the_controller_changes_and_deletes_only_children_of_jobs(site: Site, plural: str) -> None:
    labels = {"metadata": {"labels": {"a": "b"}}}
    foreign, owned = child(plural), child(plural, job_of(site))
    for each in (foreign, owned):
        site.admin.create(path_of(plural, site.namespace), each)
    path = path_of(plural, site.namespace, foreign["metadata"]["name"])
    assert_refused(site.controller, CHANGES_OWNED, "PATCH", path, labels)
    # It does not make itself its owner either.
    assert_refused(site.controller, CHANGES_OWNED, "PATCH", path, {"metadata": job_of(site)})
    if plural in DELETED:
        assert_refused(site.controller, CHANGES_OWNED, "DELETE", path)
    path = path_of(plural, site.namespace, owned["metadata"]["name"])
    assert_refused(site.controller, ONLY_OWNED, "PATCH", path, {"metadata": {"ownerReferences": None}})
    assert_passes(site.controller, "PATCH", path, labels)
    if plural in DELETED:
        assert_passes(site.controller, "DELETE", path, {"propagationPolicy": "Foreground"})


def test_the_controller_deletes_only_pods_of_child_jobs(site: Site) -> None:
    labels = {"kubeflow.org": "", "runtime_id": "abcd"}
    # The garbage collector deletes what has an owner that is not there; the finalizer keeps it.
    kept = {"finalizers": ["example.com/kept"]}
    for metadata in ({}, owned_by("Job", "batch/v1"), {"labels": labels}, {"labels": labels, **owned_by("X", "a/v1")}):
        assert_refused(site.controller, ONLY_PODS_OF_JOBS, "DELETE", new_pod(site, **metadata, **kept))
    in_kube_system = new_pod(site, "kube-system", labels=labels, **owned_by("Job", "batch/v1"), **kept)
    assert_refused(site.controller, KUBERNETES_OWN, "DELETE", in_kube_system)
    job = child("jobs", job_of(site))
    job["spec"] = {"template": {**job["spec"]["template"], "metadata": {"labels": labels}}}
    site.admin.create(path_of("jobs", site.namespace), job)
    pods, selector = f"/api/v1/namespaces/{site.namespace}/pods", f"job-name={job['metadata']['name']}"
    (pod, *_) = eventually(lambda: site.admin.list(pods, selector))
    assert_passes(site.controller, "DELETE", f"{pods}/{pod['metadata']['name']}")


def test_of_a_tfjob_the_controller_changes_only_what_it_has_to(site: Site) -> None:
    manifest = tfjob(master(), workers(1), name=new_name())
    path = f"{TFJOBS.path(site.namespace)}/{manifest['metadata']['name']}"
    created = site.admin.create(TFJOBS.path(site.namespace), manifest)
    replicas = created["spec"]["replicaSpecs"]
    for each in replicas:
        each["template"]["spec"]["containers"][0]["image"] = "evil"
    for change in ({"replicaSpecs": replicas}, {"workerReplicas": 7}, {"cleanPodPolicy": None, "tfImage": "evil"}):
        assert_refused(site.controller, ONLY_SUSPEND, "PATCH", path, {"spec": change})
    for change in ({"labels": {"a": "b"}}, {"finalizers": ["example.com/a"]}, {"annotations": {"a": "b"}}):
        assert_refused(site.controller, ONLY_SPEC, "PATCH", path, {"metadata": change})
    assert_refused(site.controller, ONLY_TTL, "DELETE", path)
    assert_passes(site.controller, "PATCH", path, {"spec": {"RuntimeId": "abcd"}})
    assert attempt(site.controller, "PATCH", path, {"spec": {"RuntimeId": "dcba"}})
    assert_passes(site.controller, "PATCH", path, {"spec": {"suspend": True}})
    assert_passes(site.controller, "PATCH", f"{path}/status", {"status": {"phase": "Suspended"}})
    assert_passes(site.controller, "PATCH", f"{path}/scale", {"spec": {"replicas": 2}})
    site.admin.patch(path, {"spec": {"ttlSecondsAfterFinished": 0}})
    assert_passes(site.controller, "DELETE", path)


def test_of_a_trainjob_the_controller_changes_only_what_it_has_to(site: Site) -> None:
    manifest = trainjob(new_name(), 1)
    path = f"{TRAINJOBS.path(site.namespace)}/{manifest['metadata']['name']}"
    site.admin.create(TRAINJOBS.path(site.namespace), manifest)
    assert_refused(site.controller, ONLY_SUSPEND, "PATCH", path, {"spec": {"trainer": {"image": "evil"}}})
    assert_refused(site.controller, ONLY_SPEC, "PATCH", path, {"metadata": {"labels": {"a": "b"}}})
    assert_refused(site.controller, ONLY_TTL, "DELETE", path)
    assert_passes(site.controller, "PATCH", path, {"spec": {"suspend": True}})
    assert_passes(site.controller, "PATCH", f"{path}/status", {"status": {"phase": "Suspended"}})
    site.admin.patch(path, {"spec": {"ttlSecondsAfterFinished": 0}})
    assert_passes(site.controller, "DELETE", path)


def test_the_gang_scheduler_changes_one_annotation_of_pods(site: Site) -> None:
    path = new_pod(site, labels={"a": "b"}, annotations={"a": "b"})
    image = {"spec": {"containers": [{"name": "main", "image": "evil"}]}}
    assert_refused(site.gang_scheduler, NOTHING_OF_A_POD, "PATCH", path, image, content_type=STRATEGIC_MERGE_PATCH)
    more = [*site.admin.get(path)["spec"].get("tolerations", ()), {"operator": "Exists"}]
    for change in (
        {"spec": {"tolerations": more}},
        {"spec": {"activeDeadlineSeconds": 1}},
        {"metadata": {"labels": {"a": "c"}}},
        {"metadata": {"labels": {"app": "front"}}},
        {"metadata": {"finalizers": ["example.com/a"]}},
        {"metadata": owned_by("Job", "batch/v1")},
    ):
        assert_refused(site.gang_scheduler, NOTHING_OF_A_POD, "PATCH", path, change)
    for notes in ({"a": "c"}, {"a": None}, {"scheduling.kubeflow.org/node": NODE, "x": "y"}):
        change = {"metadata": {"annotations": notes}}
        assert_refused(site.gang_scheduler, NO_ANNOTATION, "PATCH", path, change)
    for node in (NODE, "node-b", None):
        change = {"metadata": {"annotations": {"scheduling.kubeflow.org/node": node}}}
        assert_passes(site.gang_scheduler, "PATCH", path, change)
    first = {"metadata": {"annotations": {"scheduling.kubeflow.org/node": NODE}}}
    assert_passes(site.gang_scheduler, "PATCH", new_pod(site), first)


def test_the_gang_scheduler_writes_the_status_of_pods_and_nothing_beside_it(site: Site) -> None:
    path = new_pod(site, labels={"a": "b"})
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    status = {"conditions": [condition], "nominatedNodeName": NODE}
    for metadata, rule in (
        ({"labels": {"a": "c"}}, NOTHING_OF_A_POD),
        ({"finalizers": ["example.com/a"]}, NOTHING_OF_A_POD),
        ({"annotations": {"a": "b"}}, NO_ANNOTATION),
    ):
        change = {"metadata": metadata, "status": status}
        assert_refused(site.gang_scheduler, rule, "PATCH", f"{path}/status", change)
    assert_passes(site.gang_scheduler, "PATCH", f"{path}/status", {"status": status})


def test_a_gated_pod_stays_gated(site: Site) -> None:
    path = f"/api/v1/namespaces/{site.namespace}/pods"
    name = new_name()
    spec = {"schedulingGates": [{"name": "example.com/a"}], "containers": [{"name": "main", "image": IMAGE}]}
    site.admin.create(path, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    opened = {"spec": {"schedulingGates": None}}
    assert_refused(site.gang_scheduler, NOTHING_OF_A_POD, "PATCH", f"{path}/{name}", opened)
    assert_passes(site.admin, "PATCH", f"{path}/{name}", opened)


def test_the_gang_scheduler_ungates_a_pod_only_with_its_node_and_changes_nothing_else_of_it(site: Site) -> None:
    path = f"/api/v1/namespaces/{site.namespace}/pods"
    name, other = new_name(), {"name": "example.com/a"}
    terms = [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}, {}]
    required = {"nodeSelectorTerms": terms}
    container = {"name": "main", "image": IMAGE}
    spec: Object = {
        "schedulingGates": [other, {"name": PLACEMENT_GATE}],
        "affinity": {"nodeAffinity": {REQUIRED_NODE_AFFINITY: required}},
        "initContainers": [{"name": "first", "image": IMAGE}],
        "containers": [container],
    }
    site.admin.create(path, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    ungated: Object = {"schedulingGates": [other]}
    pinned = {"affinity": {"nodeAffinity": {REQUIRED_NODE_AFFINITY: required_on_node(required, NODE)}}}
    good: Object = {**ungated, **pinned}
    zoned = [{"matchExpressions": [*terms[0]["matchExpressions"], {"key": "rack", "operator": "Exists"}]}, {}]
    preferred = [{"weight": 1, "preference": {"matchExpressions": [{"key": "rack", "operator": "Exists"}]}}]
    more = [*site.admin.get(f"{path}/{name}")["spec"].get("tolerations", ()), {"operator": "Exists"}]
    for change in (
        {"spec": ungated},
        {"spec": pinned},
        {"spec": {**pinned, "schedulingGates": None}},
        {"spec": {**ungated, "affinity": {"nodeAffinity": {REQUIRED_NODE_AFFINITY: {"nodeSelectorTerms": zoned}}}}},
        {"spec": good | {"tolerations": more}},
        {"spec": good | {"nodeSelector": {"a": "b"}}},
        {"spec": good | {"activeDeadlineSeconds": 1}},
        {"spec": good | {"containers": [{**container, "image": "evil"}]}},
        {"spec": good | {"initContainers": [{"name": "first", "image": "evil"}]}},
        {
            "spec": ungated
            | {
                "affinity": {
                    "nodeAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
                        **pinned["affinity"]["nodeAffinity"],
                    }
                }
            }
        },
        {"spec": good, "metadata": {"labels": {"a": "c"}}},
        {"spec": good, "metadata": owned_by("Job", "batch/v1")},
    ):
        assert_refused(site.gang_scheduler, NOTHING_OF_A_POD, "PATCH", f"{path}/{name}", change)
    assert_passes(site.gang_scheduler, "PATCH", f"{path}/{name}", {"spec": good})
    found = site.admin.get(f"{path}/{name}")["spec"]
    here = {"key": "metadata.name", "operator": "In", "values": [NODE]}
    assert found["schedulingGates"] == [other]
    assert found["affinity"]["nodeAffinity"][REQUIRED_NODE_AFFINITY]["nodeSelectorTerms"] == [
        {**terms[0], "matchFields": [here]},
        {},
    ]


def test_the_gang_scheduler_binds_pods_and_marks_none(site: Site) -> None:
    """The server itself puts the topology labels of the node on a pod that is bound."""
    path = new_pod(site)

    def binding(**metadata: Any) -> Object:
        target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        named = {"name": path.rpartition("/")[2], **metadata}
        return {"apiVersion": "v1", "kind": "Binding", "metadata": named, "target": target}

    legacy = f"/api/v1/namespaces/{site.namespace}/bindings"
    for metadata in ({"annotations": {"a": "b"}}, {"labels": {"app": "front"}}):
        for each in (f"{path}/binding", legacy):
            assert_refused(site.gang_scheduler, PLAIN_BINDINGS, "POST", each, binding(**metadata))
    assert_passes(site.gang_scheduler, "POST", f"{path}/binding", binding())
    assert site.admin.get(path)["spec"]["nodeName"] == NODE


def test_the_gang_scheduler_evicts_pods_by_their_uid_outside_of_the_namespaces_of_the_system(site: Site) -> None:
    path = new_pod(site)
    name, uid = path.rpartition("/")[2], site.admin.get(path)["metadata"]["uid"]

    def eviction(**options: Any) -> Object:
        return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options}

    by_uid = {"preconditions": {"uid": uid}}
    # What is tried in vain has the option that the query has.
    nothing = {"dryRun": ["All"]}
    assert_refused(site.gang_scheduler, EVICTIONS_BY_UID, "POST", f"{path}/eviction", eviction(**nothing))
    for namespace in ("kube-system", SYSTEM):
        there = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
        assert_refused(site.gang_scheduler, NO_FOREIGN_EVICTIONS, "POST", there, eviction(**by_uid, **nothing))
    assert_passes(site.gang_scheduler, "POST", f"{path}/eviction", eviction(**by_uid, gracePeriodSeconds=0))


def test_nobody_else_is_concerned(site: Site) -> None:
    """Neither an administrator nor an account of the same name in another namespace."""
    rights = [{"apiGroups": [""], "resources": ["configmaps", "pods"], "verbs": ["create", "patch", "delete"]}]
    users = [site.admin]
    for name in (CONTROLLER, GANG_SCHEDULER):
        token = new_service_account(site.admin, site.namespace, name, rights)
        await_rights(site.admin, token, site.namespace, Right("", "configmaps", "create"))
        users.append(site.admin.as_token(token))
    assert_refused(site.controller, ONLY_OWNED, "POST", path_of("configmaps", site.namespace), child("configmaps"))
    for user in users:
        assert_passes(user, "POST", path_of("configmaps", "kube-system"), child("configmaps"))
        pod = new_pod(site)
        assert_passes(user, "PATCH", pod, {"metadata": {"labels": {"a": "b"}}})
        assert_passes(user, "DELETE", pod)
