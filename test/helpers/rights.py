"""A scenario in which the controller uses all its permissions, and permissions that are removed one by one.

The jobs of the scenario, in one namespace:

- `adopted` has children that exist before it, without labels: they are read and labelled (get, patch)
- `whole` goes from its creation to the end of its time to live (create, status, pods deleted, the job deleted)
- `logged` runs for a while, and its worker's log is requested, although no kubelet has it
- `foreign` repeatedly finds an object that is not its own (events, and their series)
- `ganged` has a Gang that exists before it, without labels, and waits for capacity (get, create, patch)
- `trained` is a TrainJob that goes from its creation to the end of its time to live (status, delete)
- `launched` is a job for MPI, whose Secret is created (create), and `launched-before` one whose Secret exists before
  it, without labels: it is read, and not changed (get)
- `autoscaled` is an elastic TrainJob whose HorizontalPodAutoscaler is created and deleted (create, delete), and
  `autoscaled-before` one whose HorizontalPodAutoscaler exists before it, without labels (get, patch)
- `impatient` waits too long for its gang, and is suspended (patch)
- `silent` has a pod on a node without a kubelet, whose Events are read (list)
- `shrinking` loses a worker and is suspended (delete, patch), and its parameter server ends too early and is recreated;
  its master runs until `relent`
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.cluster import make_node, new_token
from helpers.controller import Jobs
from helpers.fleet import runs
from helpers.kubectl import MANIFESTS, Kubectl
from helpers.manifests import container, master, parameter_servers, pod_template, tfjob, workers
from helpers.poll import eventually
from helpers.trainmanifests import trainjob
from localcluster.api import Api
from localcluster.crds import documents
from localcluster.fakekubelet import by_annotations
from localcluster.podstatus import Outcome
from tfjob_controller.api.trainjob.types import TRAINJOBS
from tfjob_controller.programs.gangscheduler import GangScheduler
from tfjob_controller.programs.manager import Manager

Object = dict[str, Any]
RBAC = MANIFESTS / "base" / "rbac"
_RBAC_PATH = "/apis/rbac.authorization.k8s.io/v1"
_ACCOUNT = "controller"
_OF_ALL_NAMESPACES = ("clustertrainingruntimes",)
_TFJOB = "kubeflow.org/v1alpha1"
_FOREIGN = "foreign-master-cccc-0"


@dataclass(frozen=True, slots=True)
class Right:
    """One verb on one resource."""

    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}"


def shipped_rules() -> list[Object]:
    """Returns the rules of the controller's ClusterRole and of its leader election Role."""
    texts = ((RBAC / f"{name}.yaml").read_text() for name in ("controller-role", "leader-role"))
    roles = (role for text in texts for role in documents(text) if role["kind"] in ("ClusterRole", "Role"))
    return [rule for role in roles for rule in role["rules"]]


def rules_in(path: Path) -> list[Object]:
    """Returns all rules of the roles in a file."""
    return [rule for each in documents(path.read_text()) for rule in each.get("rules", ())]


def rights_of(rules: list[Object]) -> Iterator[Right]:
    for rule in rules:
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                yield Right(rule["apiGroups"][0], resource, verb)


# The rights of every account: to review itself and its rights, and to discover kinds.
_ANYBODYS = {
    Right("authentication.k8s.io", "selfsubjectreviews", "create"),
    Right("authorization.k8s.io", "selfsubjectaccessreviews", "create"),
    Right("authorization.k8s.io", "selfsubjectrulesreviews", "create"),
}
# Rights that allow privilege escalation or give access to all users' data. Neither program has any of them, with one
# exception: the controller may get the Secret of an MPI job by name.
TOO_MUCH = (
    "create pods",
    "create pods/exec",
    "get secrets",
    "list secrets",
    "watch secrets",
    "update nodes",
    "patch nodes",
    "create serviceaccounts/token",
    "impersonate users",
    "impersonate serviceaccounts",
    "escalate clusterroles",
    "bind clusterroles",
    "create rolebindings",
    "create clusterrolebindings",
    "approve certificatesigningrequests",
)


def allowed(api: Api, token: str, namespace: str) -> set[tuple[Right, str]]:
    """Returns the rights of an account in a namespace beyond those of every account, with the name that limits each."""
    user = api.as_token(token)
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    status = user.create("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", body)["status"]
    user.close()
    assert not status["incomplete"]
    return {(right, name) for right, name in named_rights_of(status["resourceRules"]) if right not in _ANYBODYS}


def named_rights_of(rules: list[Object]) -> Iterator[tuple[Right, str]]:
    """Returns rights with the name that limits each, empty for none."""
    for rule in rules:
        for name in rule.get("resourceNames") or [""]:
            for group in rule["apiGroups"]:
                yield from ((right, name) for right in rights_of([{**rule, "apiGroups": [group]}]))


def without(rules: list[Object], right: Right) -> list[Object]:
    """Returns the same rules without one verb of one resource."""
    kept = []
    for rule in rules:
        hit = rule["apiGroups"] == [right.group] and rule["resources"] == [right.resource]
        verbs = [verb for verb in rule["verbs"] if not (hit and verb == right.verb)]
        if verbs:
            kept.append({**rule, "verbs": verbs})
    return kept


@contextlib.contextmanager
def account_with(api: Api, namespace: str, rules: list[Object]) -> Iterator[str]:
    """Creates a ServiceAccount with only these rights in the namespace; yields its token once they are in effect.

    Cluster-scoped resources need a ClusterRole, which is deleted afterwards.
    """
    here = [rule for rule in rules if rule["resources"][0] not in _OF_ALL_NAMESPACES]
    everywhere = [rule for rule in rules if rule not in here]
    name = f"{_ACCOUNT}-{namespace}"
    token = _account(api, namespace, here)
    try:
        _bind(api, "", name, everywhere, namespace)
        if everywhere:
            await_rights(api, token, "", next(rights_of(everywhere)))
        yield token
    finally:
        for plural in ("clusterrolebindings", "clusterroles"):
            api.delete(f"{_RBAC_PATH}/{plural}/{name}")


def _account(api: Api, namespace: str, rules: list[Object]) -> str:
    meta = {"name": _ACCOUNT}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}
    api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
    _bind(api, namespace, _ACCOUNT, rules, namespace)
    token = new_token(api, namespace, _ACCOUNT)
    await_rights(api, token, namespace, next(rights_of(rules)))
    return token


def _bind(api: Api, namespace: str, name: str, rules: list[Object], account_namespace: str) -> None:
    """Grants the account these rights in one namespace; without a namespace, those on cluster-scoped resources."""
    scope, prefix = (f"/namespaces/{namespace}/", "") if namespace else ("/", "Cluster")
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}}
    binding = {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": f"{prefix}Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": _ACCOUNT, "namespace": account_namespace}],
    }
    plural = f"{_RBAC_PATH}{scope}{prefix.lower()}role"
    api.create(f"{plural}s", {**head, "kind": f"{prefix}Role", "rules": rules})
    api.create(f"{plural}bindings", {**head, "kind": f"{prefix}RoleBinding", **binding})


def await_rights(api: Api, token: str, namespace: str, right: Right) -> None:
    """Waits until the server applies a role, whose rules take effect together after a short delay."""
    user = api.as_token(token)
    attributes = {"namespace": namespace, "verb": right.verb, "group": right.group, "resource": right.resource}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    eventually(lambda: user.create(path, review)["status"]["allowed"])
    user.close()


def await_policies(kubectl: Kubectl, account: str, path: str, manifest: Object) -> None:
    """Waits until the shipped admission policies refuse this create of the ServiceAccount of the system namespace.

    kubectl impersonates it, so that the audit log does not count the request among those of the account.
    """
    user = f"--as=system:serviceaccount:{kubectl.namespace}:{account}"

    def is_refused() -> bool:
        answer = kubectl.run("create", "--raw", f"{path}?dryRun=All", user, "-f", "-", manifest=manifest)
        return "ValidatingAdmissionPolicy" in answer.error

    eventually(is_refused)


def forbidden(program: Manager | GangScheduler) -> float:
    """Returns the number of the account's requests that were refused with 403."""
    return sum(
        sample.value
        for metric in program.metrics.registry.collect()
        for sample in metric.samples
        if sample.name == "rest_client_requests_total" and sample.labels["code"] == "403"
    )


class Play:
    """See the module. Call `prepare` before the controller starts, and `goes_on` repeatedly while it works."""

    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs
        self._has_shrunk = False
        self._relents = False

    def behaviour(self, pod: Object, attempt: int) -> Outcome:
        """The behaviour of pods for the scenario's kubelet."""
        if pod["metadata"]["name"].startswith("shrinking-master") and not self._relents:
            return Outcome()
        return by_annotations(pod, attempt)

    def prepare(self) -> None:
        self._adopted()
        self._foreign()
        self._ganged()
        self._wished()
        self._trained()
        servers = parameter_servers(1)
        whole = tfjob(master(template=runs(0.3)), workers(1, template=runs(60)), servers, name="whole", **_IMAGE)
        whole["spec"] |= {"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 0}
        self.jobs.submit(whole)
        logged = tfjob(master(template=runs(8)), workers(1, template=runs(60)), name="logged")
        logged["spec"]["autoscaling"] = {"maxWorkers": 1, "progress": {"pattern": "step ([0-9]+)"}}
        self.jobs.submit(logged)
        self._silent()
        early = parameter_servers(1, template=runs(0.2))
        shrinking = tfjob(master(template=runs(0.3)), workers(2, template=runs(60)), early, name="shrinking")
        self.jobs.submit(shrinking)

    def goes_on(self) -> None:
        """Makes the user's changes: once `shrinking` has all its children, it is scaled down and suspended.

        Also acts as the gang scheduler, which requests that `wished` shrinks.
        """
        self._wish()
        has_all = any("shrinking-worker-" in name and name.endswith("-1") for name in self.jobs.children("jobs"))
        if has_all and not self._has_shrunk:
            self._has_shrunk = True
            self.jobs.change({"spec": {"workerReplicas": 1}}, "shrinking")
            self.jobs.change({"spec": {"suspend": True}}, "shrinking")

    def relent(self) -> None:
        """Lets all jobs end."""
        self._relents = True
        self.jobs.change({"spec": {"suspend": False}}, "shrinking")
        path = f"/apis/batch/v1/namespaces/{self.jobs.namespace}/jobs/{_FOREIGN}"
        self.jobs.api.delete(path, propagationPolicy="Background")

    def _silent(self) -> None:
        # Unschedulable, because the pods of other jobs would never start there.
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "silent"}, "spec": {"unschedulable": True}}
        self.jobs.api.create("/api/v1/nodes", node)
        make_node(self.jobs.api, "silent")
        self.jobs.submit(tfjob(master(template=pod_template(container(), nodeName="silent")), name="silent"))

    def _adopted(self) -> None:
        job = tfjob(master(template=runs(1)), parameter_servers(1), name="adopted", RuntimeId="aaaa", **_IMAGE)
        owner = self._owner(self.jobs.submit(job))
        name = "adopted-master-aaaa-0"
        labels = {"kubeflow.org": "", "runtime_id": "aaaa", "tf_job_name": "adopted"}
        labels |= {"job_type": "MASTER", "task_index": "0"}
        pod = runs(1)
        pod["metadata"]["labels"] = labels
        pod["spec"]["restartPolicy"] = "Never"
        # It is created suspended, so that nothing happens before the controller has seen it and the play resumes it.
        spec = {"suspend": True, "template": pod}
        self._make("/apis/batch/v1", "jobs", name, owner, apiVersion="batch/v1", kind="Job", spec=spec)
        service = {"clusterIP": "None", "selector": labels, "ports": [{"name": "tf-port", "port": 2222}]}
        self._make("/api/v1", "services", name, owner, apiVersion="v1", kind="Service", spec=service)
        self._make("/api/v1", "configmaps", "cm-ps-aaaa", owner, apiVersion="v1", kind="ConfigMap", data={"x": "y"})

    def _foreign(self) -> None:
        self.jobs.submit(tfjob(master(template=runs(0.3)), name="foreign", RuntimeId="cccc"))
        template = runs(1)
        template["spec"]["restartPolicy"] = "Never"
        spec = {"suspend": True, "template": template}
        self._make("/apis/batch/v1", "jobs", _FOREIGN, None, apiVersion="batch/v1", kind="Job", spec=spec)

    def _ganged(self) -> None:
        job = tfjob(master(template=runs(0.3)), name="ganged", RuntimeId="dddd", gang={"enabled": True})
        owner = self._owner(self.jobs.submit(job))
        group, name = "scheduling.kubeflow.org/v1alpha1", "ganged-dddd"
        spec = {"members": [{"name": "master"}]}
        self._make(f"/apis/{group}", "gangs", name, owner, apiVersion=group, kind="Gang", spec=spec)

    def _wished(self) -> None:
        job = tfjob(master(template=runs(60)), workers(2, template=runs(60)), name="wished", RuntimeId="eeee")
        job["spec"] |= {"gang": {"enabled": True}, "autoscaling": {"maxWorkers": 2}}
        self.jobs.submit(job)

    def _wish(self) -> None:
        self._wish_of("wished-", "worker", "master-0")
        self._wish_of("stretched-", "node")

    def _wish_of(self, prefix: str, kind: str, *others: str) -> None:
        """Requests that a gang of two members of this kind shrinks."""
        folder = f"/apis/scheduling.kubeflow.org/v1alpha1/namespaces/{self.jobs.namespace}/gangs"
        gangs = self.jobs.api.list(folder)
        gang = next((each for each in gangs if each["metadata"]["name"].startswith(prefix)), None)
        if gang is None or gang.get("status"):
            return
        path = f"{folder}/{gang['metadata']['name']}"
        placement = [{"node": "fake-1", "members": [*others, f"{kind}-0", f"{kind}-1"]}]
        wish = {"targetMembers": {kind: 1}, "leaving": [f"{kind}-1"], "targetReason": "a test"}
        seen = {"observedGeneration": gang["metadata"]["generation"]}
        status = {"phase": "Bound", "attempt": 1, "placement": placement, **wish, **seen}
        self.jobs.api.patch(f"{path}/status", {"status": status})

    def _trained(self) -> None:
        """Submits the TrainJobs."""
        notes = runs(0.3)["metadata"]["annotations"]
        self._train(trainjob("trained", 1, annotations=notes, ttlSecondsAfterFinished=0))
        self._train(trainjob("launched", 1, ["mpirun", "hostname"], annotations=notes))
        before = self._train(trainjob("launched-before", 1, ["mpirun", "hostname"], annotations=notes))
        owner = {**self._owner(before), "apiVersion": before["apiVersion"], "kind": before["kind"]}
        fields = {"apiVersion": "v1", "kind": "Secret", "immutable": True}
        self._make("/api/v1", "secrets", "launched-before-mpi-ssh-auth", owner, **fields)
        elastic = {"gang": {"enabled": True}, "elasticPolicy": {"minNodes": 1, "maxNodes": 2}}
        long = runs(60)["metadata"]["annotations"]
        self._train(trainjob("stretched", 2, ["torchrun", "x"], annotations=long, **elastic))
        self._autoscaled(notes)
        gang = {"enabled": True, "timeoutSeconds": 1, "onTimeout": "Suspend"}
        self._train(trainjob("impatient", 1, gang=gang))

    def _autoscaled(self, notes: dict[str, str]) -> None:
        target = {
            "type": "Resource",
            "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
        }
        policy = {"elasticPolicy": {"minNodes": 1, "maxNodes": 2, "metrics": [target]}}
        self._train(trainjob("autoscaled", 1, ["torchrun", "x"], annotations=notes, **policy))
        before = self._train(trainjob("autoscaled-before", 1, ["torchrun", "x"], annotations=notes, **policy))
        owner = {**self._owner(before), "apiVersion": before["apiVersion"], "kind": before["kind"]}
        spec = {
            "scaleTargetRef": {"apiVersion": before["apiVersion"], "kind": "TrainJob", "name": "autoscaled-before"},
            "maxReplicas": 3,
        }
        fields = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "spec": spec}
        self._make("/apis/autoscaling/v2", "horizontalpodautoscalers", "autoscaled-before", owner, **fields)

    def _train(self, manifest: Object) -> Object:
        return self.jobs.api.create(TRAINJOBS.path(self.jobs.namespace), manifest)

    def _owner(self, job: Object) -> Object:
        meta = job["metadata"]
        return {"apiVersion": _TFJOB, "kind": "TFJob", "name": meta["name"], "uid": meta["uid"], "controller": True}

    def _make(self, group: str, plural: str, name: str, owner: Object | None, **fields: Any) -> None:
        metadata = {"name": name, **({"ownerReferences": [owner]} if owner else {})}
        self.jobs.api.create(f"{group}/namespaces/{self.jobs.namespace}/{plural}", {**fields, "metadata": metadata})


_IMAGE = {"tfImage": "localhost/tensorflow"}
