"""MPIJobs: their objects, what their pods get, and their life. Ids name the cases of upstream's tests."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from helpers.controllerbench import NAMESPACE
from helpers.memoryapi import Object
from helpers.v1bench import NAME, V1Bench
from helpers.v1manifests import v1_replicas
from tfjob_controller.api.common.core import OwnedObject
from tfjob_controller.controller.handlers import content_matters
from tfjob_controller.jobs.plan.gangterms import NO_GANGS
from tfjob_controller.kube.meta import ObjectMeta

CORE, RBAC = f"/api/v1/namespaces/{NAMESPACE}", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
LAUNCHER = f"{NAME}-launcher"
CONFIG_MAP, ACCOUNT = f"{CORE}/configmaps/{NAME}-config", f"{CORE}/serviceaccounts/{LAUNCHER}"
ROLE, ROLE_BINDING = f"{RBAC}/roles/{LAUNCHER}", f"{RBAC}/rolebindings/{LAUNCHER}"
OBJECTS = [CONFIG_MAP, ACCOUNT, ROLE, ROLE_BINDING]
READ_PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
BOOTSTRAP, BOOTSTRAP_EXEC = "I_MPI_HYDRA_BOOTSTRAP", "I_MPI_HYDRA_BOOTSTRAP_EXEC"
NO_GPUS = {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"}


@pytest.fixture
def bench() -> V1Bench:
    return V1Bench("MPIJob")


def created(bench: V1Bench, workers: int = 2, *, policy: str = "", **spec: Any) -> V1Bench:
    bench.create({"Launcher": 1, "Worker": workers}, policy=policy, **spec)
    bench.settle()
    return bench


def started(bench: V1Bench, workers: int = 2, *, policy: str = "", **spec: Any) -> V1Bench:
    created(bench, workers, policy=policy, **spec)
    bench.runs(*bench.pods)
    bench.settle()
    return bench


def with_launcher(bench: V1Bench, *, pod: Object | None = None, **container: Any) -> V1Bench:
    """Creates a job whose launcher has these fields, in its container and in its pod."""
    launcher = v1_replicas("MPIJob", 1)
    launcher["template"]["spec"]["containers"][0] |= container
    launcher["template"]["spec"] |= pod or {}
    bench.create({"Worker": 1})
    bench.change(mpiReplicaSpecs={"Launcher": launcher})
    bench.settle()
    return bench


def variables(bench: V1Bench, replica: str = "launcher") -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in bench.pod(replica)["spec"]["containers"][0]["env"]}


def data(bench: V1Bench) -> dict[str, str]:
    files: dict[str, str] = bench.api.objects[CONFIG_MAP]["data"]
    return files


def reasons(bench: V1Bench) -> set[str]:
    return {reason for _, reason, _ in bench.recorder.events}


def sent(bench: V1Bench, since: int = 0) -> list[tuple[str, str]]:
    return [(request.method, request.path) for request in bench.api.sent[since:]]


def condition(bench: V1Bench, type_: str) -> Object:
    conditions: list[Object] = bench.status["conditions"]
    return next(condition for condition in conditions if condition["type"] == type_)


# Objects


def test_a_job_has_a_launcher_workers_and_what_lets_one_reach_the_others(bench: V1Bench) -> None:
    created(bench)
    assert bench.pods == ["launcher", "worker-0", "worker-1"]
    assert bench.services == []
    assert [path for path in OBJECTS if path not in bench.api.objects] == []


def test_what_others_refer_to_is_created_before_them(bench: V1Bench) -> None:
    """The API server refuses a binding of a Role, and a pod of an account, that does not exist."""
    bench.create({"Launcher": 1, "Worker": 1})
    created_by_sync = []
    for _ in range(3):
        before = len(bench.api.sent)
        bench.sync()
        created_by_sync.append([path.rpartition("/")[2] for method, path in sent(bench, before) if method == "POST"])
    assert created_by_sync == [["configmaps", "serviceaccounts", "roles"], ["rolebindings"], ["pods", "pods"]]


def test_objects_belong_to_the_job_and_have_upstreams_label(bench: V1Bench) -> None:
    job = bench.create({"Launcher": 1})
    bench.settle()
    for path in OBJECTS:
        metadata = bench.api.objects[path]["metadata"]
        assert metadata["labels"]["app"] == NAME
        (owner,) = metadata["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("MPIJob", job["metadata"]["uid"], True)


def test_the_launcher_may_only_run_commands_in_the_workers_of_its_job(bench: V1Bench) -> None:
    created(bench)
    workers = [f"{NAME}-worker-0", f"{NAME}-worker-1"]
    commands = {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create"], "resourceNames": workers}
    assert bench.api.objects[ROLE]["rules"] == [READ_PODS, commands]
    binding = bench.api.objects[ROLE_BINDING]
    assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": LAUNCHER}
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": LAUNCHER, "namespace": NAMESPACE}]


def test_without_workers_the_launcher_may_run_commands_nowhere(bench: V1Bench) -> None:
    created(bench, 0)
    assert bench.api.objects[ROLE]["rules"] == [READ_PODS]


def test_the_hostfile_lists_all_workers_with_their_slots(bench: V1Bench) -> None:
    created(bench, 2, slotsPerWorker=3)
    assert data(bench)["hostfile"] == f"{NAME}-worker-0 slots=3\n{NAME}-worker-1 slots=3\n"


def test_discover_hosts_lists_the_workers_that_run_by_their_names(bench: V1Bench, tmp_path: Path) -> None:
    created(bench, 11, slotsPerWorker=2)
    assert hosts(bench, tmp_path) == []
    bench.runs("worker-2", "worker-10", "launcher")
    bench.settle()
    assert hosts(bench, tmp_path) == [f"{NAME}-worker-10:2", f"{NAME}-worker-2:2"]
    bench.deletes("worker-2")
    bench.is_gone("worker-2")
    bench.settle()
    assert hosts(bench, tmp_path) == [f"{NAME}-worker-10:2"]


def hosts(bench: V1Bench, folder: Path) -> list[str]:
    """Returns what the program of elastic Horovod reads."""
    script = executable(folder / "discover_hosts.sh", data(bench)["discover_hosts.sh"])
    return subprocess.run([script], capture_output=True, text=True, check=True).stdout.splitlines()


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.parametrize(
    ("spec", "options"), [({}, []), ({"mainContainer": "main"}, ["--container", "main"])], ids=["first", "named"]
)
def test_kubexec_runs_a_command_in_the_shell_of_a_pod(
    bench: V1Bench, tmp_path: Path, spec: dict[str, str], options: list[str]
) -> None:
    created(bench, **spec)
    kubectl = executable(tmp_path / "kubectl", '#!/bin/sh\nprintf "%s\\n" "$@"\n')
    script = executable(tmp_path / "kubexec.sh", data(bench)["kubexec.sh"].replace("/opt/kube/kubectl", str(kubectl)))
    output = subprocess.run([script, "pod-1", "orted", "-x", "1;"], capture_output=True, text=True, check=True).stdout
    assert output.splitlines() == ["exec", "pod-1", *options, "--", "/bin/sh", "-c", "orted -x 1;"]


def test_a_resize_changes_the_hostfile_and_the_rights(bench: V1Bench) -> None:
    started(bench, 1)
    bench.resize("Worker", 2)
    bench.settle()
    assert bench.pods == ["launcher", "worker-0", "worker-1"]
    assert data(bench)["hostfile"] == f"{NAME}-worker-0 slots=1\n{NAME}-worker-1 slots=1\n"
    assert bench.api.objects[ROLE]["rules"][1]["resourceNames"] == [f"{NAME}-worker-0", f"{NAME}-worker-1"]


def test_what_somebody_changes_or_deletes_is_restored(bench: V1Bench) -> None:
    started(bench)
    hostfile = data(bench)["hostfile"]
    bench.api.change(CONFIG_MAP, {"data": {"hostfile": "elsewhere slots=1\n"}})
    bench.api.remove(ROLE_BINDING)
    bench.settle()
    assert data(bench)["hostfile"] == hostfile
    assert ROLE_BINDING in bench.api.objects


def test_a_job_that_runs_costs_no_write_also_for_the_next_process(bench: V1Bench) -> None:
    started(bench)
    before = len(bench.api.sent)
    bench.settle()
    bench.restart(NO_GANGS)
    bench.settle()
    assert [request for request in sent(bench, before) if request[0] != "GET"] == []


def test_objects_of_training_operator_are_taken_over(bench: V1Bench) -> None:
    job = started(bench).job
    for path in OBJECTS:
        bench.api.change(path, {"metadata": {"labels": dict.fromkeys(labels(bench, path), None) | {"app": NAME}}})
    bench.restart(NO_GANGS)
    before = len(bench.api.sent)
    bench.settle()
    writes = [path for method, path in sent(bench, before) if method == "PATCH"]
    assert [path for path in writes if path in OBJECTS] == OBJECTS
    assert bench.api.objects[ROLE]["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
    assert [path for _, path in sent(bench, before) if "/pods" in path] == []


def labels(bench: V1Bench, path: str) -> dict[str, str]:
    of_object: dict[str, str] = bench.api.objects[path]["metadata"]["labels"]
    return of_object


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(f"{CORE}/pods/{LAUNCHER}", id="125"),
        pytest.param(f"{CORE}/pods/{NAME}-worker-0", id="126"),
        pytest.param(CONFIG_MAP, id="127"),
        pytest.param(ROLE, id="128"),
        pytest.param(ROLE_BINDING, id="129"),
        pytest.param(ACCOUNT, id="the account"),
    ],
)
def test_an_object_of_others_is_never_overwritten(bench: V1Bench, path: str) -> None:
    folder, _, name = path.rpartition("/")
    others = bench.api.put(folder, {"metadata": {"name": name, "namespace": NAMESPACE, "uid": "others"}})
    bench.create({"Launcher": 1, "Worker": 1})
    for _ in range(3):
        bench.sync()
    assert bench.api.objects[path] == others
    kind = {"pods": "Pod", "configmaps": "ConfigMap", "roles": "Role", "rolebindings": "RoleBinding"}
    of_kind = kind.get(folder.rpartition("/")[2], "ServiceAccount")
    assert f"FailedCreate{of_kind}" in reasons(bench)
    if path in OBJECTS:
        assert bench.pods == []


# Pods


def test_pods_have_upstreams_labels(bench: V1Bench) -> None:
    created(bench)
    prefix = "training.kubeflow.org"
    shared = {f"{prefix}/job-name": NAME, f"{prefix}/operator-name": "mpijob-controller"}
    launcher, worker = bench.pod("launcher")["metadata"], bench.pod("worker-1")["metadata"]
    assert launcher["labels"] == shared | {f"{prefix}/replica-type": "launcher", f"{prefix}/job-role": "master"}
    assert worker["labels"] == shared | {f"{prefix}/replica-type": "worker", f"{prefix}/replica-index": "1"}


def test_the_launcher_gets_kubectl_from_an_init_container(bench: V1Bench) -> None:
    created(bench)
    spec = bench.pod("launcher")["spec"]
    (delivery,) = spec["initContainers"]
    assert (delivery["name"], delivery["image"]) == (
        "kubectl-delivery",
        "ghcr.io/kubeflow/training-v1/kubectl-delivery:latest",
    )
    assert delivery["env"] == [
        {"name": "TARGET_DIR", "value": "/opt/kube"},
        {"name": "NAMESPACE", "value": NAMESPACE},
    ]
    mounts = [
        {"name": "mpi-job-kubectl", "mountPath": "/opt/kube"},
        {"name": "mpi-job-config", "mountPath": "/etc/mpi"},
    ]
    assert delivery["volumeMounts"] == spec["containers"][0]["volumeMounts"] == mounts
    kubectl, config = spec["volumes"]
    assert kubectl == {"name": "mpi-job-kubectl", "emptyDir": {}}
    assert config["configMap"]["name"] == f"{NAME}-config"
    assert [(item["path"], item["mode"]) for item in config["configMap"]["items"]] == [
        ("kubexec.sh", 0o555),
        ("hostfile", 0o444),
        ("discover_hosts.sh", 0o555),
    ]
    assert spec["serviceAccountName"] == LAUNCHER


def test_a_worker_has_the_agent_and_waits_for_commands(bench: V1Bench) -> None:
    created(bench)
    spec = bench.pod("worker-0")["spec"]
    (container,) = spec["containers"]
    assert (container["command"], container["args"]) == (["sleep"], ["365d"])
    assert container["volumeMounts"] == [{"name": "mpi-job-config", "mountPath": "/etc/mpi"}]
    (volume,) = spec["volumes"]
    assert [item["path"] for item in volume["configMap"]["items"]] == ["kubexec.sh"]
    assert ("initContainers" in spec, "serviceAccountName" in spec) == (False, False)


def test_a_worker_with_a_command_runs_it(bench: V1Bench) -> None:
    bench.create({"Launcher": 1})
    worker = v1_replicas("MPIJob", 1)
    worker["template"]["spec"]["containers"][0]["command"] = ["sshd"]
    bench.change(mpiReplicaSpecs={"Worker": worker})
    bench.settle()
    (container,) = bench.pod("worker-0")["spec"]["containers"]
    assert (container["command"], "args" in container) == (["sshd"], False)


def test_the_launcher_is_told_its_agent_and_its_hosts(bench: V1Bench) -> None:
    created(bench)
    assert variables(bench) == {
        "OMPI_MCA_plm_rsh_agent": "/etc/mpi/kubexec.sh",
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        "NVIDIA_VISIBLE_DEVICES": "",
        "NVIDIA_DRIVER_CAPABILITIES": "",
        BOOTSTRAP: "rsh",
        BOOTSTRAP_EXEC: "/etc/mpi/kubexec.sh",
    }
    assert variables(bench, "worker-0") == {}


@pytest.mark.parametrize(
    ("limits", "has_gpu"),
    [
        pytest.param({"nvidia.com/gpu": 1}, True, id="116"),
        pytest.param({"vendor-domain/gpu": 1}, True, id="117"),
        pytest.param({"vendor-domain.com/gpu-shared": 1}, True, id="part of the name"),
        pytest.param({"cpu": 1}, False, id="118"),
        pytest.param({}, False, id="none"),
    ],
)
def test_a_launcher_with_a_gpu_computes_as_well(bench: V1Bench, limits: dict[str, int], has_gpu: bool) -> None:
    with_launcher(bench, resources={"limits": limits})
    assert NO_GPUS.isdisjoint(variables(bench)) is has_gpu
    own = [LAUNCHER] if has_gpu else []
    listed = [line.partition(" ")[0] for line in data(bench)["hostfile"].splitlines()]
    assert listed == [*own, f"{NAME}-worker-0"]
    assert f"echo {LAUNCHER}:1" in data(bench)["discover_hosts.sh"] or not has_gpu


def test_case_124_the_launcher_keeps_an_account_that_its_template_names(bench: V1Bench) -> None:
    with_launcher(bench, pod={"serviceAccountName": "mine"})
    assert bench.pod("launcher")["spec"]["serviceAccountName"] == "mine"
    assert ACCOUNT not in bench.api.objects
    assert bench.api.objects[ROLE_BINDING]["subjects"][0]["name"] == "mine"


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({}, id="130"),
        pytest.param({BOOTSTRAP: "ssh"}, id="131"),
        pytest.param({BOOTSTRAP_EXEC: "/mine"}, id="132"),
        pytest.param({BOOTSTRAP: "ssh", BOOTSTRAP_EXEC: "/mine"}, id="133"),
    ],
)
def test_variables_of_intel_mpi_that_are_given_stay(bench: V1Bench, given: dict[str, str]) -> None:
    with_launcher(bench, env=[{"name": name, "value": value} for name, value in given.items()])
    values = variables(bench)
    expected = {BOOTSTRAP: "rsh", BOOTSTRAP_EXEC: "/etc/mpi/kubexec.sh"} | given
    assert {name: values[name] for name in expected} == expected


def test_only_the_first_container_is_changed_whatever_its_name(bench: V1Bench) -> None:
    containers = [{"name": "any", "image": "a"}, {"name": "mpi", "image": "b"}]
    with_launcher(bench, pod={"containers": containers})
    first, second = bench.pod("launcher")["spec"]["containers"]
    assert "OMPI_MCA_plm_rsh_agent" in {variable["name"] for variable in first["env"]}
    assert second == {"name": "mpi", "image": "b"}


# Life


@pytest.mark.parametrize(
    ("runs", "exits", "state", "counts"),
    [
        pytest.param((), {"launcher": 0}, "Succeeded", ({"succeeded": 1}, {}), id="119"),
        pytest.param((), {"launcher": 1}, "Failed", ({"failed": 1}, {}), id="120"),
        pytest.param(("launcher",), {}, "Running", ({"active": 1}, {}), id="121"),
        pytest.param(("launcher", "worker-0", "worker-1"), {}, "Running", ({"active": 1}, {"active": 2}), id="122"),
        pytest.param(("worker-0", "worker-1"), {}, "Created", ({}, {"active": 2}), id="123"),
        pytest.param(("launcher",), {"worker-0": 1}, "Failed", ({"active": 1}, {"failed": 1}), id="a worker"),
        pytest.param(("worker-0",), {"launcher": 1}, "Failed", ({"failed": 1}, {}), id="workers are left"),
        pytest.param(("launcher",), {"worker-0": 0}, "Running", ({"active": 1}, {"succeeded": 1}), id="worker done"),
    ],
)
def test_the_launcher_tells_the_state_of_the_job(
    bench: V1Bench, runs: tuple[str, ...], exits: dict[str, int], state: str, counts: tuple[Object, Object]
) -> None:
    created(bench)
    bench.runs(*runs)
    for replica, exit_code in exits.items():
        bench.exits(replica, exit_code)
    bench.settle()
    assert bench.state == state
    assert (bench.counts("Launcher"), bench.counts("Worker")) == counts


def test_case_123_a_missing_launcher_is_created(bench: V1Bench) -> None:
    created(bench)
    bench.runs("worker-0", "worker-1")
    bench.is_gone("launcher")
    bench.settle()
    assert bench.pods == ["launcher", "worker-0", "worker-1"]


def test_conditions_have_upstreams_reasons_and_messages(bench: V1Bench) -> None:
    started(bench)
    assert condition(bench, "Running")["message"] == f"MPIJob {NAME} is running."
    bench.exits("launcher", 0)
    bench.settle()
    assert bench.conditions == [("Created", "True"), ("Running", "False"), ("Succeeded", "True")]
    succeeded = condition(bench, "Succeeded")
    assert (succeeded["reason"], succeeded["message"]) == (
        "MPIJobSucceeded",
        f"MPIJob {NAME} is successfully completed.",
    )
    assert bench.status["replicaStatuses"] == {"Launcher": {"succeeded": 1}, "Worker": {}}


def test_the_reason_of_a_failure_has_the_kind_twice_and_its_event_once(bench: V1Bench) -> None:
    started(bench)
    bench.exits("launcher", 1)
    bench.settle()
    failed = condition(bench, "Failed")
    assert failed["reason"] == "MPIJobMPIJobFailed"
    assert failed["message"] == f"MPIJob {NAME} is failed because 1 Launcher replica(s) failed."
    assert "MPIJobFailed" in reasons(bench)
    assert "completionTime" in bench.status


def test_a_deadline_has_the_reason_of_all_kinds(bench: V1Bench) -> None:
    started(bench, runPolicy={"activeDeadlineSeconds": 5})
    bench.clock.advance(6)
    bench.settle()
    assert condition(bench, "Failed")["reason"] == "MPIJobFailed"


@pytest.mark.parametrize("policy", ["All", "Running"])
def test_workers_are_deleted_at_the_end_and_objects_stay(bench: V1Bench, policy: str) -> None:
    started(bench, cleanPodPolicy=policy)
    bench.exits("launcher", 0)
    bench.settle()
    assert bench.pods == ([] if policy == "All" else ["launcher"])
    assert [path for path in OBJECTS if path not in bench.api.objects] == []


def test_by_exit_code_the_launcher_is_replaced(bench: V1Bench) -> None:
    started(bench, policy="ExitCode")
    bench.exits("launcher", 137)
    bench.sync()
    restarting = condition(bench, "Restarting")
    assert (restarting["reason"], restarting["message"]) == (
        "MPIJobRestarting",
        f"MPIJob {NAME} is restarting because 1 Launcher replica(s) failed.",
    )
    bench.is_gone("launcher")
    bench.settle()
    bench.runs("launcher")
    bench.settle()
    assert (bench.pods, bench.state) == (["launcher", "worker-0", "worker-1"], "Running")


def test_a_suspended_job_has_no_pods_and_runs_again_when_it_is_resumed(bench: V1Bench) -> None:
    created(bench, runPolicy={"suspend": True})
    assert (bench.pods, bench.conditions) == ([], [("Created", "True"), ("Suspended", "True")])
    assert "startTime" not in bench.status
    bench.change(runPolicy={"suspend": False})
    bench.settle()
    bench.runs(*bench.pods)
    bench.settle()
    assert bench.state == "Running"
    bench.change(runPolicy={"suspend": True})
    bench.settle()
    bench.is_gone("launcher", "worker-0", "worker-1")
    bench.settle()
    assert bench.conditions == [("Created", "True"), ("Running", "False"), ("Suspended", "True")]
    bench.change(runPolicy={"suspend": False})
    bench.settle()
    assert bench.pods == ["launcher", "worker-0", "worker-1"]


def test_case_135_an_invalid_job_fails_with_upstreams_text(bench: V1Bench) -> None:
    bench.create({"Worker": 1})
    bench.settle()
    failed = condition(bench, "Failed")
    assert failed["message"] == "invalid job spec: MPIReplicaSpec is not valid: Master ReplicaSpec must be present"
    assert (failed["reason"], bench.pods) == ("MPIJobFailed", [])


@pytest.mark.parametrize("manager", ["kueue.x-k8s.io/multikueue"])
def test_case_22_a_job_of_another_controller_is_not_touched(bench: V1Bench, manager: str) -> None:
    created(bench, runPolicy={"managedBy": manager})
    assert bench.api.sent == []


def test_a_change_of_the_content_of_an_object_matters_and_other_changes_do_not() -> None:
    before = OwnedObject(ObjectMeta("a", "team", resource_version="1"), digest="x")
    relabelled = replace(before, metadata=replace(before.metadata, resource_version="2"))
    assert not content_matters(before, relabelled)
    assert content_matters(before, replace(before, digest="y"))
