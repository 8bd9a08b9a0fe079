"""The life of jobs of `kubeflow.org/v1`, from the first pod to the clean-up. Ids name the cases of upstream's tests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from helpers.controllerbench import NAMESPACE, SERVICE_PATH
from helpers.kindplans import PLANS
from helpers.v1bench import NAME, V1Bench
from helpers.v1manifests import v1_job
from tfjob_controller.api.kubeflowv1.defaults import with_defaults
from tfjob_controller.api.kubeflowv1.types import V1_KINDS
from tfjob_controller.kinds.kubeflowv1.kind import V1_JOB_KINDS, v1_work
from tfjob_controller.kinds.kubeflowv1.plan import build_v1_plan

WORKER_0 = "worker-0"


@pytest.fixture
def bench() -> V1Bench:
    return V1Bench()


def started(bench: V1Bench, replicas: dict[str, int], **spec: Any) -> V1Bench:
    """Creates a job whose pods all run."""
    bench.create(replicas, **spec)
    bench.settle()
    bench.runs(*bench.pods)
    bench.settle()
    return bench


def run_policy(**fields: Any) -> dict[str, Any]:
    return {"runPolicy": fields}


def message(bench: V1Bench, type_: str) -> str:
    return next(str(each["message"]) for each in bench.status["conditions"] if each["type"] == type_)


def variables(bench: V1Bench, replica: str) -> dict[str, str]:
    (container,) = bench.pod(replica)["spec"]["containers"]
    return {variable["name"]: variable["value"] for variable in container.get("env", ())}


# Children (cases 1 to 7, 43 to 52)


def test_exactly_the_replicas_that_are_pods_without_jobs_have_a_restart_policy_of_their_own() -> None:
    jobs = [
        v1_job(name, dict.fromkeys(V1_KINDS[name].types, 1)) for name in (kind.resource.kind for kind in V1_JOB_KINDS)
    ]
    of_v1 = [build_v1_plan(with_defaults(job)) for job in jobs]
    for plan in (*PLANS.values(), *of_v1):
        assert {bool(role.restart_policy) for role in plan.replicas.roles} == {plan.carrier is not None}


def test_case_2_each_replica_gets_a_pod_and_a_service_of_its_name(bench: V1Bench) -> None:
    bench.create({"Worker": 4, "PS": 2})
    bench.settle()
    replicas = ["ps-0", "ps-1", "worker-0", "worker-1", "worker-2", "worker-3"]
    assert (sorted(bench.pods), sorted(bench.services)) == (replicas, replicas)
    assert bench.status["replicaStatuses"] == {"PS": {}, "Worker": {}}
    assert bench.conditions == [("Created", "True")]
    assert message(bench, "Created") == f"TFJob {NAME} is created."


def test_case_1_a_job_of_one_replica_gets_no_tf_config(bench: V1Bench) -> None:
    bench.create({"Worker": 1})
    bench.settle()
    assert "TF_CONFIG" not in variables(bench, WORKER_0)


def test_case_45_tf_config_names_all_replicas_by_their_services(bench: V1Bench) -> None:
    bench.create({"Worker": 1, "PS": 1})
    bench.settle()
    config = json.loads(variables(bench, "ps-0")["TF_CONFIG"])
    hosts = {name: [f"{NAME}-{name}-0.{NAMESPACE}.svc:2222"] for name in ("ps", "worker")}
    assert config == {"cluster": hosts, "task": {"type": "ps", "index": 0}, "environment": "cloud"}


def test_pods_have_upstreams_labels_and_owner_and_no_others(bench: V1Bench) -> None:
    job = bench.create({"Worker": 2})
    bench.settle()
    pod, prefix = bench.pod(WORKER_0), "training.kubeflow.org"
    service_labels = {
        f"{prefix}/job-name": NAME,
        f"{prefix}/operator-name": "tfjob-controller",
        f"{prefix}/replica-type": "worker",
        f"{prefix}/replica-index": "0",
    }
    assert pod["metadata"]["labels"] == {**service_labels, f"{prefix}/job-role": "master"}
    assert f"{prefix}/job-role" not in bench.pod("worker-1")["metadata"]["labels"]
    assert "annotations" not in pod["metadata"]
    (owner,) = pod["metadata"]["ownerReferences"]
    assert owner == {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "name": NAME,
        "uid": job["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    service = bench.service(WORKER_0)
    assert service["metadata"]["labels"] == service["spec"]["selector"] == service_labels
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["ports"] == [{"name": "tfjob-port", "port": 2222}]
    assert "publishNotReadyAddresses" not in service["spec"]


@pytest.mark.parametrize(
    ("kind", "masters"),
    [("PyTorchJob", [WORKER_0]), ("JAXJob", [WORKER_0]), ("TFJob", [WORKER_0]), ("PaddleJob", [])],
)
def test_the_master_of_a_job_without_one(kind: str, masters: list[str]) -> None:
    bench = V1Bench(kind)
    bench.create({"Worker": 2})
    bench.settle()
    role = "training.kubeflow.org/job-role"
    assert [replica for replica in bench.pods if role in bench.pod(replica)["metadata"]["labels"]] == masters


def test_case_51_labels_and_annotations_of_the_template_stay_and_the_operators_win(bench: V1Bench) -> None:
    bench.create({"Worker": 1})
    metadata = {"labels": {"team": "a", "training.kubeflow.org/job-name": "x"}, "annotations": {"b": "c"}}
    bench.change(tfReplicaSpecs={"Worker": {"template": {"metadata": metadata}}})
    bench.settle()
    metadata = bench.pod(WORKER_0)["metadata"]
    assert (metadata["labels"]["team"], metadata["annotations"]) == ("a", {"b": "c"})
    assert metadata["labels"]["training.kubeflow.org/job-name"] == NAME


@pytest.mark.parametrize(
    ("policy", "of_pod"), [("Never",) * 2, ("OnFailure",) * 2, ("Always",) * 2, ("ExitCode", "Never"), ("", "Never")]
)
def test_case_46_the_pod_has_the_policy_of_the_replica(bench: V1Bench, policy: str, of_pod: str) -> None:
    bench.create({"Worker": 1}, policy=policy)
    bench.settle()
    assert bench.pod(WORKER_0)["spec"]["restartPolicy"] == of_pod


def test_the_spec_is_never_changed(bench: V1Bench) -> None:
    spec = bench.create({"Worker": 2})["spec"]
    started(bench, {"Worker": 2})
    assert bench.job["spec"] == spec


def test_case_3_only_what_is_missing_is_created(bench: V1Bench) -> None:
    bench.create({"Worker": 2, "PS": 1})
    bench.settle()
    bench.api.remove(f"{SERVICE_PATH}/{NAME}-ps-0")
    sent = len(bench.api.sent)
    bench.settle()
    created = [request for request in bench.api.sent[sent:] if request.method == "POST"]
    assert [request.body["metadata"]["name"] for request in created] == [f"{NAME}-ps-0"]


PENDING = ("ps-0", "worker-0", "worker-1")
ALL = ("ps-0", "ps-1", "worker-0", "worker-1", "worker-2", "worker-3")


@pytest.mark.parametrize(
    ("pending", "runs", "succeed", "state", "counts"),
    [
        pytest.param(PENDING, (), (), "Created", ({}, {}), id="3"),
        pytest.param(PENDING, ("worker-2",), (), "Running", ({}, {"active": 1}), id="4"),
        pytest.param(PENDING, (), ("worker-2",), "Created", ({}, {"succeeded": 1}), id="5"),
        pytest.param((), ALL, (), "Running", ({"active": 2}, {"active": 4}), id="6"),
        pytest.param((), (), ALL, "Succeeded", ({"succeeded": 2}, {"succeeded": 4}), id="7"),
    ],
)
def test_pods_are_counted_by_their_phases_and_missing_ones_created(
    bench: V1Bench,
    pending: tuple[str, ...],
    runs: tuple[str, ...],
    succeed: tuple[str, ...],
    state: str,
    counts: tuple[dict[str, int], dict[str, int]],
) -> None:
    bench.create({"PS": 2, "Worker": 4})
    bench.settle()
    there = {*pending, *runs, *succeed}
    missing = [replica for replica in ALL if replica not in there]
    bench.is_gone(*missing)
    for replica in missing:
        bench.api.remove(f"{SERVICE_PATH}/{NAME}-{replica}")
    sent = len(bench.api.sent)
    bench.runs(*runs)
    for replica in succeed:
        bench.exits(replica, 0)
    bench.settle()
    created = [request.body["metadata"]["name"] for request in bench.api.sent[sent:] if request.method == "POST"]
    assert sorted(created) == sorted(f"{NAME}-{replica}" for replica in missing * 2)
    assert (bench.state, (bench.counts("PS"), bench.counts("Worker"))) == (state, counts)


def test_case_49_and_50_a_job_is_resized_by_its_spec(bench: V1Bench) -> None:
    started(bench, {"Worker": 3})
    bench.resize("Worker", 1)
    bench.settle()
    assert (bench.pods, bench.services) == ([WORKER_0], [WORKER_0])
    bench.is_gone("worker-1", "worker-2")
    bench.resize("Worker", 2)
    bench.settle()
    assert bench.pods == [WORKER_0, "worker-1"]
    assert bench.state == "Running"


@pytest.mark.parametrize("kind", ["TFJob", "PyTorchJob", "MPIJob", "XGBoostJob", "PaddleJob"])
@pytest.mark.parametrize("manager", ["kueue.x-k8s.io/multikueue", "example.com/other"])
def test_case_20_a_job_of_another_controller_is_not_touched(manager: str, kind: str) -> None:
    bench = V1Bench(kind)
    bench.create({"Launcher" if kind == "MPIJob" else "Master": 1, "Worker": 1}, **run_policy(managedBy=manager))
    for suspend in (False, True, False):
        bench.change(**run_policy(suspend=suspend))
        bench.settle()
    assert (bench.api.sent, bench.status) == ([], {})


# The end (cases 25 to 42, 47, 48)


@pytest.mark.parametrize(
    ("replicas", "spec", "runs", "exits", "state"),
    [
        pytest.param({"Chief": 1}, {}, (), {"chief-0": 0}, "Succeeded", id="25"),
        pytest.param({"Chief": 1}, {}, ("chief-0",), {}, "Running", id="26"),
        pytest.param({"Chief": 1}, {}, (), {"chief-0": 1}, "Failed", id="27"),
        pytest.param({"Worker": 1}, {}, (), {"worker-0": 0}, "Succeeded", id="28"),
        pytest.param({"Worker": 1}, {}, (), {"worker-0": 1}, "Failed", id="29"),
        pytest.param({"Worker": 1}, {}, ("worker-0",), {}, "Running", id="30"),
        pytest.param({"Worker": 4}, {}, ("worker-0", "worker-1"), {"worker-2": 0, "worker-3": 0}, "Running", id="31"),
        pytest.param({"Worker": 4}, {}, ("worker-0", "worker-1"), {"worker-2": 1, "worker-3": 1}, "Failed", id="32"),
        pytest.param(
            {"Worker": 4}, {}, (), {"worker-0": 1, "worker-1": 1, "worker-2": 0, "worker-3": 0}, "Failed", id="33"
        ),
        pytest.param({"Worker": 4}, {}, ("worker-1", "worker-2", "worker-3"), {"worker-0": 0}, "Succeeded", id="34"),
        pytest.param(
            {"Worker": 4},
            {"successPolicy": "AllWorkers"},
            ("worker-1", "worker-2", "worker-3"),
            {"worker-0": 0},
            "Running",
            id="35",
        ),
        pytest.param(
            {"Worker": 2}, {"successPolicy": "AllWorkers"}, (), {"worker-0": 0, "worker-1": 0}, "Succeeded", id="36"
        ),
        pytest.param({"Worker": 2}, {"successPolicy": "AllWorkers"}, ("worker-0",), {"worker-1": 1}, "Failed", id="37"),
        pytest.param({"Chief": 1, "Worker": 1}, {}, ("chief-0",), {"worker-0": 0}, "Running", id="38"),
        pytest.param({"Chief": 1, "PS": 1}, {}, ("chief-0",), {"ps-0": 1}, "Failed", id="39"),
        pytest.param({"Chief": 1, "Worker": 1}, {}, (), {"chief-0": 1, "worker-0": 0}, "Failed", id="40"),
        pytest.param({"Chief": 1, "Worker": 1}, {}, (), {"chief-0": 0, "worker-0": 1}, "Succeeded", id="41"),
    ],
)
def test_the_replicas_decide_how_a_tfjob_ends(
    bench: V1Bench,
    replicas: dict[str, int],
    spec: dict[str, Any],
    runs: tuple[str, ...],
    exits: dict[str, int],
    state: str,
) -> None:
    bench.create(replicas, **spec)
    bench.settle()
    bench.runs(*runs)
    for replica, exit_code in exits.items():
        bench.exits(replica, exit_code)
    bench.settle()
    assert bench.state == state
    assert ("completionTime" in bench.status) == (state != "Running")


@pytest.mark.parametrize(
    ("kind", "replicas", "runs", "exits", "state"),
    [
        ("PyTorchJob", {"Master": 1, "Worker": 2}, ("worker-0", "worker-1"), {"master-0": 0}, "Succeeded"),
        ("PyTorchJob", {"Master": 1, "Worker": 2}, ("master-0",), {"worker-0": 0, "worker-1": 0}, "Running"),
        ("PyTorchJob", {"Worker": 2}, ("worker-1",), {"worker-0": 0}, "Running"),
        ("PyTorchJob", {"Worker": 2}, (), {"worker-0": 0, "worker-1": 0}, "Succeeded"),
        ("XGBoostJob", {"Master": 1, "Worker": 1}, ("worker-0",), {"master-0": 0}, "Succeeded"),
        ("XGBoostJob", {"Master": 1, "Worker": 1}, ("master-0",), {"worker-0": 1}, "Failed"),
        ("JAXJob", {"Worker": 2}, ("worker-1",), {"worker-0": 0}, "Running"),
        ("JAXJob", {"Worker": 2}, (), {"worker-0": 0, "worker-1": 0}, "Succeeded"),
        ("PaddleJob", {"Master": 1, "Worker": 1}, ("worker-0",), {"master-0": 0}, "Succeeded"),
    ],
)
def test_the_replicas_decide_how_jobs_of_other_kinds_end(
    kind: str, replicas: dict[str, int], runs: tuple[str, ...], exits: dict[str, int], state: str
) -> None:
    bench = V1Bench(kind)
    bench.create(replicas)
    bench.settle()
    bench.runs(*runs)
    for replica, exit_code in exits.items():
        bench.exits(replica, exit_code)
    bench.settle()
    assert bench.state == state


def test_case_69_one_success_ends_an_elastic_pytorchjob() -> None:
    bench = V1Bench("PyTorchJob")
    bench.create({"Worker": 3}, elasticPolicy={"minReplicas": 1, "maxReplicas": 3})
    bench.settle()
    bench.runs("worker-0", "worker-2")
    bench.exits("worker-1", 0)
    bench.settle()
    assert bench.state == "Succeeded"


def test_an_end_is_said_in_upstreams_words(bench: V1Bench) -> None:
    started(bench, {"Chief": 1, "Worker": 2})
    assert message(bench, "Running") == f"TFJob {NAMESPACE}/{NAME} is running."
    bench.exits("worker-1", 1)
    bench.settle()
    assert bench.conditions == [("Created", "True"), ("Running", "False"), ("Failed", "True")]
    assert message(bench, "Failed") == f"TFJob {NAMESPACE}/{NAME} has failed because 1 Worker replica(s) failed."
    assert bench.status["conditions"][-1]["reason"] == "TFJobFailed"
    assert bench.status["replicaStatuses"] == {"Chief": {"active": 1}, "Worker": {"active": 1, "failed": 1}}


@pytest.mark.parametrize("kind", ["PyTorchJob", "JAXJob", "PaddleJob"])
def test_a_failed_job_is_named_without_its_namespace(kind: str) -> None:
    bench = V1Bench(kind)
    started(bench, {"Worker": 2}, policy="Never")
    assert message(bench, "Running") == f"{kind} {NAMESPACE}/{NAME} is running."
    bench.exits("worker-1", 1)
    bench.settle()
    assert message(bench, "Failed") == f"{kind} {NAME} is failed because 1 Worker replica(s) failed."


def test_an_xgboostjob_shows_that_it_ran_although_its_master_did_not() -> None:
    bench = V1Bench("XGBoostJob")
    bench.create({"Master": 1, "Worker": 1})
    bench.settle()
    bench.exits(WORKER_0, 1)
    bench.settle()
    assert bench.conditions == [("Created", "True"), ("Running", "False"), ("Failed", "True")]


def test_with_dynamic_workers_a_job_goes_on_without_those_that_failed(bench: V1Bench) -> None:
    started(bench, {"Worker": 3}, enableDynamicWorker=True)
    bench.exits("worker-1", 1)
    bench.settle()
    assert (bench.pods, bench.state) == ([WORKER_0, "worker-1", "worker-2"], "Running")
    assert bench.counts("Worker") == {"active": 2, "failed": 1}
    bench.exits(WORKER_0, 0)
    bench.settle()
    assert bench.state == "Succeeded"


def test_with_dynamic_workers_a_job_fails_by_exit_code_and_by_its_other_replicas() -> None:
    for policy, replica in (("ExitCode", WORKER_0), ("Never", "ps-0")):
        bench = V1Bench()
        started(bench, {"Worker": 2, "PS": 1}, policy=policy, enableDynamicWorker=True)
        bench.exits(replica, 1)
        bench.settle()
        assert bench.state == "Failed"


@pytest.mark.parametrize("kind", ["PyTorchJob", "JAXJob", "PaddleJob"])
def test_the_status_selects_the_pods_of_a_type_for_the_scale_subresource(kind: str) -> None:
    bench = V1Bench(kind)
    bench.create({"Worker": 2})
    bench.settle()
    selector = bench.counts("Worker")["selector"]
    prefix = "training.kubeflow.org"
    operator = f"{kind.lower()}-controller"
    assert selector == f"{prefix}/job-name={NAME},{prefix}/operator-name={operator},{prefix}/replica-type=worker"


def test_replicas_of_unknown_types_are_counted_and_decide_nothing(bench: V1Bench) -> None:
    started(bench, {"Worker": 1, "Other": 1})
    bench.exits("other-0", 1)
    bench.settle()
    assert (bench.counts("Other"), bench.state, bench.pods) == ({"failed": 1}, "Running", ["other-0", WORKER_0])


def test_pods_that_still_run_when_a_job_succeeds_count_as_succeeded(bench: V1Bench) -> None:
    started(bench, {"Chief": 1, "Worker": 2})
    bench.exits("chief-0", 0)
    bench.settle()
    assert bench.status["replicaStatuses"] == {"Chief": {"succeeded": 1}, "Worker": {"succeeded": 2}}
    assert message(bench, "Succeeded") == f"TFJob {NAMESPACE}/{NAME} successfully completed."


def test_nothing_changes_after_an_end(bench: V1Bench) -> None:
    started(bench, {"Worker": 2})
    bench.exits("worker-1", 1)
    bench.settle()
    status = bench.status
    bench.exits(WORKER_0, 0)
    bench.settle()
    assert bench.status == status


# Restarts (cases 42, 47, 48, 58, 63 to 66)


@pytest.mark.parametrize("exit_code", [128, 130, 137, 143])
def test_case_47_with_exit_code_a_pod_that_was_ended_by_a_signal_is_replaced(bench: V1Bench, exit_code: int) -> None:
    started(bench, {"Worker": 2}, policy="ExitCode")
    uid = bench.pod(WORKER_0)["metadata"]["uid"]
    bench.exits(WORKER_0, exit_code)
    bench.sync()
    assert bench.conditions == [("Created", "True"), ("Restarting", "True")]
    assert message(bench, "Restarting") == f"job {NAME} is restarting because Worker replica(s) failed."
    bench.settle()
    assert bench.pod(WORKER_0)["metadata"]["uid"] != uid
    bench.runs(WORKER_0)
    bench.settle()
    assert bench.conditions == [("Created", "True"), ("Running", "True")]
    assert bench.counts("Worker") == {"active": 2}


def test_case_42_with_exit_code_replicas_that_signals_have_ended_restart_together(bench: V1Bench) -> None:
    started(bench, {"Chief": 1, "Worker": 4}, policy="ExitCode")
    for replica in bench.pods:
        bench.exits(replica, 130)
    bench.sync()
    assert bench.state == "Restarting"


def test_case_66_each_condition_that_changes_becomes_the_last_one(bench: V1Bench) -> None:
    bench.create({"Worker": 1}, policy="ExitCode")
    bench.settle()
    seen = [bench.conditions]
    for exit_code in (130, 1):
        bench.runs(WORKER_0)
        bench.settle()
        seen.append(bench.conditions)
        bench.exits(WORKER_0, exit_code)
        bench.sync()
        seen.append(bench.conditions)
        bench.settle()
    created = ("Created", "True")
    running = [created, ("Running", "True")]
    assert seen == [
        [created],
        running,
        [created, ("Restarting", "True")],
        running,
        [created, ("Running", "False"), ("Failed", "True")],
    ]


@pytest.mark.parametrize("exit_code", [1, 127])
def test_case_48_with_exit_code_an_error_of_the_program_ends_the_job(bench: V1Bench, exit_code: int) -> None:
    started(bench, {"Worker": 2}, policy="ExitCode")
    bench.exits("worker-1", exit_code)
    bench.settle()
    assert bench.state == "Failed"
    assert message(bench, "Failed") == f'job "{NAME}" is failing because "Worker" replica(s) failed.'
    assert sorted(bench.pods) == [WORKER_0, "worker-1"]


def test_a_pod_that_a_kubelet_starts_again_is_no_restart_of_the_job(bench: V1Bench) -> None:
    started(bench, {"Worker": 2}, policy="OnFailure")
    bench.runs("worker-1", restarts=3)
    bench.settle()
    assert bench.conditions == [("Created", "True"), ("Running", "True")]


@pytest.mark.parametrize(("limit", "restarts", "state"), [(4, 3, "Running"), (4, 4, "Failed"), (0, 1, "Failed")])
def test_case_58_the_backoff_limit_counts_the_restarts_of_all_containers(
    bench: V1Bench, limit: int, restarts: int, state: str
) -> None:
    started(bench, {"Worker": 4}, policy="OnFailure", **run_policy(backoffLimit=limit))
    bench.runs(*(f"worker-{index}" for index in range(restarts)), restarts=1)
    bench.settle()
    assert bench.state == state
    if state == "Failed":
        assert message(bench, "Failed") == f"Job {NAME} has failed because it has reached the specified backoff limit"


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        pytest.param("None", [WORKER_0, "worker-1"], id="63"),
        pytest.param("All", [], id="64"),
        pytest.param("Running", ["worker-1"], id="65"),
    ],
)
def test_at_the_backoff_limit_pods_are_deleted_by_the_policy(bench: V1Bench, policy: str, left: list[str]) -> None:
    limits = run_policy(backoffLimit=1, cleanPodPolicy=policy)
    started(bench, {"Worker": 2}, policy="OnFailure", successPolicy="AllWorkers", **limits)
    bench.exits("worker-1", 0)
    bench.settle()
    bench.runs(WORKER_0, restarts=1)
    bench.settle()
    assert (bench.state, bench.pods, bench.services) == ("Failed", left, left)


def test_the_backoff_limit_counts_pods_that_were_replaced(bench: V1Bench) -> None:
    started(bench, {"Worker": 1}, policy="ExitCode", **run_policy(backoffLimit=2))
    for _ in range(2):
        bench.exits(WORKER_0, 137)
        bench.settle()
        bench.clock.advance(60)
        bench.settle()
    assert bench.state == "Failed"


@pytest.mark.parametrize("policy", ["OnFailure", "Always", "ExitCode"])
def test_a_pod_that_somebody_deletes_is_replaced_once_it_has_ended(bench: V1Bench, policy: str) -> None:
    started(bench, {"Worker": 2}, policy=policy, **run_policy(backoffLimit=0))
    bench.deletes("worker-1")
    bench.settle()
    assert (bench.pods, bench.state) == ([WORKER_0], "Restarting")
    bench.is_gone("worker-1")
    bench.settle()
    assert bench.pods == [WORKER_0, "worker-1"]
    bench.runs("worker-1")
    bench.settle()
    assert bench.state == "Running"


def test_with_never_a_job_fails_when_somebody_deletes_a_pod(bench: V1Bench) -> None:
    started(bench, {"Worker": 2}, policy="Never")
    bench.deletes("worker-1")
    bench.settle()
    assert bench.state == "Failed"


def test_a_success_counts_although_its_pod_is_gone(bench: V1Bench) -> None:
    started(bench, {"Worker": 2}, successPolicy="AllWorkers")
    bench.exits("worker-1", 0)
    bench.settle()
    bench.is_gone("worker-1")
    bench.reconciler = bench.new_reconciler()
    bench.settle()
    assert (bench.pods, bench.counts("Worker")) == ([WORKER_0], {"active": 1, "succeeded": 1})
    bench.exits(WORKER_0, 0)
    bench.settle()
    assert bench.state == "Succeeded"


def test_restarts_are_remembered_by_the_next_process(bench: V1Bench) -> None:
    started(bench, {"Worker": 1}, policy="ExitCode", **run_policy(backoffLimit=2))
    bench.exits(WORKER_0, 137)
    bench.settle()
    bench.reconciler = bench.new_reconciler()
    bench.runs(WORKER_0)
    bench.settle()
    bench.exits(WORKER_0, 137)
    bench.settle()
    assert bench.state == "Failed"


def test_case_56_a_job_fails_at_its_deadline_without_another_event(bench: V1Bench) -> None:
    started(bench, {"Worker": 2}, **run_policy(activeDeadlineSeconds=60, cleanPodPolicy="All"))
    bench.clock.advance(61)
    bench.settle()
    assert bench.state == "Failed"
    expected = f"Job {NAME} has failed because it was active longer than specified deadline"
    assert (message(bench, "Failed"), bench.pods) == (expected, [])


def test_case_57_without_a_deadline_a_job_runs_on(bench: V1Bench) -> None:
    started(bench, {"Worker": 4, "PS": 2}, **run_policy(cleanPodPolicy="All"))
    bench.clock.advance(10**7)
    bench.settle()
    assert (bench.state, bench.pods) == ("Running", list(ALL))


# Clean-up and time to live (cases 53 to 55, 59 to 62)


@pytest.mark.parametrize(
    ("policy", "left"),
    [("None", ["chief-0", "worker-0"]), ("Running", ["chief-0"]), ("All", []), (None, ["chief-0", "worker-0"])],
)
def test_case_53_pods_and_services_are_deleted_by_the_policy(
    bench: V1Bench, policy: str | None, left: list[str]
) -> None:
    fields = {} if policy is None else {"cleanPodPolicy": policy}
    started(bench, {"Chief": 1, "Worker": 1}, **run_policy(**fields))
    bench.exits("chief-0", 0)
    bench.settle()
    assert (bench.pods, bench.services) == (left, left)
    assert bench.state == "Succeeded"


def test_a_job_that_is_cleaned_up_costs_no_request(bench: V1Bench) -> None:
    started(bench, {"Chief": 1, "Worker": 1}, **run_policy(cleanPodPolicy="Running"))
    bench.exits("chief-0", 0)
    bench.settle()
    bench.is_gone(WORKER_0)
    bench.settle()
    sent = len(bench.api.sent)
    bench.reconciler = bench.new_reconciler()
    bench.settle()
    assert len(bench.api.sent) == sent


@pytest.mark.parametrize(("exit_code", "seconds"), [(0, 3), (1, 3), (0, 0)])
def test_case_59_a_job_is_deleted_after_its_time_to_live(bench: V1Bench, exit_code: int, seconds: int) -> None:
    started(bench, {"Worker": 1}, **run_policy(ttlSecondsAfterFinished=seconds))
    bench.exits(WORKER_0, exit_code)
    bench.sync()
    bench.clock.advance(seconds + 1)
    bench.settle()
    assert f"{bench.path}/{NAME}" not in bench.api.objects


# Suspension (cases 8 to 19, 62)


@pytest.mark.parametrize("kind", ["TFJob", "PyTorchJob", "XGBoostJob", "JAXJob", "PaddleJob"])
def test_case_8_a_job_that_is_created_suspended_has_no_pods_and_no_start(kind: str) -> None:
    bench = V1Bench(kind)
    bench.create({"Worker": 1} if kind == "JAXJob" else {"Master": 1, "Worker": 1}, **run_policy(suspend=True))
    bench.settle()
    assert (bench.pods, bench.services) == ([], [])
    assert bench.conditions == [("Created", "True"), ("Suspended", "True")]
    assert "startTime" not in bench.status
    assert message(bench, "Suspended") == f"{kind} {NAME} is suspended."
    assert "replicaStatuses" not in bench.status


@pytest.mark.parametrize("kind", ["TFJob", "PyTorchJob", "XGBoostJob", "JAXJob", "PaddleJob"])
def test_case_14_a_job_is_suspended_and_resumed(kind: str) -> None:
    bench = V1Bench(kind)
    started(bench, {"Worker": 2} if kind == "JAXJob" else {"Master": 1, "Worker": 1})
    replicas, began = bench.pods, bench.status["startTime"]
    bench.clock.advance(60)
    bench.change(**run_policy(suspend=True))
    bench.settle()
    bench.is_gone(*replicas)
    bench.settle()
    assert (bench.pods, bench.services) == ([], [])
    assert bench.conditions == [("Created", "True"), ("Running", "False"), ("Suspended", "True")]
    assert bench.status["conditions"][1]["reason"] == f"{kind}Suspended"
    assert bench.status["startTime"] == began
    assert all("active" not in counts for counts in bench.status["replicaStatuses"].values())
    bench.change(**run_policy(suspend=False))
    bench.settle()
    bench.runs(*bench.pods)
    bench.settle()
    assert (bench.pods, bench.services) == (replicas, replicas)
    assert bench.conditions == [("Created", "True"), ("Suspended", "False"), ("Running", "True")]
    assert bench.status["conditions"][1]["reason"] == f"{kind}Resumed"
    assert bench.status["startTime"] > began


def test_no_pod_starts_beside_one_that_the_suspension_has_left(bench: V1Bench) -> None:
    """Nor does its end count as a restart: the job was suspended."""
    started(bench, {"Worker": 1}, policy="OnFailure", **run_policy(backoffLimit=0))
    bench.clock.advance(60)
    bench.change(**run_policy(suspend=True))
    bench.settle()
    bench.change(**run_policy(suspend=False))
    bench.settle()
    assert (bench.pods, bench.state) == ([], "Suspended")
    bench.is_gone(WORKER_0)
    bench.settle()
    assert bench.pods == [WORKER_0]
    assert bench.state != "Failed"


@pytest.mark.parametrize("exit_code", [0, 1, 143])
@pytest.mark.parametrize("policy", ["Never", "ExitCode", "OnFailure"])
def test_how_a_pod_ends_because_its_job_is_suspended_does_not_count(
    bench: V1Bench, policy: str, exit_code: int
) -> None:
    started(bench, {"Worker": 1, "PS": 1}, policy=policy)
    bench.change(**run_policy(suspend=True))
    bench.settle()
    for replica in (WORKER_0, "ps-0"):
        bench.is_told_to_end(replica, exit_code)
        bench.settle()
    assert bench.state == "Suspended"
    bench.change(**run_policy(suspend=False))
    bench.settle()
    bench.is_gone(WORKER_0, "ps-0")
    bench.settle()
    assert bench.pods == ["ps-0", WORKER_0]


def test_what_has_succeeded_stays_so_when_a_job_is_suspended(bench: V1Bench) -> None:
    started(bench, {"Worker": 2}, successPolicy="AllWorkers")
    bench.exits("worker-1", 0)
    bench.settle()
    bench.change(**run_policy(suspend=True))
    bench.settle()
    bench.is_gone(WORKER_0)
    bench.change(**run_policy(suspend=False))
    bench.settle()
    assert bench.pods == [WORKER_0]


# What it costs


def test_a_job_without_failures_takes_two_creates_a_replica_and_three_statuses(bench: V1Bench) -> None:
    started(bench, {"Worker": 5})
    bench.exits(WORKER_0, 0)
    bench.settle()
    creates = [request for request in bench.api.sent if request.method == "POST"]
    others = [request for request in bench.api.sent if request.method not in ("POST", "GET")]
    assert len(creates) == 10
    assert [request.path.rpartition("/")[2] for request in others] == ["status"] * 3


def test_an_unchanged_job_costs_no_request_after_a_restart_of_the_controller(bench: V1Bench) -> None:
    started(bench, {"Worker": 3})
    sent = len(bench.api.sent)
    bench.reconciler = bench.new_reconciler()
    bench.settle()
    assert len(bench.api.sent) == sent


def test_the_pods_of_training_operator_are_taken_over_as_they_are(bench: V1Bench) -> None:
    """Its pods have other variables than a new one would get, and stay."""
    started(bench, {"Worker": 2})
    bench.api.change(
        f"/api/v1/namespaces/{NAMESPACE}/pods/{NAME}-worker-0", {"spec": {"containers": [{"name": "tensorflow"}]}}
    )
    sent = len(bench.api.sent)
    bench.reconciler = bench.new_reconciler()
    bench.settle()
    assert len(bench.api.sent) == sent


def test_a_pod_of_somebody_else_is_named_as_the_obstacle(bench: V1Bench) -> None:
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    bench.api.put(pods, {"metadata": {"name": f"{NAME}-worker-0"}, "spec": {}})
    bench.create({"Worker": 1})
    bench.sync()
    (event,) = [note for type_, reason, note in bench.recorder.events if reason == "FailedCreatePod"]
    assert "Pod example-job-worker-0 exists already and is not this job's" in event
    assert "deletionTimestamp" not in bench.api.objects[f"{pods}/{NAME}-worker-0"]["metadata"]


def test_an_invalid_job_fails_and_its_pods_are_stopped(bench: V1Bench) -> None:
    started(bench, {"Worker": 1})
    template = {"spec": {"containers": [{"name": "tensorflow", "image": ""}]}}
    bench.change(tfReplicaSpecs={"Worker": {"template": template}})
    bench.settle()
    assert (bench.state, bench.pods) == ("Failed", [])
    assert "spec.tfReplicaSpecs" in message(bench, "Failed")


# Events


def test_events_are_those_of_upstream_and_say_why_a_replica_failed(bench: V1Bench) -> None:
    started(bench, {"Worker": 2}, **run_policy(cleanPodPolicy="Running"))
    bench.exits("worker-1", 1)
    bench.settle()
    assert bench.recorder.events == [
        ("Normal", "SuccessfulCreatePod", f"Created 2 Pods: {NAME}-worker-0, {NAME}-worker-1"),
        ("Normal", "SuccessfulCreateService", f"Created 2 Services: {NAME}-worker-0, {NAME}-worker-1"),
        ("Normal", "ExitedWithCode", f"Pod: {NAMESPACE}.{NAME}-worker-1 exited with code 1"),
        ("Warning", "ReplicaFailed", "worker-1 failed: exit code 1"),
        ("Normal", "TFJobFailed", f"TFJob {NAMESPACE}/{NAME} has failed because 1 Worker replica(s) failed."),
        ("Normal", "SuccessfulDeleteService", f"Deleted Service {NAME}-worker-0"),
        ("Normal", "SuccessfulDeletePod", f"Deleted Pod {NAME}-worker-0"),
    ]


def test_a_restart_is_an_event_of_upstream_and_one_with_the_reason(bench: V1Bench) -> None:
    started(bench, {"Worker": 1}, policy="ExitCode")
    before = len(bench.recorder.events)
    bench.exits(WORKER_0, 137)
    bench.sync()
    assert bench.recorder.events[before:] == [
        ("Normal", "ExitedWithCode", f"Pod: {NAMESPACE}.{NAME}-worker-0 exited with code 137"),
        ("Warning", "Restarted", "Restarted worker-0: worker-0 failed: exit code 137 (1 restarts so far)"),
        ("Warning", "TFJobRestarting", f"job {NAME} is restarting because Worker replica(s) failed."),
    ]


# What a review found


def test_a_pod_that_fails_because_its_peers_were_stopped_does_not_end_a_suspended_job() -> None:
    bench = V1Bench("JAXJob")
    started(bench, {"Worker": 2}, policy="Never")
    bench.change(**run_policy(suspend=True))
    bench.exits("worker-1", 1)
    bench.settle()
    bench.is_gone(WORKER_0)
    bench.settle()
    assert bench.conditions == [("Created", "True"), ("Running", "False"), ("Suspended", "True")]
    assert bench.pods == []
    bench.change(**run_policy(suspend=False))
    bench.settle()
    assert sorted(bench.pods) == [WORKER_0, "worker-1"]


def test_with_exit_code_a_worker_that_did_not_find_its_master_in_time_is_replaced() -> None:
    bench = V1Bench("PyTorchJob")
    bench.create({"Master": 1, "Worker": 1}, policy="ExitCode")
    bench.settle()
    bench.fails_before_training(WORKER_0, "init-pytorch")
    bench.settle()
    assert bench.state == "Restarting"
    bench.runs("master-0", WORKER_0)
    bench.settle()
    assert bench.state == "Running"


def test_with_never_a_pod_that_has_not_started_can_be_deleted(bench: V1Bench) -> None:
    bench.create({"Worker": 2}, policy="Never")
    bench.settle()
    bench.runs(WORKER_0)
    bench.is_being_deleted("worker-1")
    bench.settle()
    assert bench.state != "Failed"
    bench.is_gone("worker-1")
    bench.settle()
    assert bench.pods == [WORKER_0, "worker-1"]


@pytest.mark.parametrize("replicas", [{"PS": 1}, {"PS": 1, "Evaluator": 1}, {"Other": 1}])
def test_a_tfjob_without_a_replica_that_decides_does_not_succeed(bench: V1Bench, replicas: dict[str, int]) -> None:
    started(bench, replicas)
    for pod in bench.pods:
        bench.exits(pod, 0)
    bench.settle()
    assert "Succeeded" not in dict(bench.conditions)


@pytest.mark.parametrize("policy", ["all", "Foo", ""])
def test_an_unknown_clean_up_policy_deletes_all(bench: V1Bench, policy: str) -> None:
    started(bench, {"Worker": 2}, **run_policy(cleanPodPolicy=policy))
    bench.exits(WORKER_0, 0)
    bench.settle()
    assert bench.pods == []


def test_a_finished_job_that_is_suspended_is_kept(bench: V1Bench) -> None:
    started(bench, {"Worker": 1}, **run_policy(ttlSecondsAfterFinished=3))
    bench.exits(WORKER_0, 0)
    bench.sync()
    bench.change(**run_policy(suspend=True))
    bench.clock.advance(10)
    bench.settle()
    assert bench.state == "Succeeded"


def test_pods_are_counted_by_their_phase_and_once(bench: V1Bench) -> None:
    started(bench, {"Worker": 2}, policy="OnFailure")
    bench.deletes("worker-1")
    bench.settle()
    assert bench.counts("Worker") == {"active": 1, "failed": 1}
    bench.is_gone("worker-1")
    bench.change(**run_policy(suspend=True))
    bench.settle()
    assert bench.counts("Worker") == {"active": 1}
    bench.is_gone(WORKER_0)
    bench.settle()
    assert bench.counts("Worker") == {}


def test_a_job_that_becomes_invalid_after_its_end_is_left_alone(bench: V1Bench) -> None:
    started(bench, {"Chief": 1, "Worker": 1}, **run_policy(cleanPodPolicy="None"))
    bench.exits("chief-0", 0)
    bench.settle()
    bench.change(tfReplicaSpecs={"Worker": {"template": {"spec": {"containers": []}}}})
    bench.reconciler = bench.new_reconciler()
    bench.settle()
    assert (bench.state, bench.pods) == ("Succeeded", ["chief-0", WORKER_0])


def test_a_template_that_was_copied_from_a_pod_is_cleaned(bench: V1Bench) -> None:
    bench.create({"Worker": 1}, policy="ExitCode", **run_policy(backoffLimit=3))
    copied = {"annotations": {"kubeflow.org/restarts": "7"}, "resourceVersion": "5", "uid": "u"}
    bench.change(tfReplicaSpecs={"Worker": {"template": {"metadata": copied}}})
    bench.settle()
    assert "annotations" not in bench.pod(WORKER_0)["metadata"]
    bench.runs(WORKER_0)
    bench.settle()
    assert bench.state == "Running"


def test_the_limit_is_named_as_it_was_set(bench: V1Bench) -> None:
    started(bench, {"Worker": 1}, policy="OnFailure", **run_policy(backoffLimit=3))
    bench.runs(WORKER_0, restarts=3)
    bench.settle()
    (note,) = [note for _, reason, note in bench.recorder.events if reason == "ReplicaFailed"]
    assert note.startswith("BackoffLimitExceeded: 3 restarts of replicas, backoffLimit is 3")


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "never"])
def test_a_forged_start_does_no_harm(bench: V1Bench, time: str) -> None:
    started(bench, {"Worker": 1}, **run_policy(activeDeadlineSeconds=60))
    bench.api.change(f"{bench.path}/{NAME}", {"status": {"startTime": time}})
    bench.settle()
    assert bench.state == "Running"


def test_a_variable_without_a_name_ends_the_job_with_its_place(bench: V1Bench) -> None:
    bench.create({"Worker": 1})
    containers = [{"name": "tensorflow", "image": "a", "env": [{"name": ["b"]}]}]
    bench.change(tfReplicaSpecs={"Worker": {"template": {"spec": {"containers": containers}}}})
    bench.settle()
    assert "containers[0].env: expected a list of objects with names" in message(bench, "Failed")


def test_pods_are_deleted_for_a_suspension_once_the_status_says_so(bench: V1Bench) -> None:
    """Otherwise the next process would take their end for that of their programs."""
    started(bench, {"Worker": 2}, policy="Never")
    bench.api.fail(500, method="PATCH", part="/status")
    bench.change(**run_policy(suspend=True))
    bench.sync()
    assert len(bench.pods) == 2
    bench.change(**run_policy(suspend=False))
    bench.settle()
    assert (bench.state, len(bench.pods)) == ("Running", 2)


@pytest.mark.parametrize("digits", [9, 400])
def test_a_forged_count_of_restarts_is_no_large_number(bench: V1Bench, digits: int) -> None:
    job = started(bench, {"Worker": 1}, policy="OnFailure").job
    uid, number = job["metadata"]["uid"], "9" * digits
    record = f'{{"uid":"{uid}","restarts":{number}}}'
    bench.api.change(f"{bench.path}/{NAME}", {"metadata": {"annotations": {"kubeflow.org/training-status": record}}})
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods/{NAME}-worker-0"
    bench.api.change(pods, {"metadata": {"annotations": {"kubeflow.org/restarts": number}}})
    bench.settle()
    assert bench.caches.jobs.store.list()
    assert all(float(v1_work(job).status.restarts) < 2**32 for job in bench.caches.jobs.store.list())
