"""What a TrainJob is compiled into."""

from __future__ import annotations

import copy
import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from helpers.trainmanifests import override, role_template
from helpers.trainworld import CLAIM, IN_STEPS, recipe, runtime_spec, train_plan
from tfjob_controller.api.controllerconfig import Accelerator, ControllerConfig, EnvVar
from tfjob_controller.api.trainjob.types import JobsStatus, TrainJobStatus
from tfjob_controller.jobs.actions.children import build_config_map, build_job, build_secret, build_service
from tfjob_controller.jobs.frameworks import environment, mpi
from tfjob_controller.jobs.frameworks.base import Setting
from tfjob_controller.jobs.naming import INDEX_REFERENCE, INDEX_VARIABLE
from tfjob_controller.jobs.plan.gangterms import (
    ALWAYS,
    OFF,
    ON_REQUEST,
    GangPolicy,
)
from tfjob_controller.jobs.plan.model import Plan, UnplannableError
from tfjob_controller.kinds.trainjob.plan import build_train_plan
from tfjob_controller.kinds.trainjob.podtemplate import NO_WORKSPACE

GANGS = GangPolicy(ON_REQUEST, "gang-scheduler")
SHARED = runtime_spec(workspace=CLAIM)
MPI = {"command": ["mpirun", "train"]}


def ids(plan: Plan) -> list[str]:
    return [each.id for each in plan.replicas.all]


def pod_of(plan: Plan, replica_id: str) -> Mapping[str, Any]:
    """The pod spec of a replica's Job."""
    replica = next(each for each in plan.replicas.all if each.id == replica_id)
    spec: Mapping[str, Any] = build_job(plan, replica)["spec"]["template"]["spec"]
    return spec


def container_of(plan: Plan, replica_id: str) -> Mapping[str, Any]:
    role = replica_id.rpartition("-")[0]
    return next(each for each in pod_of(plan, replica_id)["containers"] if each["name"] == role)


def env_of(plan: Plan, replica_id: str) -> dict[str, Any]:
    """As the program finds it: Kubernetes has replaced the reference to the node's index."""
    index = replica_id.rpartition("-")[2]
    env = {each["name"]: each.get("value") for each in container_of(plan, replica_id)["env"]}
    if INDEX_VARIABLE in env:
        assert next(iter(env)) == INDEX_VARIABLE, "a variable can only use those before it"
        del env[INDEX_VARIABLE]
    return {name: value and value.replace(INDEX_REFERENCE, index) for name, value in env.items()}


# Roles and replicas


def test_a_job_of_n_nodes_has_n_replicas_and_the_first_is_its_chief() -> None:
    plan = train_plan(nodes=3)
    assert ids(plan) == ["node-0", "node-1", "node-2"]
    assert plan.replicas.chief is plan.replicas.all[0]
    assert [each.id for each in plan.replicas.needed] == ids(plan)
    assert plan.steps == ()


def test_with_mpi_the_launcher_is_the_chief_and_its_end_the_jobs() -> None:
    plan = train_plan(**MPI)
    assert ids(plan) == ["launcher-0", "node-0", "node-1"]
    assert [each.id for each in plan.replicas.needed] == ["launcher-0"]
    assert [each.serves for each in plan.replicas.all] == [False, True, True]


def test_what_is_left_out_comes_from_the_runtime() -> None:
    runtime = runtime_spec(numNodes=3, templates={"node": role_template(image="of-the-runtime")})
    plan = train_plan(runtime=runtime, nodes=None, trainer={"image": None})
    assert len(plan.replicas.all) == 3
    assert container_of(plan, "node-0")["image"] == "of-the-runtime"


def test_a_service_is_there_for_nodes_whose_framework_has_a_port() -> None:
    with_port, without = train_plan(command=["torchrun", "x"]), train_plan()
    assert build_service(with_port, with_port.replicas.chief)["spec"]["ports"] == [{"name": "torch", "port": 29500}]
    assert [role.port for role in without.replicas.roles] == [0]
    assert {role.name: role.port for role in train_plan(**MPI).replicas.roles} == {"launcher": 0, "node": mpi.SSH_PORT}


def test_nodes_and_launcher_are_started_again_together_and_nothing_else_is() -> None:
    plan = train_plan(runtime=SHARED, **IN_STEPS, **MPI)
    assert {role.name for role in plan.replicas.roles if role.restarts_together} == {"launcher", "node"}
    for replica in plan.replicas.all:
        job = build_job(plan, replica)["spec"]
        assert job["backoffLimitPerIndex" if replica.role.job_name else "backoffLimit"] == 0
        assert job["template"]["spec"]["restartPolicy"] == "Never"
        in_place = any("restartPolicy" in each for each in job["template"]["spec"]["containers"])
        assert in_place != replica.role.restarts_together


def test_policies_of_the_job_are_those_of_the_plan() -> None:
    plan = train_plan(suspend=True, activeDeadlineSeconds=60, maxRestarts=3)
    policy = plan.policy
    assert (policy.suspend, policy.active_deadline_seconds, policy.backoff_limit) == (True, 60, 3)


def test_all_children_carry_the_jobs_labels_and_the_users() -> None:
    plan = train_plan(labels={"team": "a", "kubeflow.org": "no"}, annotations={"note": "b"})
    job = build_job(plan, plan.replicas.chief)
    assert job["metadata"]["annotations"] == {"note": "b"}
    for labels in (job["metadata"]["labels"], job["spec"]["template"]["metadata"]["labels"]):
        assert labels["team"] == "a"
        assert labels["kubeflow.org"] == ""
        assert labels["train_job_name"] == "example-train"
        assert labels["job_type"] == "node"


def test_children_are_owned_by_the_train_job() -> None:
    owner = train_plan().identity.owner
    assert (owner.api_version, owner.kind, owner.controller) == ("kubeflow.org/v2alpha1", "TrainJob", True)


# Steps


def test_with_a_shared_volume_there_are_three_steps_each_a_part_of_the_whole() -> None:
    plan = train_plan(runtime=SHARED, gangs=GANGS, gang={"enabled": True}, **IN_STEPS, **MPI)
    assert [ids(step) for step in plan.steps] == [
        ["dataset-initializer-0", "model-initializer-0"],
        ["launcher-0", "node-0", "node-1"],
        ["model-exporter-0"],
    ]
    assert [step.scheduling.gang is not None for step in plan.steps] == [False, True, False]
    assert [step.mounts.secret is not None for step in plan.steps] == [False, True, False]
    assert [bool(step.mounts.config_map) for step in plan.steps] == [False, True, False]
    assert [[each.id for each in step.replicas.needed] for step in plan.steps] == [
        ["dataset-initializer-0", "model-initializer-0"],
        ["launcher-0"],
        ["model-exporter-0"],
    ]
    assert [each.id for each in plan.replicas.needed] == ["model-exporter-0"]


@pytest.mark.parametrize(
    ("fields", "steps"),
    [
        pytest.param({"datasetConfig": {"storageUri": "s3://a"}}, [1, 2], id="dataset"),
        pytest.param({"modelConfig": {"output": {"storageUri": "s3://a"}}}, [2, 1], id="output"),
        pytest.param({"datasetConfig": {"storageUri": "pvc://a/b"}}, [], id="a-claim-is-brought-by-nobody"),
        pytest.param({}, [], id="nothing"),
    ],
)
def test_a_step_that_has_nothing_to_do_is_left_out(fields: dict[str, Any], steps: list[int]) -> None:
    assert [len(step.replicas.all) for step in train_plan(runtime=SHARED, **fields).steps] == steps


def test_without_a_shared_volume_each_node_initializes_for_itself() -> None:
    fields = {**IN_STEPS, "modelConfig": {"input": {"storageUri": "hf://gpt2"}}}
    plan = train_plan(**fields)
    assert ids(plan) == ["node-0", "node-1"]
    assert [each["name"] for each in pod_of(plan, "node-1")["initContainers"]] == [
        "dataset-initializer",
        "model-initializer",
    ]


def test_what_nobody_could_export_is_refused() -> None:
    with pytest.raises(UnplannableError, match="persistentVolumeClaim") as refused:
        train_plan(**IN_STEPS)
    assert str(refused.value) == NO_WORKSPACE
    assert refused.value.seconds_left == 0


# Environment


@pytest.mark.parametrize("command", [["torchrun", "x"], ["mpirun", "x"]], ids=["torch", "mpi"])
def test_only_the_training_container_learns_of_the_others(command: list[str]) -> None:
    side = {"name": "side", "image": "x"}
    node = {"spec": {"containers": [side, {"name": "node"}]}}
    plan = train_plan(runtime=runtime_spec(templates={"node": node}), command=command)
    (found,) = [each for each in pod_of(plan, "node-0")["containers"] if each["name"] == "side"]
    assert found == side


def test_the_frameworks_variables_come_after_the_users_and_win_over_the_runtimes() -> None:
    runtime = runtime_spec(templates={"node": role_template(env=[{"name": "RANK", "value": "7"}])})
    plan = train_plan(runtime=runtime, command=["torchrun", "x"], trainer={"env": [{"name": "A", "value": "b"}]})
    assert env_of(plan, "node-1")["RANK"] == "1"
    names = [each["name"] for each in container_of(plan, "node-1")["env"]]
    assert names[:2] == [INDEX_VARIABLE, "A"]
    assert len(names) == len(set(names))


def test_a_framework_gets_the_resources_of_a_node() -> None:
    resources = {"limits": {"nvidia.com/gpu": 4}, "requests": {"cpu": "7500m"}}
    setting = recipe(nodes=2, trainer={"resourcesPerNode": resources, "numProcPerNode": 2}).setting
    assert (setting.gpus, setting.cpus, setting.num_proc_per_node, setting.num_nodes) == (4, 7.5, "2", 2)
    plan = train_plan(nodes=2)
    assert setting.nodes == tuple(each.name for each in plan.replicas.all)
    assert plan.replicas.chief.role.service_name == ""
    with_service = recipe(nodes=2, command=["torchrun", "x"])
    assert with_service.setting.nodes[1] == f"{with_service.name('node', 1)}.{with_service.service_name}"


def test_torchrun_starts_a_process_for_each_mig_instance_and_not_for_each_cpu() -> None:
    resources = {"limits": {"cpu": 16, "nvidia.com/mig-1g.5gb": 2}}
    plan = train_plan(command=["torchrun", "x"], trainer={"resourcesPerNode": resources})
    assert env_of(plan, "node-0")["PET_NPROC_PER_NODE"] == "2"


@pytest.mark.parametrize("trainer", [{"env": [{"name": "OF_MINE", "value": "1"}]}])
def test_variables_of_a_framework_that_the_api_server_does_not_know_are_refused_too(trainer: dict[str, Any]) -> None:
    with pytest.raises(UnplannableError, match=r"spec.trainer.env\[0\].name: OF_MINE is set by the controller"):
        train_plan(plugin=Plugin(), trainer=trainer)


def test_a_job_that_the_framework_cannot_run_is_refused_with_its_message() -> None:
    with pytest.raises(UnplannableError, match="numProcPerNode"):
        train_plan(command=["torchrun", "x"], trainer={"numProcPerNode": "gpu"})


# Files, secrets, accelerators


def test_mpi_creates_a_hostfile_and_keys_that_its_pods_mount() -> None:
    plan = train_plan(**MPI)
    assert plan.mounts.secret is not None
    assert (plan.mounts.secret.name, plan.mounts.secret.type) == (
        "example-train-mpi-ssh-auth",
        "kubernetes.io/ssh-auth",
    )
    hostfile = build_config_map(plan)["data"]["hostfile"]
    nodes = [each for each in plan.replicas.all if each.role.name == "node"]
    assert hostfile == "".join(f"{each.name}.{each.role.service_name} slots=1\n" for each in nodes)
    volumes = json.dumps(pod_of(plan, "node-0")["volumes"])
    assert plan.mounts.secret.name in volumes
    assert plan.mounts.config_map in volumes


def test_other_files_are_in_another_config_map() -> None:
    names = [train_plan(nodes=nodes, **MPI).mounts.config_map for nodes in (2, 2, 3)]
    assert re.fullmatch(r"example-train-[a-z0-9]{4}-mpi-[0-9a-f]{8}", names[0])
    assert names[0] == names[1] != names[2]


def test_the_secrets_name_ends_where_names_end() -> None:
    plan = train_plan(name="a" * 239 + "." + "b" * 13, **MPI)
    assert plan.mounts.secret is not None
    assert plan.mounts.secret.name == "a" * 239 + "-mpi-ssh-auth"
    assert len(plan.mounts.secret.name) <= 253


def test_accelerators_of_the_controllers_config_are_filled_in_for_nodes_that_ask_for_them() -> None:
    config = ControllerConfig(accelerators={"example.com/npu": Accelerator(env_vars=(EnvVar("NPU", "1"),))})
    made = recipe(nodes=1, trainer={"resourcesPerNode": {"limits": {"example.com/npu": 2}}})
    plan = build_train_plan(type(made)(made.job, made.framework, None, config))
    assert env_of(plan, "node-0") == {"NPU": "1"}
    assert type(made)(made.job, made.framework, None, config).setting.gpus == 2
    assert env_of(train_plan(nodes=1), "node-0") == {}


# Gangs


@pytest.mark.parametrize(
    ("which", "enabled", "is_gang", "is_refused"),
    [
        (OFF, True, False, True),
        (ON_REQUEST, True, True, False),
        (ALWAYS, False, False, False),
    ],
)
def test_flag_and_job_say_whether_it_is_a_gang(
    which: str, enabled: bool | None, is_gang: bool, is_refused: bool
) -> None:
    plan = train_plan(gangs=GangPolicy(which, "g"), gang={} if enabled is None else {"enabled": enabled})
    assert (plan.scheduling.gang is not None, plan.scheduling.is_gang_refused) == (is_gang, is_refused)


def test_a_gang_has_launcher_and_nodes_with_the_requests_of_each() -> None:
    resources = {"requests": {"cpu": "2"}}
    plan = train_plan(
        runtime=SHARED, gangs=GANGS, gang={"enabled": True}, trainer={"resourcesPerNode": resources}, **IN_STEPS, **MPI
    )
    assert plan.scheduling.gang is not None
    assert [(each.name, each.count, each.resources.get("cpu")) for each in plan.scheduling.gang.members] == [
        ("launcher", 1, None),
        ("node", 2, "2"),
    ]


@pytest.mark.parametrize("gang", [{"enabled": True}, None], ids=["gang", "no-gang"])
def test_amounts_in_a_runtime_that_are_none_are_refused(gang: dict[str, Any] | None) -> None:
    runtime = runtime_spec(templates={"node": role_template(resources={"requests": {"cpu": "many"}})})
    with pytest.raises(UnplannableError, match="the pods of node: not a quantity: 'many'"):
        train_plan(runtime=runtime, gangs=GANGS, gang=gang)


def test_a_gang_whose_requests_cannot_be_computed_is_refused() -> None:
    runtime = runtime_spec(templates={"launcher": role_template("launcher", resources={"requests": {"cpu": "many"}})})
    with pytest.raises(UnplannableError, match="the pods of launcher: "):
        train_plan(runtime=runtime, gangs=GANGS, gang={"enabled": True}, **MPI)


# Overrides, purity


def test_a_template_is_the_runtimes_then_the_overrides_then_the_trainers() -> None:
    three = [{"name": name, "value": "runtime"} for name in "abc"]
    runtime = runtime_spec(templates={"node": role_template(image="of-the-runtime", env=three)})
    two = [{"name": name, "value": "override"} for name in "bc"]
    overrides = [override("node", containers=[{"name": "node", "env": two}])]
    plan = train_plan(runtime=runtime, podSpecOverrides=overrides, trainer={"env": [{"name": "c", "value": "trainer"}]})
    assert env_of(plan, "node-0") == {"a": "runtime", "b": "override", "c": "trainer"}


@pytest.mark.parametrize(
    "job",
    [
        {"trainer": {"env": [{"name": "ROOT", "value": "/mine"}]}},
        {
            "podSpecOverrides": [
                override("node", containers=[{"name": "node", "env": [{"name": "ROOT", "value": "/mine"}]}])
            ]
        },
    ],
    ids=["trainer", "podSpecOverrides"],
)
def test_a_later_variable_may_refer_to_one_that_the_job_overrides(job: dict[str, Any]) -> None:
    env = [{"name": "ROOT", "value": "/default"}, {"name": "RESULT", "value": "$(ROOT)/out"}]
    plan = train_plan(runtime=runtime_spec(templates={"node": role_template(env=env)}), **job)
    assert list(env_of(plan, "node-0").items()) == [("ROOT", "/mine"), ("RESULT", "$(ROOT)/out")]


def test_a_later_variable_may_refer_to_one_that_an_initializer_overrides() -> None:
    env = [{"name": "ROOT", "value": "/default"}, {"name": "HF_HOME", "value": "$(ROOT)/hub"}]
    runtime = runtime_spec(templates={"dataset-initializer": role_template("dataset-initializer", env=env)})
    data = {"storageUri": "hf://a/b", "env": [{"name": "ROOT", "value": "/mine"}]}
    (initializer,) = pod_of(train_plan(runtime=runtime, datasetConfig=data), "node-0")["initContainers"]
    assert [each["name"] for each in initializer["env"]] == ["ROOT", "HF_HOME", "STORAGE_URI"]
    assert initializer["env"][0]["value"] == "/mine"


A_LOG = [{"name": "log"}]


@pytest.mark.parametrize(
    ("job", "problem"),
    [
        pytest.param(
            {"podSpecOverrides": [override("node"), override("node", "launcher")]},
            "spec.podSpecOverrides[1].targetJobs[1].name: there is no step launcher; this job has node",
            id="step",
        ),
        pytest.param(
            {"podSpecOverrides": [override("dataset-initializer")], "datasetConfig": {"storageUri": "pvc://claim/a"}},
            "spec.podSpecOverrides[0].targetJobs[0].name: there is no step dataset-initializer; this job has node",
            id="nothing-to-fetch",
        ),
        pytest.param(
            {"podSpecOverrides": [override("node", containers=[{"name": "node"}, {"name": "trainer"}])]},
            "spec.podSpecOverrides[0].containers[1].name: "
            "there is no container trainer; the pods of node have node, log",
            id="container",
        ),
        pytest.param(
            {"podSpecOverrides": [override("node", initContainers=A_LOG)]},
            "spec.podSpecOverrides[0].initContainers[0].name: "
            "there is no init container log; the pods of node have wait",
            id="init-container",
        ),
        pytest.param(
            {"podSpecOverrides": [override("launcher", "node", initContainers=A_LOG)], **MPI},
            "spec.podSpecOverrides[0].initContainers[0].name: "
            "there is no init container log; the pods of launcher and node have wait",
            id="of-two-steps",
        ),
        pytest.param(
            {
                "podSpecOverrides": [override("dataset-initializer", containers=A_LOG)],
                "datasetConfig": {"storageUri": "s3://a"},
            },
            "spec.podSpecOverrides[0].containers[0].name: "
            "there is no container log; the pods of dataset-initializer have dataset-initializer",
            id="nodes-run-one-container-of-an-initializer",
        ),
    ],
)
def test_an_override_of_what_does_not_exist_is_refused(job: dict[str, Any], problem: str) -> None:
    node = {"spec": {"containers": [{"name": "node"}, *A_LOG], "initContainers": [{"name": "wait"}]}}
    initializer = {"spec": {"containers": [{"name": "dataset-initializer"}, *A_LOG]}}
    runtime = runtime_spec(templates={"node": node, "dataset-initializer": initializer})
    with pytest.raises(UnplannableError) as refused:
        train_plan(runtime=runtime, **job)
    assert str(refused.value) == problem
    assert refused.value.seconds_left == 0


def test_an_override_of_several_steps_may_name_containers_of_each() -> None:
    names = [{"name": "node"}, {"name": "launcher"}]
    plan = train_plan(podSpecOverrides=[override("node", "launcher", containers=names, schedulerName="mine")], **MPI)
    assert pod_of(plan, "node-0")["schedulerName"] == pod_of(plan, "launcher-0")["schedulerName"] == "mine"


def test_a_started_job_is_not_refused_when_its_runtime_has_lost_a_container() -> None:
    made = recipe(podSpecOverrides=[override("node", initContainers=A_LOG)])
    started = replace(made.job, status=TrainJobStatus(jobs_status=(JobsStatus("node", replicas=2),)))
    assert len(build_train_plan(dataclasses.replace(made, job=started)).replicas.all) == 2


CHECKPOINT = {"checkpoint": {"storageUri": "s3://a"}}
TAKEN = "{} is the name of a {} that the controller adds: rename it"
S3_DATASET = {"datasetConfig": {"storageUri": "s3://a"}}


@pytest.mark.parametrize(
    ("pod_spec", "job", "field", "name"),
    [
        ({"initContainers": [{"name": "x"}, {"name": "await-nodes"}]}, MPI, "initContainers[1]", "await-nodes"),
        ({"initContainers": [{"name": "dataset-initializer"}]}, S3_DATASET, "initContainers[0]", "dataset-initializer"),
        ({"containers": [{"name": "checkpoint-save"}]}, CHECKPOINT, "containers[0]", "checkpoint-save"),
        ({"volumes": [{"name": "workspace", "hostPath": {}}]}, S3_DATASET, "volumes[0]", "workspace"),
    ],
)
def test_a_name_of_a_template_that_the_controller_needs_is_refused(
    pod_spec: dict[str, Any], job: dict[str, Any], field: str, name: str
) -> None:
    role = "launcher" if job is MPI else "node"
    runtime = runtime_spec(templates={role: {"spec": pod_spec}})
    with pytest.raises(UnplannableError) as refused:
        train_plan(runtime=runtime, **job)
    what = "volume" if "volumes" in field else "container"
    assert str(refused.value) == f"the runtime's spec.templates.{role}.spec.{field}.name: {TAKEN.format(name, what)}"
    started = replace(recipe(**job).job, status=TrainJobStatus(jobs_status=(JobsStatus("node", replicas=2),)))
    assert build_train_plan(dataclasses.replace(recipe(runtime=runtime, **job), job=started)).replicas.all


def test_a_volume_of_an_override_with_the_name_of_an_added_one_is_refused() -> None:
    overrides = [override("node"), override("node", volumes=[{"name": "workspace", "hostPath": {}}])]
    with pytest.raises(UnplannableError) as refused:
        train_plan(podSpecOverrides=overrides, **S3_DATASET)
    assert str(refused.value) == f"spec.podSpecOverrides[1].volumes[0].name: {TAKEN.format('workspace', 'volume')}"


def test_names_are_free_if_nothing_is_added_under_them_or_the_user_gives_its_fields() -> None:
    names = ("await-nodes", "dataset-initializer", "checkpoint-save", "checkpoint-restore")
    pod_spec = {
        "initContainers": [{"name": name} for name in names],
        "volumes": [{"name": "workspace", "hostPath": {}}, {"name": "claim-a", "hostPath": {}}],
    }
    runtime = runtime_spec(templates={"node": {"spec": pod_spec}})
    assert train_plan(runtime=runtime, **CHECKPOINT).replicas.all
    data = {"name": "claim-a", "persistentVolumeClaim": {"claimName": "a"}}
    same = runtime_spec(templates={"node": {"spec": {"volumes": [data]}}})
    assert train_plan(runtime=same, datasetConfig={"storageUri": "pvc://a/b"}).replicas.all


def test_what_is_given_is_never_changed_and_the_same_gives_the_same() -> None:
    runtime = runtime_spec(
        workspace=CLAIM, templates={"node": {"spec": {"volumes": [], "containers": [{"name": "node", "env": []}]}}}
    )
    before = copy.deepcopy(runtime)
    first = train_plan(runtime=runtime, **IN_STEPS, **MPI)
    jobs = [build_job(first, each) for each in first.replicas.all]
    assert runtime == before
    again = train_plan(runtime=runtime, **IN_STEPS, **MPI)
    assert [build_job(again, each) for each in again.replicas.all] == jobs


# Frameworks of others


class Plugin:
    """A framework that answers as it should, but for what a test replaces."""

    name = "mine"
    runtime = "mine-distributed"
    port = 0
    commands = ()
    has_launcher = False
    reserved = frozenset(("OF_MINE",))

    def __init__(self, **answers: Any) -> None:
        for question, answer in answers.items():
            setattr(self, question, answer)

    def problem(self, setting: Setting) -> str | None:
        return None

    def environment(self, setting: Setting, role: str, index: str) -> Mapping[str, str]:
        return {"OF_MINE": index}

    def files(self, setting: Setting) -> Mapping[str, str]:
        return {}

    def secret(self, setting: Setting) -> Callable[[], Mapping[str, bytes]] | None:
        return None

    def equip(self, setting: Setting, role: str, pod_spec: Mapping[str, Any], **names: str) -> dict[str, Any]:
        return dict(pod_spec)


def _raises(*given: Any, **names: Any) -> Any:
    raise KeyError("rank\nof all")


def _none(*given: Any, **names: Any) -> None:
    return None


def _nothing(*given: Any, **names: Any) -> dict[str, Any]:
    return {}


@pytest.mark.parametrize(
    ("question", "answer", "said"),
    [
        *(
            pytest.param(each, _raises, "KeyError: 'rank\\nof all'", id=f"{each}-raises")
            for each in ("problem", "environment", "files", "secret", "equip")
        ),
        pytest.param("equip", _none, "TypeError", id="no-pod"),
        pytest.param("equip", _nothing, "it leaves out the container node", id="no-container"),
    ],
)
def test_a_framework_that_cannot_answer_ends_the_job_with_one_sentence_that_names_it(
    question: str, answer: Callable[..., Any], said: str
) -> None:
    with pytest.raises(UnplannableError) as refused:
        train_plan(plugin=Plugin(**{question: answer}))
    words = str(refused.value)
    assert words.startswith(f"spec.framework: mine cannot plan this job: {question}: ")
    assert said in words
    assert "\n" not in words
    assert refused.value.seconds_left == 0


def test_a_framework_that_fails_later_ends_the_job_in_the_same_way() -> None:
    answers = iter(({"OF_MINE": "first"},))
    plan = train_plan(plugin=Plugin(environment=lambda setting, role, index: next(answers)))
    with pytest.raises(UnplannableError, match="mine cannot plan this job: environment: StopIteration"):
        build_job(plan, plan.replicas.all[0])


@pytest.mark.parametrize("make", [_raises, _none, lambda: {"key": "text"}], ids=["raises", "nothing", "no-bytes"])
def test_a_secret_that_cannot_be_made_ends_the_job_in_the_same_way(make: Callable[[], Any]) -> None:
    plan = train_plan(plugin=Plugin(secret=lambda setting: make))
    assert plan.mounts.secret is not None
    with pytest.raises(UnplannableError, match="mine cannot plan this job: secret: "):
        build_secret(plan, plan.mounts.secret)


def test_a_working_framework_is_called_for_each_pod() -> None:
    plan = train_plan(plugin=Plugin(), nodes=3)
    assert [env_of(plan, each)["OF_MINE"] for each in ids(plan)] == ["0", "1", "2"]


def test_planning_computes_the_environment_of_all_nodes_once() -> None:
    asked: list[str] = []

    def environment(setting: Setting, role: str, index: str) -> Mapping[str, str]:
        asked.append(index)
        return {}

    train_plan(plugin=Plugin(environment=environment), nodes=1000)
    assert asked == [INDEX_REFERENCE]


def test_frameworks_set_nothing_in_initializers_and_exporter() -> None:
    plan = train_plan(runtime=SHARED, plugin=environment.TORCH, **IN_STEPS)
    assert "RANK" in env_of(plan, "node-0")
    assert set(env_of(plan, "model-exporter-0")) == {"STORAGE_URI"}
