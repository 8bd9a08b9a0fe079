"""Responses of a real API server and kubectl to jobs and runtimes, with the CRDs of this tree and no controller."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings

from generate.kubernetestypes import recorded, types_in
from helpers.anyspec import specs
from helpers.anytrainspec import runtime_specs, train_specs
from helpers.badmanifests import BAD_MANIFESTS
from helpers.badtrainmanifests import BAD_RUNTIMES, BAD_TRAINJOBS
from helpers.goodmanifests import GOOD_MANIFESTS, Good
from helpers.goodtrainmanifests import GOOD_RUNTIMES, GOOD_TRAINJOBS
from helpers.kubectl import MANIFESTS, Kubectl, refusal
from helpers.kubernetesversion import is_older_than
from helpers.manifests import Manifest, container, master, pod_template, tfjob, workers
from helpers.poll import eventually
from helpers.refusals import Bad, Change
from helpers.serverwords import comparable, problems_of_change, problems_of_creation
from helpers.specchanges import CHANGES
from helpers.trainchanges import TRAIN_CHANGES
from helpers.trainmanifests import override, role_template, runtime, trainjob
from localcluster.api import Api, RefusedError
from tfjob_controller.api.tfjob.types import TFJOBS
from tfjob_controller.api.tfjob.validation import WORKERS_OUTSIDE, validate
from tfjob_controller.api.trainjob.runtime import TRAINING_RUNTIMES
from tfjob_controller.api.trainjob.types import TRAINJOBS
from tfjob_controller.api.trainjob.validation import validate as validate_trainjob
from tfjob_controller.api.trainjob.validation import validate_runtime

pytestmark = pytest.mark.cluster

TFJOB_STATUS = {
    "phase": "Running",
    "state": "Running",
    "summary": "Running",
    "reason": "waits for nobody",
    "ready": {"master": "1/1", "worker": "0/1", "ps": "2/2"},
    "workerReplicas": 1,
    "workerSelector": "job_type=WORKER,runtime_id=76no",
    "replicaStatuses": [{"tf_replica_type": "PS", "state": "Running", "ReplicasStates": {"Running": 2}}],
    "conditions": [
        {
            "type": "Running",
            "status": "True",
            "reason": "ChiefRunning",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": 1,
        }
    ],
    "succeededIndexes": ["worker-0"],
    "restartCounts": {"uid": 2},
    "startTime": "2026-01-01T00:00:00Z",
}
TRAINJOB_STATUS = {
    "phase": "Running",
    "state": "RUNNING",
    "summary": "Running",
    "reason": "waits for nobody",
    "nodes": "1/2",
    "runtime": "torch-distributed",
    "restarts": 3,
    "restartCounts": {"uid": 3},
    "succeededIndexes": ["dataset-initializer-0"],
    "jobsStatus": [
        {"name": "node", "replicas": 2, "ready": 1, "active": 2, "succeeded": 0, "failed": 0, "suspended": 0}
    ],
    "metrics": [{"name": "loss", "value": "0.125", "logTime": "2026-01-01T00:00:00Z"}],
    "progress": "step 40",
    "conditions": [
        {
            "type": "Running",
            "status": "True",
            "reason": "AllNodesRunning",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": 1,
        }
    ],
    "startTime": "2026-01-01T00:00:00Z",
}


@dataclass(frozen=True, slots=True)
class Stored:
    """A job of a kind that the server has stored with a status, and what `kubectl get` prints about it.

    `written` is what the controller writes into its spec.
    """

    short_name: str
    manifest: Manifest
    written: Mapping[str, Any]
    status: Mapping[str, Any]
    columns: Mapping[str, str]
    wide_columns: Mapping[str, Sequence[str]]

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])


(WHOLE_TRAINJOB,) = (good.manifest for good in GOOD_TRAINJOBS if good.name == "every-field")
KINDS = (
    Stored(
        "tfj",
        tfjob(),
        {"RuntimeId": "76no"},
        TFJOB_STATUS,
        {"PHASE": "Running", "STATE": "Running", "MASTERS": "1/1", "WORKERS": "0/1", "PS": "2/2"},
        {"RUNTIME-ID": ["76no"], "REASON": ["waits", "for", "nobody"]},
    ),
    Stored(
        "trj",
        WHOLE_TRAINJOB,
        {},
        TRAINJOB_STATUS,
        {"STATE": "Running", "NODES": "1/2", "RUNTIME": "torch-distributed"},
        {"REASON": ["waits", "for", "nobody"], "RESTARTS": ["3"]},
    ),
)
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.manifest["kind"])


def named(case: Bad | Good | Change) -> str:
    return case.name


@pytest.mark.parametrize("bad", [*BAD_MANIFESTS, *BAD_TRAINJOBS, *BAD_RUNTIMES], ids=named)
def test_an_invalid_object_is_refused_with_these_messages(api: Api, crd_namespace: str, bad: Bad) -> None:
    expected = (is_older_than("1.36") and bad.without_formats) or bad.answers
    assert problems_of_creation(api, crd_namespace, bad.manifest) == tuple(map(comparable, expected))


@pytest.mark.parametrize("bad", [BAD_MANIFESTS[0], BAD_TRAINJOBS[0], BAD_RUNTIMES[0]], ids=named)
def test_kubectl_says_what_the_server_has_against_an_object(kubectl: Kubectl, bad: Bad) -> None:
    answer = kubectl.run("apply", "--dry-run=server", "-f", "-", manifest=bad.manifest)
    expected = refusal(bad.manifest["kind"], bad.manifest["metadata"]["name"], *bad.answers)
    assert (answer.code, comparable(answer.error.rstrip("\n"))) == (1, comparable(expected))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(spec=specs)
def test_the_controller_refuses_all_tfjobs_that_the_api_server_refuses(api: Api, crd_namespace: str, spec: Any) -> None:
    """The other way round does not hold: the controller looks closer at what it adds to, and null is absent to it.

    The types in a template are those of Kubernetes, which refuses the children of a job that breaks them.
    """
    assume("null" not in json.dumps(spec))
    manifest = {**tfjob(), "spec": spec}
    refusal = api_refusal(api, TFJOBS.path(crd_namespace), manifest)
    assume(".template.spec." not in (refusal or ""))
    assert refusal is None or validate(TFJOBS.decode(json.dumps(manifest).encode())) is not None, refusal


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(spec=train_specs, its=runtime_specs)
def test_the_controller_refuses_all_train_jobs_and_runtimes_that_the_api_server_refuses(
    api: Api, crd_namespace: str, spec: Any, its: Any
) -> None:
    """Except for nulls and empty texts: those are absent fields to the controller, and the server requires more."""
    for plural, manifest in (
        ("trainjobs", {**trainjob(), "spec": spec}),
        ("trainingruntimes", {**runtime(namespaced=True), "spec": its}),
    ):
        text = json.dumps(manifest["spec"])
        if "null" in text or '""' in text:
            continue
        refused = api_refusal(api, f"/apis/kubeflow.org/v2alpha1/namespaces/{crd_namespace}/{plural}", manifest)
        assert refused is None or train_verdict(manifest) is not None, refused


def api_refusal(api: Api, path: str, manifest: Manifest) -> str | None:
    try:
        api.request("POST", path, manifest, query={"dryRun": "All"})
    except RefusedError as error:
        return str(error)
    return None


def train_verdict(manifest: Manifest) -> str | None:
    raw = json.dumps(manifest).encode()
    if manifest["kind"] == "TrainJob":
        return validate_trainjob(TRAINJOBS.decode(raw))
    return validate_runtime(TRAINING_RUNTIMES.decode(raw))


@pytest.mark.parametrize("good", [*GOOD_MANIFESTS, *GOOD_TRAINJOBS, *GOOD_RUNTIMES], ids=named)
def test_a_good_object_is_accepted(api: Api, crd_namespace: str, good: Good) -> None:
    assert problems_of_creation(api, crd_namespace, good.manifest) == ()


def test_every_sample_is_accepted(administrator: Kubectl) -> None:
    administrator.must("apply", "--dry-run=server", "-f", str(MANIFESTS / "samples"))


@pytest.mark.parametrize(
    ("manifest", "fields"),
    [
        pytest.param(
            tfjob(master(tfport=1, template=pod_template(container(resource={}), nodeSelectr={"pool": "gpu"})), gpus=2),
            (
                "spec.gpus",
                "spec.replicaSpecs[0].template.spec.containers[0].resource",
                "spec.replicaSpecs[0].template.spec.nodeSelectr",
                "spec.replicaSpecs[0].tfport",
            ),
            id="TFJob",
        ),
        pytest.param(
            trainjob(numnodes=2, podSpecOverrides=[override(volumes=[{"name": "scratch", "emptyDirr": {}}])]),
            ("spec.numnodes", "spec.podSpecOverrides[0].volumes[0].emptyDirr"),
            id="TrainJob",
        ),
        pytest.param(
            runtime(templates={"node": role_template(resource={})}),
            ("spec.templates.node.spec.containers[0].resource",),
            id="runtime",
        ),
    ],
)
def test_mistyped_fields_are_named(kubectl: Kubectl, manifest: Manifest, fields: Sequence[str]) -> None:
    answer = kubectl.run("apply", "--dry-run=server", "-f", "-", manifest=manifest)
    unknown = {f'unknown field "{field}"' for field in fields}
    assert set(answer.error.rstrip("\n").partition("strict decoding error: ")[2].split(", ")) == unknown


@pytest.mark.parametrize(
    ("fields", "at"),
    [
        ({"command": ["sleep", 60]}, "command[1]"),
        ({"env": [{"value": "3"}]}, "env[0].name"),
        ({"resources": {"limits": {"cpu": "4x"}}}, "resources.limits.cpu"),
        ({"imagePullPolicy": "ifnotpresent"}, "imagePullPolicy"),
        ({"ports": [{"containerPort": 80, "protocol": "http"}]}, "ports[0].protocol"),
    ],
    ids=["type", "missing", "quantity", "policy", "protocol"],
)
def test_a_bad_value_in_a_template_is_named(kubectl: Kubectl, fields: dict[str, Any], at: str) -> None:
    job = tfjob(master(template=pod_template(container(**fields))))
    answer = kubectl.run("apply", "--dry-run=server", "-f", "-", manifest=job)
    assert f"spec.replicaSpecs[0].template.spec.containers[0].{at}: " in answer.error


def test_an_override_with_a_value_that_kubernetes_does_not_know_is_named(kubectl: Kubectl) -> None:
    job = trainjob(podSpecOverrides=[override(tolerations=[{"operator": "exists"}])])
    answer = kubectl.run("apply", "--dry-run=server", "-f", "-", manifest=job)
    assert "spec.podSpecOverrides[0].tolerations[0].operator: Unsupported value" in answer.error


@pytest.mark.parametrize("change", [*CHANGES, *TRAIN_CHANGES], ids=named)
def test_a_job_keeps_what_is_fixed(api: Api, crd_namespace: str, change: Change) -> None:
    status = {"phase": "Creating"} if change.started else None
    expected = (f"{change.at}: Forbidden: {change.refusal}",) if change.refusal else ()
    assert problems_of_change(api, crd_namespace, change.before, change.after, status) == expected


def test_runtime_id_cannot_be_taken_away(kubectl: Kubectl) -> None:
    kubectl.must("create", "-f", "-", manifest=tfjob(RuntimeId="76no"))
    answer = kubectl.run("replace", "-f", "-", manifest=tfjob())
    assert "spec.RuntimeId: Forbidden: RuntimeId names all children of the job and cannot change" in answer.error


@every_kind
def test_applying_the_same_manifest_again_changes_nothing_of_a_started_job(kubectl: Kubectl, kind: Stored) -> None:
    create(kubectl, kind)
    before = stored(kubectl, kind)
    # kubectl sends a patch, since it does not know the server's defaults, and says "configured".
    kubectl.must("apply", "-f", "-", manifest=kind.manifest)
    assert stored(kubectl, kind) == before


def test_a_template_keeps_its_fields_and_nulls_and_the_defaults_of_its_role_are_filled_in(kubectl: Kubectl) -> None:
    template = pod_template(
        container(
            env=[{"name": "A", "value": None}],
            resources={"limits": {"cpu": 2, "memory": "1.5Gi"}},
            args=None,
            imagePullPolicy="",
        ),
        nodeSelector=None,
        hostUsers=False,
    )
    template["metadata"] = {"creationTimestamp": None, "annotations": {"a": "b"}}
    kubectl.must("create", "-f", "-", manifest=tfjob({"template": template}))
    stored = json.loads(kubectl.must("get", "tfjob", "example-job", "-o", "json"))["spec"]["replicaSpecs"]
    assert stored == [{"tfReplicaType": "MASTER", "replicas": 1, "tfPort": 2222, "template": template}]


def create(kubectl: Kubectl, kind: Stored) -> None:
    """Stores the job, with what a controller has written."""
    kubectl.must("apply", "-f", "-", manifest=kind.manifest)
    kubectl.must("patch", kind.short_name, kind.name, "--type=merge", "-p", json.dumps({"spec": kind.written}))
    patch_status(kubectl, kind, {"status": kind.status})


def patch_status(kubectl: Kubectl, kind: Stored, patch: Mapping[str, Any]) -> None:
    kubectl.must("patch", kind.short_name, kind.name, "--subresource=status", "--type=merge", "-p", json.dumps(patch))


def stored(kubectl: Kubectl, kind: Stored) -> dict[str, Any]:
    job: dict[str, Any] = json.loads(kubectl.must("get", kind.short_name, kind.name, "-o", "json"))
    return job


@every_kind
def test_columns(kubectl: Kubectl, kind: Stored) -> None:
    create(kubectl, kind)
    head, row = kubectl.must("get", kind.short_name, "-o", "wide").splitlines()
    assert head.split() == ["NAME", *kind.columns, *kind.wide_columns, "AGE"]
    wide = [word for message in kind.wide_columns.values() for word in message]
    assert row.split()[:-1] == [kind.name, *kind.columns.values(), *wide]
    head, row = kubectl.must("get", "kubeflow").splitlines()
    assert head.split() == ["NAME", *kind.columns, "AGE"]
    # There are several kinds in the category, so that kubectl names the kind of each object.
    assert row.split()[0] == f"{kind.manifest['kind'].lower()}.kubeflow.org/{kind.name}"


@every_kind
def test_a_status_is_stored_whole_and_the_spec_is_not_written_through_it(kubectl: Kubectl, kind: Stored) -> None:
    create(kubectl, kind)
    before = stored(kubectl, kind)
    assert before["status"] == kind.status
    patch_status(kubectl, kind, {"spec": {"suspend": not before["spec"].get("suspend")}, "status": {"phase": "Done"}})
    after = stored(kubectl, kind)
    assert (after["spec"], after["status"]["phase"]) == (before["spec"], "Done")


def test_scale_sets_the_workers(kubectl: Kubectl) -> None:
    create(kubectl, KINDS[0])
    kubectl.must("scale", "tfjob/example-job", "--replicas=3")
    scale = json.loads(kubectl.must("get", "tfjob", "example-job", "--subresource=scale", "-o", "json"))
    assert scale["spec"]["replicas"] == 3
    assert scale["status"] == {"replicas": 1, "selector": "job_type=WORKER,runtime_id=76no"}


@pytest.mark.parametrize(
    ("job", "replicas", "problem"),
    [
        pytest.param(
            tfjob(),
            1001,
            "spec.workerReplicas: Invalid value: 1001: "
            "spec.workerReplicas in body should be less than or equal to 1000",
            id="beyond the limit",
        ),
        pytest.param(
            tfjob(master(), workers(2), autoscaling={"minWorkers": 2, "maxWorkers": 4}),
            9,
            f"spec: Invalid value: {WORKERS_OUTSIDE}",
            id="beyond autoscaling",
        ),
    ],
)
def test_a_bad_scale_is_refused(kubectl: Kubectl, job: dict[str, Any], replicas: int, problem: str) -> None:
    kubectl.must("create", "-f", "-", manifest=job)
    answer = kubectl.run("scale", "tfjob/example-job", f"--replicas={replicas}")
    assert comparable(answer.error.rstrip("\n")) == comparable(refusal("TFJob", "example-job", problem))


def test_the_chief_is_not_scaled_away(kubectl: Kubectl) -> None:
    kubectl.must("create", "-f", "-", manifest=tfjob(workers(3)))
    answer = kubectl.run("scale", "tfjob/example-job", "--replicas=0")
    problem = "the chief's replicaIndex is not below the replicas of WORKER: raise them, or name another chief"
    assert comparable(answer.error.rstrip("\n")) == refusal("TFJob", "example-job", f"spec: Invalid value: {problem}")


@pytest.mark.kubernetes("1.36", "the recorded types are those of its API")
def test_the_types_in_templates_are_those_of_this_kubernetes(api: Api) -> None:
    documents = [api.get(f"/openapi/v3/{path}") for path in ("api/v1", "apis/autoscaling/v2")]
    assert types_in(documents) == recorded()


def test_a_runtime_may_change_at_any_time(kubectl: Kubectl) -> None:
    before = runtime(namespaced=True, framework="torch", templates={"node": role_template(image="a")})
    kubectl.must("create", "-f", "-", manifest=before)
    after = runtime(namespaced=True, framework="mpi", templates={"launcher": role_template("launcher", image="b")})
    kubectl.must("replace", "-f", "-", manifest=after)


def test_runtimes_are_listed_with_what_they_give(kubectl: Kubectl) -> None:
    kubectl.must("create", "-f", "-", manifest=runtime(namespaced=True, framework="jax", numNodes=4))
    head, row = kubectl.must("get", "trt").splitlines()
    assert head.split() == ["NAME", "FRAMEWORK", "NODES", "AGE"]
    assert row.split()[:-1] == ["example-runtime", "jax", "4"]


def test_a_runtime_for_all_has_no_namespace_and_keeps_its_templates(administrator: Kubectl) -> None:
    given = runtime("test-for-all", templates={"node": role_template(image="x", env=[{"name": "A", "value": None}])})
    try:
        administrator.must("create", "-f", "-", manifest=given)
        found = json.loads(administrator.must("get", "ctrt", "test-for-all", "-o", "json"))
        assert ("namespace" in found["metadata"], found["spec"]) == (False, given["spec"])
    finally:
        administrator.run("delete", "ctrt", "test-for-all", "--ignore-not-found")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("tfjob.spec.terminationPolicy.chief.replicaIndex", "The chief's index within its type."),
        ("tfjob.spec.replicaSpecs.template.spec", "nodeSelector <map[string]string>"),
        ("trainjob.status.jobsStatus.ready", "The ready pods."),
        ("clustertrainingruntime.spec.workspace.persistentVolumeClaim.claimName", "The claim's name."),
    ],
)
def test_explain_describes_each_field(administrator: Kubectl, path: str, words: str) -> None:
    # The server publishes the schemas of a kind some time after it serves it.
    eventually(lambda: administrator.run("explain", path).code == 0)
    assert words in " ".join(administrator.must("explain", path).split())
