"""What a stolen account of the controller or of the gang scheduler may write *into* objects, on a real API server.

Each object has an owner that exists, so that only its content can be the reason of a refusal.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from helpers.policies import (
    CHILDREN,
    NODE,
    Object,
    Site,
    assert_passes,
    assert_refused,
    child,
    job_of,
    new_name,
    new_pod,
    owned_by,
    path_of,
)
from helpers.poll import eventually
from helpers.renderings import SYSTEM
from localcluster.api import RefusedError
from tfjob_controller.api.gang import GANGS as GANG_KIND
from tfjob_controller.gangscheduler.provisioning.bodies import request_bodies

pytestmark = pytest.mark.cluster

OWN_NAMESPACE = "in its own namespace"
ONLY_SSH_KEYS = "the controller writes only Secrets with the SSH keys of an MPI job"
ONLY_HEADLESS = "the controller writes only headless Services for pods of jobs, without external addresses"
ONLY_RUNTIME_ID = "the controller writes only Services with the RuntimeId of the job in their names"
ONLY_ITS_JOB = "the controller writes only HorizontalPodAutoscalers that scale the job that controls them"
ONLY_NAMES = "the controller writes only ConfigMaps with names for the files of jobs"
ONLY_CLAIMS = "the controller writes only PersistentVolumeClaims whose name ends with that of the job"
ONLY_METADATA = "the controller changes only the metadata of ConfigMaps and Services"
NO_TEMPLATE = "the controller does not change the template of a Job"
NO_NODES_FOR_SYSTEM = "the gang scheduler asks for no nodes in its own namespace or in those of Kubernetes itself"
ONLY_WITH_LABEL = "the gang scheduler creates and deletes only objects with its label app.kubernetes.io/managed-by"
ONLY_OF_GANGS = "the gang scheduler creates only requests and templates of a Gang"
ONLY_OWN_TEMPLATES = "the gang scheduler creates only requests for templates of their own names, without parameters"
ONLY_EMPTY_PODS = "the gang scheduler creates only templates of pods that could run nothing"
NOTHING_OF_A_VOLUME = "the gang scheduler changes nothing of the spec of a volume but binds it to a claim"
NOT_BOUND = "the gang scheduler binds no volume that is bound, or reserved for another claim"
NO_METADATA = "the gang scheduler changes no metadata of volumes and claims but the annotations of kube-scheduler"
MANAGED = {"app.kubernetes.io/managed-by": "gang-scheduler"}
GANG = "scheduling.kubeflow.org/v1alpha1"
GANGS = f"/apis/{GANG}/namespaces/{{}}/gangs"
REQUESTS = "/apis/autoscaling.x-k8s.io/v1/namespaces/{}/provisioningrequests"
TEMPLATES = "/api/v1/namespaces/{}/podtemplates"
PSA_ENFORCE = "pod-security.kubernetes.io/enforce"
CLAIMS = "/api/v1/namespaces/{}/persistentvolumeclaims"
AUTOSCALERS = "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers"


def owner_in(metadata: Object) -> Object:
    (owner,) = metadata["ownerReferences"]
    return dict(owner)


def autoscaler(metadata: Object, **target: str) -> Object:
    """A HorizontalPodAutoscaler of the owner, whose target differs in these fields."""
    owner = owner_in(metadata)
    own = {name: owner[name] for name in ("apiVersion", "kind", "name")}
    spec = {"scaleTargetRef": {**own, **target}, "maxReplicas": 1}
    body = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "spec": spec}
    return {**body, "metadata": {"name": new_name(), **metadata}}


def claim(metadata: Object, name: str) -> Object:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": spec}
    return {**body, "metadata": {"name": name, **metadata}}


def test_the_controller_creates_no_secrets_but_ssh_keys(site: Site) -> None:
    metadata = {**job_of(site, "TrainJob"), "annotations": {"kubernetes.io/service-account.name": "default"}}
    attacks: tuple[Object, ...] = (
        {"type": "kubernetes.io/service-account-token", "data": {}, "immutable": False},
        {"type": "Opaque"},
        {"type": "helm.sh/release.v1"},
        # Argo CD administers the clusters of such Secrets.
        {"data": {"ssh-privatekey": "eA==", "server": "eA==", "name": "eA==", "config": "eA=="}},
        {"metadata": {"name": "tls-of-the-ingress"}},
    )
    for content in attacks:
        body = child("secrets", metadata)
        body |= {**content, "metadata": {**body["metadata"], **content.get("metadata", {})}}
        assert_refused(site.controller, ONLY_SSH_KEYS, "POST", path_of("secrets", site.namespace), body)


def test_the_controller_creates_no_services_but_headless_ones_of_jobs(site: Site) -> None:
    metadata = job_of(site)
    attacks: tuple[Object, ...] = (
        {"clusterIP": None},
        {"clusterIP": None, "type": "NodePort"},
        {"clusterIP": None, "type": "LoadBalancer"},
        {"clusterIP": None, "type": "ExternalName", "externalName": "evil.example"},
        {"clusterIP": None, "externalIPs": ["8.8.8.8"]},
        {"externalIPs": ["8.8.8.8"]},
        {"selector": {"app": "database"}},
        {"selector": None},
    )
    for spec in attacks:
        body = child("services", metadata)
        body["spec"] = {name: value for name, value in {**body["spec"], **spec}.items() if value is not None}
        assert_refused(site.controller, ONLY_HEADLESS, "POST", path_of("services", site.namespace), body)


def test_the_controller_scales_by_an_autoscaler_only_the_job_that_controls_it(site: Site) -> None:
    metadata, path = job_of(site, "TrainJob"), AUTOSCALERS.format(site.namespace)
    for target in (
        {"apiVersion": "apps/v1", "kind": "Deployment"},
        {"kind": "TFJob"},
        {"apiVersion": "example.com/v1"},
        {"name": "another"},
    ):
        assert_refused(site.controller, ONLY_ITS_JOB, "POST", path, autoscaler(metadata, **target))
    own = autoscaler(metadata)
    assert_passes(site.controller, "POST", path, own)
    path = f"{path}/{own['metadata']['name']}"
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "front"}
    assert_refused(site.controller, ONLY_ITS_JOB, "PATCH", path, {"spec": {"scaleTargetRef": deployment}})
    assert_passes(site.controller, "PATCH", path, {"spec": {"maxReplicas": 2}})


def test_the_controller_creates_no_service_under_a_name_that_others_look_up(site: Site) -> None:
    """A headless Service `default` with a pod `kubernetes` would answer to `kubernetes.default` in that namespace."""
    for name in ("default", "database", "database-wxyz"):
        body = child("services", {**job_of(site)})
        body["metadata"]["name"] = name
        assert_refused(site.controller, ONLY_RUNTIME_ID, "POST", path_of("services", site.namespace), body)


def test_the_controller_creates_config_maps_and_claims_only_under_names_for_jobs(site: Site) -> None:
    metadata = job_of(site)
    for name in ("kube-root-ca.crt", "istio-ca-root-cert", "app-config", "cm-ps-abcde"):
        body = {**child("configmaps"), "metadata": {**metadata, "name": name}}
        assert_refused(site.controller, ONLY_NAMES, "POST", path_of("configmaps", site.namespace), body)
    body = {**child("configmaps"), "metadata": {**metadata, "name": "cm-ps-abcd"}}
    assert_passes(site.controller, "POST", path_of("configmaps", site.namespace), body)
    # The name of the volume that a StatefulSet is going to mount.
    path = CLAIMS.format(site.namespace)
    assert_refused(site.controller, ONLY_CLAIMS, "POST", path, claim(metadata, "data-database-0"))
    assert_passes(site.controller, "POST", path, claim(metadata, f"data-{owner_in(metadata)['name']}"))


def test_the_controller_changes_neither_scripts_nor_services_nor_templates_of_running_jobs(site: Site) -> None:
    attacks: tuple[tuple[str, Object, str], ...] = (
        ("configmaps", {"data": {"x": "rm -rf /"}}, ONLY_METADATA),
        ("configmaps", {"binaryData": {"y": "eQ=="}}, ONLY_METADATA),
        ("services", {"spec": {"selector": {"runtime_id": "abcd", "app": "database"}}}, ONLY_METADATA),
        ("services", {"spec": {"externalIPs": ["8.8.8.8"]}}, ONLY_HEADLESS),
        ("jobs", {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}, NO_TEMPLATE),
    )
    for plural, change, rule in attacks:
        body = child(plural, job_of(site))
        if plural == "jobs":
            # Only of such a Job does the API server let the template change.
            body["spec"] = {**body["spec"], "suspend": True}
        site.admin.create(path_of(plural, site.namespace), body)
        path = path_of(plural, site.namespace, body["metadata"]["name"])
        assert_refused(site.controller, rule, "PATCH", path, change)
        assert_passes(site.controller, "PATCH", path, {"metadata": {"labels": {"a": "b"}}})


def test_the_controller_writes_and_deletes_nothing_in_its_own_namespace(site: Site) -> None:
    metadata = owned_by("TFJob", "kubeflow.org/v1alpha1", name="owner")
    for plural in CHILDREN:
        assert_refused(site.controller, OWN_NAMESPACE, "POST", path_of(plural, SYSTEM), child(plural, metadata))
    for path, body in ((AUTOSCALERS, autoscaler(metadata)), (CLAIMS, claim(metadata, "data-owner"))):
        assert_refused(site.controller, OWN_NAMESPACE, "POST", path.format(SYSTEM), body)
    site.admin.patch(f"/api/v1/namespaces/{SYSTEM}", {"metadata": {"labels": {PSA_ENFORCE: None}}})
    of_job: Any = {"labels": {"runtime_id": "abcd"}, **owned_by("Job", "batch/v1"), "finalizers": ["example.com/kept"]}
    assert_refused(site.controller, OWN_NAMESPACE, "DELETE", eventually(lambda: pod_if_secure(site, SYSTEM, **of_job)))


def pod_if_secure(site: Site, namespace: str, **metadata: Any) -> str:
    """The path of a new pod; empty while Pod Security, which reads a cache, knows the namespace's last label."""
    try:
        return new_pod(site, namespace, **metadata)
    except RefusedError as error:
        if "PodSecurity" not in str(error):
            raise
        return ""


def request_of(gang: str, **spec: Any) -> Object:
    """A ProvisioningRequest as the gang scheduler creates it, with these fields of its spec."""
    pod_sets = [{"count": 1, "podTemplateRef": {"name": "large-0-worker"}}]
    return {
        "apiVersion": "autoscaling.x-k8s.io/v1",
        "kind": "ProvisioningRequest",
        "metadata": {"name": "large-0", "labels": MANAGED, **owned_by("Gang", GANG, name=gang)},
        "spec": {"provisioningClassName": "check-capacity.autoscaling.x-k8s.io", "podSets": pod_sets, **spec},
    }


def template_of(gang: str, container: Object | None = None, **spec: Any) -> Object:
    containers = [{"name": "worker", "image": "none", **(container or {})}]
    own = {"containers": containers, "restartPolicy": "Never", "automountServiceAccountToken": False}
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": new_name(), "labels": MANAGED, **owned_by("Gang", GANG, name=gang)},
        "template": {"spec": {**own, **spec}},
    }


def test_the_gang_scheduler_asks_only_for_nodes_of_gangs(site: Site) -> None:
    user, path = site.gang_scheduler, REQUESTS.format(site.namespace)
    others = [{"count": 1, "podTemplateRef": {"name": "others"}}]
    for spec in ({"podSets": others}, {"parameters": {"a": "b"}}):
        assert_refused(user, ONLY_OWN_TEMPLATES, "POST", path, request_of("large", **spec))
    nobodys = request_of("large")
    nobodys["metadata"] |= owned_by("Deployment", "apps/v1")
    assert_refused(user, ONLY_OF_GANGS, "POST", path, nobodys)
    for namespace in (SYSTEM, "kube-system"):
        assert_refused(user, NO_NODES_FOR_SYSTEM, "POST", REQUESTS.format(namespace), request_of("large"))
    foreign = request_of("large")
    # Without its owner, which is not there: the garbage collector would delete it.
    foreign["metadata"] |= {"labels": {}, "name": "foreign", "ownerReferences": []}
    site.admin.create(path, foreign)
    assert_refused(user, ONLY_WITH_LABEL, "DELETE", f"{path}/foreign")


def test_the_gang_scheduler_creates_templates_of_pods_that_could_run_nothing(site: Site) -> None:
    user, path = site.gang_scheduler, TEMPLATES.format(site.namespace)
    for template in (
        template_of("large", {"image": "evil"}),
        template_of("large", {"command": ["sh"]}),
        template_of("large", {"env": [{"name": "a", "value": "b"}]}),
        template_of("large", automountServiceAccountToken=True),
        template_of("large", serviceAccountName="admin"),
        template_of("large", hostNetwork=True),
        template_of("large", securityContext={"runAsUser": 0}),
        template_of("large", volumes=[{"name": "a", "hostPath": {"path": "/"}}]),
        template_of("large", initContainers=[{"name": "a", "image": "none"}]),
    ):
        assert_refused(user, ONLY_EMPTY_PODS, "POST", path, template)
    foreign = template_of("large")
    foreign["metadata"] |= {"labels": {}, "name": "foreign", "ownerReferences": []}
    site.admin.create(path, foreign)
    assert_refused(user, ONLY_WITH_LABEL, "DELETE", f"{path}/foreign")


def test_the_gang_scheduler_creates_and_deletes_its_own_requests_with_their_templates(site: Site) -> None:
    member: Object = {
        "name": "worker",
        "count": 3,
        "resources": {"cpu": "1", "nvidia.com/gpu": "1"},
        "nodeSelector": {"a": "b"},
        "tolerations": [{"operator": "Exists"}],
        "nodeAffinity": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]},
        "priorityClassName": "system-node-critical",
    }
    body = {**child("gangs"), "spec": {"members": [member, {**member, "name": "master", "count": 1}]}}
    gang = GANG_KIND.decode(msgspec.json.encode(site.admin.create(GANGS.format(site.namespace), body)))
    bodies = request_bodies(gang, "check-capacity.autoscaling.x-k8s.io", 1)
    objects = [(TEMPLATES, each) for each in bodies.templates] + [(REQUESTS, bodies.request)]
    for path, each in objects:
        assert_passes(site.gang_scheduler, "POST", path.format(site.namespace), each)
    for path, each in objects:
        path = f"{path.format(site.namespace)}/{each['metadata']['name']}"
        assert_passes(site.gang_scheduler, "DELETE", path)


def test_the_gang_scheduler_binds_free_volumes_and_takes_none_of_others(site: Site) -> None:
    """Its rights are those of kube-scheduler, which may change any volume."""
    user, path = site.gang_scheduler, "/api/v1/persistentvolumes"
    spec: Object = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/none"}}
    spec |= {"storageClassName": "none", "persistentVolumeReclaimPolicy": "Retain"}
    theirs = {"namespace": site.namespace, "name": "theirs", "uid": "00000000-0000-0000-0000-000000000001"}
    mine = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "mine", "uid": "x"}
    reserved = {"namespace": site.namespace, "name": "theirs"}
    for name, claim_ref in (("free", {}), ("bound", {"claimRef": theirs}), ("reserved", {"claimRef": reserved})):
        site.admin.create(path, {"metadata": {"name": name}, "spec": {**spec, **claim_ref}})
    for name in ("bound", "reserved"):
        assert_refused(user, NOT_BOUND, "PATCH", f"{path}/{name}", {"spec": {"claimRef": mine}})
    for change in ({"persistentVolumeReclaimPolicy": "Delete"}, {"accessModes": ["ReadWriteMany"]}):
        assert_refused(user, NOTHING_OF_A_VOLUME, "PATCH", f"{path}/free", {"spec": change})
    for metadata in ({"labels": {"a": "b"}}, {"annotations": {"a": "b"}}, {"finalizers": ["example.com/a"]}):
        assert_refused(user, NO_METADATA, "PATCH", f"{path}/free", {"metadata": metadata})
    by_scheduler = {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}}
    bound = {"metadata": by_scheduler, "spec": {"claimRef": {**mine, "uid": theirs["uid"]}}}
    assert_passes(user, "PATCH", f"{path}/free", bound)
    assert_passes(user, "PATCH", f"{path}/reserved", {"spec": {"claimRef": theirs}})
    site.admin.create(CLAIMS.format(site.namespace), claim({}, "waits"))
    path = f"{CLAIMS.format(site.namespace)}/waits"
    assert_refused(user, NOTHING_OF_A_VOLUME, "PATCH", path, {"spec": {"volumeName": "bound"}})
    assert_passes(user, "PATCH", path, {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": NODE}}})
