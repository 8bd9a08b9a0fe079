"""What is checked of a job's children before there is a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from helpers.answering import Answering, Request
from tfjob_controller.client import Client, ClientError, tfjob, trainjob
from tfjob_controller.client.validation import validate_manifest
from tfjob_controller.kinds.trainjob.podtemplate import NO_WORKSPACE
from tfjob_controller.kube.errors import ApiError

MISSING = ApiError(404, "NotFound", 'clustertrainingruntimes.kubeflow.org "mine" not found')
NO_SUCH_KIND = ApiError(404, "", "404 page not found")
FORBIDDEN = ApiError(403, "Forbidden", 'User "u" cannot get resource "clustertrainingruntimes"')
RUNTIMES = "/apis/kubeflow.org/v2alpha1/clustertrainingruntimes"
OF_NAMESPACE = "/apis/kubeflow.org/v2alpha1/namespaces/ns/trainingruntimes"
CHILDREN = "/apis/batch/v1/namespaces/ns/jobs"
LISTED_NONE: dict[str, Any] = {"metadata": {}, "items": []}
Answers = Mapping[str, dict[str, Any] | ApiError]


class Server(Answering):
    """Answers by path. There are no runtimes but those given, and the API server accepts each Job."""

    def __init__(self, answers: Answers) -> None:
        super().__init__()
        self._answers = answers

    def answer(self, request: Request) -> bytes:
        default: Any = LISTED_NONE if request.path in (RUNTIMES, OF_NAMESPACE) else MISSING
        answer = self._answers.get(request.path, request.body if request.method == "POST" else default)
        if isinstance(answer, ApiError):
            raise answer
        return msgspec.json.encode(answer)

    def posted(self, path: str) -> list[Request]:
        return [request for request in self.sent if request.method == "POST" and request.path == path]


def runtime(name: str, framework: str = "", namespace: str = "", **spec: Any) -> dict[str, Any]:
    named = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"metadata": named, "spec": {"framework": framework, **spec} if framework else spec}


def listed(*runtimes: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {}, "items": runtimes}


def train_manifest(**fields: Any) -> dict[str, Any]:
    return trainjob("a", **{"image": "i", "nodes": 1, **fields})


def submitted(manifest: dict[str, Any], answers: Answers | None = None) -> list[dict[str, Any]]:
    """Submits the job, and returns the children that were tried."""
    server = Server(answers or {})
    Client.over(server, "ns").submit(manifest)
    tried = server.posted(CHILDREN)
    assert all(request.query == {"dryRun": "All", "fieldValidation": "Strict"} for request in tried)
    return [request.body for request in tried]


def refused(manifest: dict[str, Any], answers: Answers | None = None) -> str:
    """Submits the job, and returns the error; nothing is created."""
    server = Server(answers or {})
    with pytest.raises(ClientError) as error:
        Client.over(server, "ns").submit(manifest)
    assert all(request.query.get("dryRun") for request in server.sent if request.method == "POST")
    return str(error.value)


def refused_train(answers: Answers | None = None, **fields: Any) -> str:
    return refused(train_manifest(**fields), answers)


@pytest.mark.parametrize(
    ("metadata", "problem"),
    [
        ({"name": "x" * 254}, "metadata.name: must have at most 253 characters, has 254"),
        ({"name": "Train"}, "metadata.name: must be of lower-case letters, digits, - and . and begin and end with a"),
        ({"generateName": "x" * 254}, "metadata.generateName: must have at most 253 characters, has 254"),
        ({"name": "a", "namespace": "x" * 64}, "metadata.namespace: must have at most 63 characters, has 64"),
    ],
)
def test_a_name_is_refused_by_its_field_before_it_is_sent(metadata: dict[str, str], problem: str) -> None:
    with pytest.raises(ClientError) as refused:
        validate_manifest({**trainjob("a", image="i"), "metadata": metadata}, "ns")
    assert str(refused.value).startswith(problem)


@pytest.mark.parametrize("metadata", [{"name": f"{'x' * 63}.{'y' * 189}"}, {"generateName": "train-"}])
def test_every_name_that_the_server_accepts_is_accepted(metadata: dict[str, str]) -> None:
    assert validate_manifest({**trainjob("a", image="i"), "metadata": metadata}, "ns").namespace == "ns"


def test_one_child_of_each_template_is_tried_without_its_owner() -> None:
    children = submitted(tfjob("a", image="i", workers=2, ps=1, master=True))
    assert [child["metadata"]["name"] for child in children] == ["a-master-0000-0", "a-worker-0000-0", "a-ps-0000-0"]
    assert not any("ownerReferences" in child["metadata"] for child in children)


def test_children_have_what_the_runtime_says() -> None:
    template = {"spec": {"containers": [{"name": "node", "image": "theirs"}], "serviceAccountName": "trainer"}}
    for ref in ("ClusterTrainingRuntime", "TrainingRuntime"):
        path, namespace = (RUNTIMES, "") if ref == "ClusterTrainingRuntime" else (OF_NAMESPACE, "ns")
        mine = runtime("mine", namespace=namespace, templates={"node": template})
        manifest = train_manifest(image=None, runtimeRef={"name": "mine", "kind": ref})
        (child,) = submitted(manifest, {f"{path}/mine": mine})
        pod = child["spec"]["template"]["spec"]
        assert (pod["serviceAccountName"], pod["containers"][0]["image"]) == ("trainer", "theirs")


PODS = "/api/v1/namespaces/ns/pods"
NO_CLASS = ApiError(403, "Forbidden", 'pods "a-x" is forbidden: no PriorityClass with name nope was found')


def test_a_pod_of_each_child_is_tried_and_what_admission_refuses_is_a_warning() -> None:
    server, shown = Server({PODS: NO_CLASS}), list[str]()
    Client.over(server, "ns").submit(tfjob("a", image="i", workers=2), warn=shown.append)
    assert shown == ["Kubernetes would refuse the pods of master and worker: no PriorityClass with name nope was found"]
    tried = server.posted(PODS)
    assert [pod.body["metadata"]["generateName"] for pod in tried] == ["a-master-0000-0-", "a-worker-0000-0-"]
    templates = [child.body["spec"]["template"] for child in server.posted(CHILDREN)]
    assert [pod.body["spec"] for pod in tried] == [template["spec"] for template in templates]
    assert all(
        template["metadata"].items() <= pod.body["metadata"].items()
        for pod, template in zip(tried, templates, strict=True)
    )
    assert all(pod.query["dryRun"] == "All" for pod in tried)
    with pytest.warns(UserWarning, match="no PriorityClass with name nope"):
        Client.over(server, "ns").submit(tfjob("a", image="i"))


@pytest.mark.parametrize(
    "error",
    [
        ApiError(403, "Forbidden", 'pods is forbidden: User "u" cannot create resource "pods" in API group ""'),
        ApiError(400, "BadRequest", 'admission webhook "x" does not support dry run'),
        ApiError(500, "InternalError", 'failed calling webhook "x"'),
    ],
    ids=["right", "webhook", "failure"],
)
def test_other_refusals_of_a_pod_are_no_warnings(error: ApiError) -> None:
    shown = list[str]()
    Client.over(Server({PODS: error}), "ns").submit(tfjob("a", image="i"), warn=shown.append)
    assert shown == []


def test_an_image_that_no_registry_can_have_is_refused() -> None:
    assert refused(tfjob("a", image="bad image")).startswith(
        "the image 'bad image' of master cannot be pulled: it must"
    )


INVALID = ApiError(
    422,
    "Invalid",
    'Job.batch "a-worker-0000-0" is invalid: …',
    causes=[
        ("spec.template.spec.containers[0].resources.requests", 'Invalid value: "4": must be at most the limit'),
        ("spec.template.labels", "Invalid value"),
        ("spec.template.spec.volumes[0].name", "Required value"),
        ("spec.template.spec.x", "Required value"),
    ],
)
UNKNOWN_FIELD = ApiError(400, "BadRequest", 'strict decoding error: unknown field "spec.template.spec.nodeSelectr"')


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (
            INVALID,
            'spec.containers[0].resources.requests: Invalid value: "4": must be at most the limit; '
            "labels: Invalid value; spec.volumes[0].name: Required value; and 1 more",
        ),
        (UNKNOWN_FIELD, 'unknown field "spec.nodeSelectr"'),
    ],
    ids=["invalid", "unknown"],
)
def test_pods_that_kubernetes_refuses_are_reported_by_role_and_field(error: ApiError, problem: str) -> None:
    manifest = tfjob("a", image="i", workers=1, master=False)
    assert refused(manifest, {CHILDREN: error}) == f"Kubernetes refuses the pods of worker: {problem}"


def test_a_field_that_the_server_refuses_in_the_job_itself_is_named_there() -> None:
    of_job = ApiError(400, "BadRequest", 'strict decoding error: unknown field "spec.replicaSpecs[0].template.spec.x"')
    answers = {CHILDREN: UNKNOWN_FIELD, "/apis/kubeflow.org/v1alpha1/namespaces/ns/tfjobs": of_job}
    assert refused(tfjob("a", image="i", workers=1, master=False), answers) == of_job.message


@pytest.mark.parametrize(
    "error",
    [
        ApiError(403, "Forbidden", 'jobs.batch is forbidden: User "u" cannot create resource "jobs"'),
        ApiError(422, "Invalid", "ValidatingAdmissionPolicy 'x' denied request: no", causes=[("", "no")]),
        ApiError(400, "BadRequest", 'admission webhook "x" does not support dry run'),
        ApiError(409, "AlreadyExists", 'jobs.batch "a-worker-0000-0" already exists'),
    ],
    ids=["right", "policy", "webhook", "exists"],
)
def test_other_refusals_of_a_child_are_left_to_the_controller(error: ApiError) -> None:
    assert len(submitted(tfjob("a", image="i", workers=1, master=False), {CHILDREN: error})) == 1


def test_a_server_that_does_not_respond_is_reported_before_anything_is_created() -> None:
    no_answer = ApiError(0, "Timeout", "no answer")
    for path in (f"{RUNTIMES}/mine", CHILDREN):
        answers = {f"{RUNTIMES}/mine": runtime("mine"), path: no_answer}
        assert refused_train(answers, runtime="mine") == "no answer: check that the API server of this client runs"


def test_a_runtime_that_is_missing_is_named_with_those_that_there_are() -> None:
    assert refused_train({RUNTIMES: listed(runtime("zoo"), runtime("plain"))}, runtime="mine") == (
        "spec.runtimeRef: there is no ClusterTrainingRuntime mine: create it first, or choose another one "
        "(the cluster has plain, zoo)"
    )
    assert refused_train(runtimeRef={"name": "mine", "kind": "TrainingRuntime"}) == (
        "spec.runtimeRef: there is no TrainingRuntime mine: create it first, or choose another one "
        "(namespace ns has none)"
    )
    many = listed(*(runtime(f"runtime-{number:02}") for number in range(12)))
    assert refused_train({RUNTIMES: many}, runtime="mine").endswith("runtime-08, runtime-09 and 2 more)")


def test_a_runtime_that_is_missing_is_also_refused_where_the_others_may_not_be_listed() -> None:
    assert refused_train({RUNTIMES: FORBIDDEN}, runtime="mine") == (
        "spec.runtimeRef: there is no ClusterTrainingRuntime mine: create it first, or choose another one"
    )


@pytest.mark.parametrize("fields", [{"runtime": "mine"}, {"framework": "torch"}], ids=["runtime", "framework"])
@pytest.mark.parametrize("error", [FORBIDDEN, NO_SUCH_KIND], ids=["forbidden", "no-such-kind"])
def test_a_user_who_may_not_read_runtimes_is_not_refused(fields: dict[str, Any], error: ApiError) -> None:
    answers = {f"{RUNTIMES}/{name}": error for name in ("mine", "torch-distributed")}
    assert len(submitted(train_manifest(**fields), answers)) == (1 if "framework" in fields else 0)


OF_MOUNT = ApiError(
    422, "Invalid", "…", causes=[("spec.template.spec.containers[0].volumeMounts[0].name", 'Not found: "x"')]
)


@pytest.mark.parametrize(
    ("container", "answers", "problem"),
    [
        ({"name": "other", "env": []}, {}, "spec.podSpecOverrides[0].containers[0].name: there is no container other"),
        (
            {"name": "node", "volumeMounts": [{"name": "x", "mountPath": "/x"}]},
            {CHILDREN: OF_MOUNT},
            'Kubernetes refuses the pods of node: spec.containers[0].volumeMounts[0].name: Not found: "x"',
        ),
    ],
    ids=["container", "mount"],
)
def test_what_only_a_runtime_that_may_not_be_read_could_provide_is_a_warning(
    container: dict[str, Any], answers: Answers, problem: str
) -> None:
    server, shown = Server({f"{RUNTIMES}/torch-distributed": FORBIDDEN, **answers}), list[str]()
    overrides = [{"targetJobs": [{"name": "node"}], "containers": [container]}]
    Client.over(server, "ns").submit(train_manifest(framework="torch", podSpecOverrides=overrides), warn=shown.append)
    (warning,) = shown
    assert warning.startswith(problem)
    assert warning.endswith(" (you may not read the job's runtime, which may provide it)")


@pytest.mark.parametrize("path", [RUNTIMES, OF_NAMESPACE])
def test_a_framework_is_not_refused_unless_all_runtimes_were_seen(path: str) -> None:
    assert submitted(train_manifest(framework="pytorch"), {path: FORBIDDEN}) == []


def test_a_framework_that_comes_along_needs_no_runtime() -> None:
    for framework in (None, "torch", "tensorflow", "jax", "xgboost", "plain"):
        assert len(submitted(train_manifest(framework=framework))) == 1
    assert len(submitted(train_manifest(framework="mpi", command=["mpirun", "a"]))) == 2


def test_a_framework_that_does_not_exist_is_named_with_those_that_do() -> None:
    runtimes = listed(runtime("plain", "plain"), runtime("ring-distributed", "ring"), runtime("bare"))
    assert refused_train({RUNTIMES: runtimes}, framework="pytorch") == (
        "spec.framework: there is no framework pytorch, and no runtime of it: choose one of jax, mpi, plain, ring, "
        "tensorflow, torch, xgboost; if it was added to the controller, create its runtime first (the cluster has "
        "bare, plain, ring-distributed)"
    )


def test_an_added_framework_is_known_by_its_runtime_and_its_children_are_not() -> None:
    ring = runtime("ring-distributed", "ring")
    for path in (RUNTIMES, OF_NAMESPACE):
        assert submitted(train_manifest(framework="ring"), {path: listed(ring)}) == []
    assert submitted(train_manifest(runtime="ring-distributed"), {f"{RUNTIMES}/ring-distributed": ring}) == []


def test_a_command_that_implies_the_framework_precedes_the_jobs_field() -> None:
    assert len(submitted(train_manifest(framework="pytorch", command=["torchrun", "a.py"]))) == 1


def test_a_framework_that_is_not_the_runtimes_is_refused() -> None:
    mine = {f"{RUNTIMES}/mine": runtime("mine", "jax")}
    assert refused_train(mine, runtime="mine", framework="torch") == (
        "spec.framework: is torch, but ClusterTrainingRuntime mine is for jax: leave it out"
    )


@pytest.mark.parametrize("fields", [{"runtime": "mine"}, {"framework": "plain"}], ids=["runtime", "framework"])
def test_a_model_that_nothing_could_export_is_refused(fields: dict[str, Any]) -> None:
    assert refused_train({f"{RUNTIMES}/mine": runtime("mine")}, output="s3://models/a", **fields) == NO_WORKSPACE
    workspace = {"persistentVolumeClaim": {"claimName": "shared"}}
    answers = {f"{RUNTIMES}/{name}": runtime(name, workspace=workspace) for name in ("mine", "plain")}
    assert len(submitted(train_manifest(output="s3://models/a", **fields), answers)) == 2
    answers = {f"{RUNTIMES}/{name}": runtime(name) for name in ("mine", "plain")}
    assert len(submitted(train_manifest(output="pvc://models/a", **fields), answers)) == 1


def test_the_job_of_another_controller_is_its_own_business() -> None:
    assert submitted(train_manifest(runtime="mine", managedBy="example.com/other")) == []
