"""What a TrainJob of Kubeflow Trainer is compiled into, with runtimes of the shapes that upstream publishes."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from helpers.kubeflowmanifests import kubeflow_runtime, replicated_job
from helpers.kubeflowworld import container_in, env_in, job_of, kubeflow_plan, kubeflow_recipe, pod_of
from tfjob_controller.jobs.actions.children import build_claim, build_config_map, build_secret, build_service
from tfjob_controller.jobs.naming import INDEX_REFERENCE
from tfjob_controller.jobs.plan.gangterms import (
    ALWAYS,
    OFF,
    ON_REQUEST,
    GangPolicy,
)
from tfjob_controller.jobs.plan.model import Plan, UnplannableError
from tfjob_controller.jobs.plan.podgroupbackends import BACKENDS
from tfjob_controller.kinds.kubeflowtrainer.plan import build_kubeflow_plan

GPU = {"limits": {"nvidia.com/gpu": 2}}
INITIALIZER = replicated_job("dataset-initializer", ancestor="dataset-initializer")
AFTER = {"dependsOn": [{"name": "dataset-initializer", "status": "Complete"}]}
# The shape of upstream's runtimes deepspeed-distributed and mlx-distributed.
MPI = kubeflow_runtime(
    replicated_job("node", ancestor="", container={"command": ["/usr/sbin/sshd"]}),
    replicated_job("launcher", dependsOn=[{"name": "node", "status": "Ready"}]),
    policy={
        "numNodes": 1,
        "mpi": {"numProcPerNode": 1, "sshAuthMountPath": "/home/mpiuser/.ssh", "runLauncherAsNode": True},
    },
    job_set={"successPolicy": {"operator": "All", "targetReplicatedJobs": ["launcher"]}},
)


def ids(plan: Plan) -> list[str]:
    return [each.id for each in plan.replicas.all]


def refusal(*jobs: Any, **given: Any) -> str:
    with pytest.raises(UnplannableError) as caught:
        kubeflow_plan(*jobs, **given)
    return str(caught.value)


def with_policy(**policy: Any) -> Any:
    return kubeflow_runtime(policy={"numNodes": 2, **policy})


# Nodes


def test_the_nodes_are_one_indexed_job_with_upstreams_names_and_labels() -> None:
    plan = kubeflow_plan(trainer={"numNodes": 3})
    assert ids(plan) == ["node-0", "node-1", "node-2"]
    job = job_of(plan)
    assert job["metadata"]["name"] == "example-node-0"
    assert (job["spec"]["completions"], job["spec"]["completionMode"]) == (3, "Indexed")
    of_jobset = {
        "jobset.sigs.k8s.io/jobset-name": "example",
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "jobset.sigs.k8s.io/replicatedjob-replicas": "1",
        "jobset.sigs.k8s.io/job-index": "0",
    }
    for metadata in (job["metadata"], pod_of(plan)["metadata"]):
        assert metadata["labels"].items() >= of_jobset.items()
        assert metadata["annotations"].items() >= of_jobset.items()
    assert job["metadata"]["labels"]["trainer.kubeflow.org/trainjob-ancestor-step"] == "trainer"
    assert plan.identity.owner.api_version == "trainer.kubeflow.org/v1alpha1"


def test_the_service_has_the_jobs_name_and_selects_the_pods_of_all_steps() -> None:
    plan = kubeflow_plan(INITIALIZER, replicated_job(**AFTER))
    service = build_service(plan, plan.replicas.chief)
    assert service["metadata"]["name"] == "example"
    assert service["spec"]["clusterIP"] == "None"
    for replica in ids(plan):
        assert pod_of(plan, replica)["spec"]["subdomain"] == "example"
        assert pod_of(plan, replica)["metadata"]["labels"].items() >= service["spec"]["selector"].items()


def test_the_runtime_may_name_another_subdomain() -> None:
    plan = kubeflow_plan(runtime=kubeflow_runtime(job_set={"network": {"subdomain": "sub"}}))
    assert build_service(plan, plan.replicas.chief)["metadata"]["name"] == "sub"
    assert env_in(plan)["PET_MASTER_ADDR"] == "example-node-0-0.sub"


@pytest.mark.parametrize(
    ("of_job", "of_runtime", "count"), [(3, 2, 3), (None, 2, 2), (None, None, 1)], ids=["job", "runtime", "neither"]
)
def test_the_number_of_nodes_is_the_jobs_or_else_the_runtimes(
    of_job: int | None, of_runtime: int | None, count: int
) -> None:
    policy = {"torch": {}, **({"numNodes": of_runtime} if of_runtime else {})}
    given = {"trainer": {"numNodes": of_job}} if of_job else {}
    assert len(kubeflow_plan(runtime=kubeflow_runtime(policy=policy), **given).replicas.all) == count


def test_a_started_job_keeps_its_number_of_nodes_whatever_the_runtime_says() -> None:
    recipe = kubeflow_recipe(runtime=with_policy(torch={}))
    started = type(recipe)(recipe.job, recipe.runtime, recipe.config, started_nodes=5)
    assert len(build_kubeflow_plan(started).replicas.all) == 5


def test_a_name_that_makes_a_host_name_too_long_is_refused() -> None:
    kubeflow_plan(name="a" * 54)
    assert "choose a name of at most 54" in refusal(name="a" * 55)
    assert "choose a name of at most 53" in refusal(name="a" * 54, trainer={"numNodes": 11})


# The training container


def test_the_job_overrides_image_command_arguments_and_environment_and_resources_by_name() -> None:
    of_runtime = {
        "image": "runtimes",
        "command": ["c"],
        "args": ["a"],
        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}},
    }
    given = {
        "image": "jobs",
        "command": ["x", "y"],
        "env": [{"name": "B", "value": "2"}],
        "resourcesPerNode": {"requests": {"cpu": "4"}},
    }
    runtime = kubeflow_runtime(replicated_job(container=of_runtime))
    before = copy.deepcopy(runtime)
    container = container_in(kubeflow_plan(runtime=runtime, trainer=given))
    assert runtime == before
    assert (container["image"], container["command"], container["args"]) == ("jobs", ["x", "y"], ["a"])
    env = {each["name"]: each.get("value") for each in container["env"]}
    assert (env["A"], env["B"]) == ("1", "2")
    assert container["resources"] == {"requests": {"cpu": "4", "memory": "1Gi"}, "limits": {"cpu": "2"}}


def test_claims_of_devices_are_merged_by_name() -> None:
    of_runtime = {"resources": {"claims": [{"name": "a"}, {"name": "b", "request": "x"}]}}
    given = {"resourcesPerNode": {"claims": [{"name": "b", "request": "y"}]}}
    container = container_in(kubeflow_plan(replicated_job(container=of_runtime), trainer=given))
    assert container["resources"]["claims"] == [{"name": "a"}, {"name": "b", "request": "y"}]


def test_torchrun_gets_exactly_upstreams_variables() -> None:
    env = env_in(kubeflow_plan(trainer={"numNodes": 2, "env": [{"name": "RANK", "value": "mine"}]}))
    # Upstream reserves no others, so users may set them.
    assert env.pop("RANK") == "mine"
    assert env == {
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "1",
        "PET_NODE_RANK": INDEX_REFERENCE,
        "PET_MASTER_ADDR": "example-node-0-0.example",
        "PET_MASTER_PORT": "29500",
    }


@pytest.mark.parametrize(
    ("policy", "ports"),
    [({"torch": {}}, [29500]), ({"xgboost": {}}, [29500]), ({}, [])],
)
def test_the_training_container_has_the_port_at_which_nodes_meet(policy: Any, ports: list[int]) -> None:
    runtime = kubeflow_runtime(policy={"numNodes": 1, **policy})
    container = container_in(kubeflow_plan(runtime=runtime))
    assert [each["containerPort"] for each in container.get("ports", ())] == ports


def test_a_port_that_the_runtime_declares_stays_as_it_is() -> None:
    declared = [{"name": "metrics", "containerPort": 80}, {"name": "meet", "containerPort": 29500}]
    container = container_in(kubeflow_plan(replicated_job(container={"ports": declared})))
    assert container["ports"] == declared


@pytest.mark.parametrize(
    ("resources", "processes", "expected"),
    [
        (None, None, "1"),
        ({"requests": {"cpu": "700m"}}, None, "1"),
        ({"limits": {"cpu": "3"}}, None, "3"),
        ({"requests": {"cpu": "2500m"}, "limits": {"cpu": "8"}}, None, "3"),
        (GPU, None, "auto"),
        (GPU, 4, "4"),
        ({"limits": {"cpu": "8", "google.com/tpu": 4}}, None, "4"),
        ({"limits": {"nvidia.com/mig-1g.5gb": 1, "nvidia.com/mig-2g.10gb": 2}}, None, "3"),
    ],
)
def test_the_number_of_processes_follows_from_the_resources(
    resources: Any, processes: int | None, expected: str
) -> None:
    trainer = {
        **({"resourcesPerNode": resources} if resources else {}),
        **({"numProcPerNode": processes} if processes else {}),
    }
    assert env_in(kubeflow_plan(trainer=trainer))["PET_NPROC_PER_NODE"] == expected


def test_the_resources_of_the_job_replace_those_of_the_runtime_when_processes_are_counted() -> None:
    runtime = kubeflow_runtime(replicated_job(container={"resources": {"limits": {"cpu": "8"}}}))
    assert env_in(kubeflow_plan(runtime=runtime))["PET_NPROC_PER_NODE"] == "8"
    trainer = {"resourcesPerNode": {"requests": {"memory": "1Gi"}}}
    assert env_in(kubeflow_plan(runtime=runtime, trainer=trainer))["PET_NPROC_PER_NODE"] == "1"


def test_jax_gets_exactly_upstreams_variables() -> None:
    assert env_in(kubeflow_plan(runtime=with_policy(jax={}))) == {
        "JAX_NUM_PROCESSES": "2",
        "JAX_PROCESS_ID": INDEX_REFERENCE,
        "JAX_COORDINATOR_ADDRESS": "example-node-0-0.example:29500",
    }


def test_xgboost_has_a_worker_for_each_gpu() -> None:
    plan = kubeflow_plan(runtime=with_policy(xgboost={}), trainer={"resourcesPerNode": GPU})
    assert env_in(plan) == {
        "DMLC_TRACKER_URI": "example-node-0-0.example",
        "DMLC_TRACKER_PORT": "29500",
        "DMLC_TASK_ID": INDEX_REFERENCE,
        "DMLC_NUM_WORKER": "4",
    }


def test_a_runtime_without_a_framework_sets_nothing_but_has_a_service() -> None:
    plan = kubeflow_plan(runtime=with_policy())
    assert env_in(plan) == {}
    assert plan.replicas.chief.role.port


@pytest.mark.parametrize(
    ("runtime", "name"),
    [
        pytest.param(with_policy(torch={}), "PET_NNODES", id="torch"),
        pytest.param(with_policy(xgboost={}), "DMLC_TASK_ID", id="xgboost"),
        pytest.param(MPI, "OMPI_MCA_plm_rsh_args", id="mpi"),
    ],
)
def test_variables_that_upstream_reserves_are_refused(runtime: Any, name: str) -> None:
    words = refusal(runtime=runtime, trainer={"env": [{"name": name, "value": "1"}]})
    assert words == f"spec.trainer.env[0].name: must not have reserved envs: {name} is set by the controller"


def test_other_containers_get_torchs_variables_if_the_runtime_says_so() -> None:
    job = replicated_job()
    job["template"]["spec"]["template"]["spec"]["initContainers"] = [{"name": "check", "image": "i"}]
    policy = {"torch": {"envInjection": {"targets": [{"jobName": "node", "containerNames": ["check"]}]}}}
    (check,) = pod_of(kubeflow_plan(runtime=kubeflow_runtime(job, policy=policy)))["spec"]["initContainers"]
    env = {each["name"]: each for each in check["env"]}
    assert env["PET_MASTER_ADDR"]["value"] == "example-node-0-0.example"
    # No reference: what it would refer to is set by the Job controller, after these.
    assert "job-completion-index" in env["PET_NODE_RANK"]["valueFrom"]["fieldRef"]["fieldPath"]
    policy["torch"]["envInjection"]["targets"][0]["containerNames"] = ["none"]
    assert 'container "none" not found' in refusal(runtime=kubeflow_runtime(job, policy=policy))


# Steps


def test_what_a_job_depends_on_runs_before_it() -> None:
    model = replicated_job("model-initializer", ancestor="model-initializer")
    depends = [{"name": name, "status": "Complete"} for name in ("dataset-initializer", "model-initializer")]
    export = replicated_job("export", ancestor="", dependsOn=[{"name": "node", "status": "Complete"}])
    plan = kubeflow_plan(INITIALIZER, model, replicated_job(dependsOn=depends), export)
    assert [ids(step) for step in plan.steps] == [
        ["dataset-initializer-0", "model-initializer-0"],
        ["node-0"],
        ["export-0"],
    ]
    assert [each.id for each in plan.replicas.needed] == ["export-0"]


def test_jobs_that_depend_on_nothing_run_beside_the_nodes() -> None:
    plan = kubeflow_plan(INITIALIZER, replicated_job())
    assert plan.steps == ()
    assert sorted(each.id for each in plan.replicas.needed) == ["dataset-initializer-0", "node-0"]


def test_the_success_policy_names_the_jobs_that_complete_the_job() -> None:
    runtime = kubeflow_runtime(
        replicated_job(),
        replicated_job("watcher", ancestor=""),
        job_set={"successPolicy": {"operator": "All", "targetReplicatedJobs": ["node"]}},
    )
    assert [each.id for each in kubeflow_plan(runtime=runtime).replicas.needed] == ["node-0"]
    after = replicated_job("export", ancestor="", dependsOn=[{"name": "node", "status": "Complete"}])
    runtime["spec"]["template"]["spec"]["replicatedJobs"].append(after)
    assert [each.id for each in kubeflow_plan(runtime=runtime).replicas.needed] == ["node-0"]
    runtime["spec"]["template"]["spec"]["successPolicy"]["targetReplicatedJobs"] = ["none"]
    assert "there is no replicated job none" in refusal(runtime=runtime)


def test_an_initializer_gets_what_to_fetch_and_runs_in_an_indexed_job_of_its_own() -> None:
    dataset = {
        "storageUri": "hf://data/set",
        "env": [{"name": "SPLIT", "value": "train"}],
        "secretRef": {"name": "token"},
    }
    plan = kubeflow_plan(INITIALIZER, replicated_job(**AFTER), initializer={"dataset": dataset})
    job = job_of(plan, "dataset-initializer-0")
    assert (job["metadata"]["name"], job["spec"]["completionMode"]) == ("example-dataset-initializer-0", "Indexed")
    container = container_in(plan, "dataset-initializer-0", "dataset-initializer")
    assert container["env"] == [{"name": "STORAGE_URI", "value": "hf://data/set"}, {"name": "SPLIT", "value": "train"}]
    assert container["envFrom"] == [{"secretRef": {"name": "token"}}]
    # The kubelet starts it again, whatever its exit code, and the controller counts the attempts.
    assert "podFailurePolicy" not in job["spec"]
    # It never waits without limit for a Secret that does not exist.
    assert "dataset-initializer" in plan.mounts.data_containers


def test_a_dataset_needs_a_runtime_that_has_an_initializer() -> None:
    assert refusal(initializer={"dataset": {"storageUri": "hf://a/b"}}).startswith("spec.initializer.dataset: ")


# MPI


def test_with_mpi_the_launcher_is_a_node_and_the_hostfile_has_all() -> None:
    plan = kubeflow_plan(runtime=MPI, trainer={"numNodes": 3, "command": ["mpirun", "x"]})
    assert ids(plan) == ["launcher-0", "node-0", "node-1"]
    assert [each.id for each in plan.replicas.needed] == ["launcher-0"]
    assert [each.serves for each in plan.replicas.all] == [False, True, True]
    files = build_config_map(plan)["data"]
    assert files["hostfile"].splitlines() == [
        "example-node-0-0.example slots=1",
        "example-node-0-1.example slots=1",
        "example-launcher-0-0.example slots=1",
    ]
    # No sshd runs in the launcher, so it must not wait for itself.
    assert files["await-hosts"].splitlines() == ["example-node-0-0.example", "example-node-0-1.example"]
    assert container_in(plan, "launcher-0")["command"] == ["mpirun", "x"]
    assert container_in(plan)["command"] == ["/usr/sbin/sshd"]


def test_mpi_gets_exactly_upstreams_variables_and_volumes() -> None:
    plan = kubeflow_plan(runtime=MPI, trainer={"numNodes": 2, "resourcesPerNode": GPU})
    assert env_in(plan, "launcher-0") == {
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_set_default_slots": "2",
        "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
    }
    assert env_in(plan) == {}
    # Upstream applies the resources to both: the launcher is a node.
    assert container_in(plan)["resources"] == container_in(plan, "launcher-0")["resources"] == GPU
    (volume,) = pod_of(plan)["spec"]["volumes"]
    assert (volume["name"], volume["secret"]["secretName"]) == ("mpi-ssh-auth", "example-mpi-ssh-auth")
    assert {each["path"]: oct(each["mode"]) for each in volume["secret"]["items"]} == {
        "id_rsa": "0o640", "id_rsa.pub": "0o644", "authorized_keys": "0o644",
    }  # fmt: skip
    mounts = {each["name"]: each["mountPath"] for each in container_in(plan, "launcher-0")["volumeMounts"]}
    assert mounts == {"mpi-ssh-auth": "/home/mpiuser/.ssh", "mpi-hostfile": "/etc/mpi"}
    assert plan.mounts.secret is not None
    assert set(build_secret(plan, plan.mounts.secret)["data"]) == {"ssh-privatekey", "ssh-publickey"}


def test_the_launcher_waits_for_the_nodes_in_its_own_image() -> None:
    runtime = copy.deepcopy(MPI)
    launcher = runtime["spec"]["template"]["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"]
    launcher["containers"][0]["volumeMounts"] = [{"name": "ssh-config", "mountPath": "/etc/ssh"}]
    plan = kubeflow_plan(runtime=runtime, trainer={"image": "jobs", "env": [{"name": "HOME", "value": "/h"}]})
    (waits,) = pod_of(plan, "launcher-0")["spec"]["initContainers"]
    assert (waits["image"], waits["command"]) == ("jobs", ["sh", "/etc/mpi/await-nodes.sh"])
    assert {each["name"] for each in waits["volumeMounts"]} == {"mpi-ssh-auth", "mpi-hostfile", "ssh-config"}
    assert waits["env"] == [{"name": "HOME", "value": "/h"}]


def test_a_container_with_the_name_of_the_one_that_waits_for_the_nodes_is_refused() -> None:
    runtime = copy.deepcopy(MPI)
    launcher = runtime["spec"]["template"]["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"]
    launcher["initContainers"] = [{"name": "await-nodes", "image": "busybox"}]
    at = "replicatedJobs[1].template.spec.template.spec.initContainers[0].name"
    with pytest.raises(UnplannableError) as refused:
        kubeflow_plan(runtime=runtime)
    assert str(refused.value) == (
        f"the runtime's spec.template.spec.{at}: await-nodes is the name of a container that the controller adds: "
        "rename it"
    )


def test_launcher_and_nodes_are_one_step_whichever_of_them_depends_on_the_initializer() -> None:
    nodes, launcher = replicated_job("node", ancestor="", **AFTER), replicated_job("launcher")
    runtime = kubeflow_runtime(INITIALIZER, nodes, launcher, policy={"numNodes": 1, "mpi": {}})
    plan = kubeflow_plan(runtime=runtime, gangs=GangPolicy(ALWAYS, "s"))
    first, second = plan.steps
    assert (ids(first), sorted(ids(second))) == (["dataset-initializer-0"], ["launcher-0", "node-0"])
    # What the nodes mount and their gang do not exist before they do.
    assert (first.mounts.config_map, first.mounts.secret, first.scheduling.gang) == ("", None, None)
    assert second.mounts.secret is not None
    assert second.scheduling.gang is not None


# Changes of the runtime


def patches(**pod_spec: Any) -> list[Any]:
    template = {"spec": {"template": {"metadata": {"labels": {"of": "pods"}}, "spec": pod_spec}}}
    job = {"name": "node", "template": {"metadata": {"labels": {"of": "job"}}, **template}}
    metadata = {"labels": {"team": "a", "kueue.x-k8s.io/queue-name": "q"}, "annotations": {"note": "b"}}
    spec = {"template": {"metadata": metadata, "spec": {"replicatedJobs": [job]}}}
    return [{"manager": "me.io/me", "trainingRuntimeSpec": spec}]


def test_patches_change_pods_jobs_and_their_metadata() -> None:
    plan = kubeflow_plan(
        runtimePatches=patches(
            nodeSelector={"pool": "gpu"},
            serviceAccountName="sa",
            tolerations=[{"key": "k", "operator": "Exists"}],
            containers=[{"name": "node", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
            volumes=[{"name": "v", "emptyDir": {}}],
        )
    )
    spec = pod_of(plan)["spec"]
    assert (spec["nodeSelector"], spec["serviceAccountName"]) == ({"pool": "gpu"}, "sa")
    assert spec["tolerations"] == [{"key": "k", "operator": "Exists"}]
    assert spec["volumes"] == [{"name": "v", "emptyDir": {}}]
    assert container_in(plan)["volumeMounts"] == [{"name": "v", "mountPath": "/v"}]
    assert pod_of(plan)["metadata"]["labels"]["of"] == "pods"
    labels = job_of(plan)["metadata"]["labels"]
    assert (labels["of"], labels["team"], job_of(plan)["metadata"]["annotations"]["note"]) == ("job", "a", "b")
    # Kueue would suspend each child Job that names a queue.
    assert "kueue.x-k8s.io/queue-name" not in labels


def test_patches_of_containers_add_variables_and_merge_security_contexts() -> None:
    job = replicated_job(container={"securityContext": {"runAsUser": 1}})
    job["template"]["spec"]["template"]["spec"]["initContainers"] = [{"name": "setup", "image": "i"}]
    setup = {"name": "setup", "env": [{"name": "A", "value": "1"}]}
    node = {"name": "node", "securityContext": {"runAsGroup": 2}}
    plan = kubeflow_plan(job, runtimePatches=patches(containers=[node], initContainers=[setup]))
    assert container_in(plan)["securityContext"] == {"runAsUser": 1, "runAsGroup": 2}
    (init,) = pod_of(plan)["spec"]["initContainers"]
    assert init.items() >= {"image": "i", **setup}.items()


def test_a_later_variable_may_refer_to_one_that_the_job_overrides() -> None:
    env = [{"name": "ROOT", "value": "/default"}, {"name": "RESULT", "value": "$(ROOT)/out"}]
    mine = [{"name": "ROOT", "value": "/mine"}]
    job = replicated_job(container={"env": env})
    job["template"]["spec"]["template"]["spec"]["initContainers"] = [{"name": "setup", "env": env}]
    plan = kubeflow_plan(
        job, trainer={"env": mine}, runtimePatches=patches(initContainers=[{"name": "setup", "env": mine}])
    )
    (setup,) = pod_of(plan)["spec"]["initContainers"]
    assert setup["env"] == [*mine, env[1]]
    assert list(env_in(plan).items())[:2] == [("ROOT", "/mine"), ("RESULT", "$(ROOT)/out")]


@pytest.mark.parametrize(
    "spec",
    [
        {"podTemplateOverrides": [{"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"pool": "gpu"}}}]},
        {"podSpecOverrides": [{"targetJobs": [{"name": "node"}], "nodeSelector": {"pool": "gpu"}}]},
    ],
    ids=["2.1", "2.0"],
)
def test_the_overrides_of_earlier_releases_work_as_well(spec: Any) -> None:
    assert pod_of(kubeflow_plan(**spec))["spec"]["nodeSelector"] == {"pool": "gpu"}


# Restarts and time


@pytest.mark.parametrize(
    ("job", "job_set", "restarts"),
    [
        ({}, {}, 6),
        ({"backoffLimit": 0}, {}, 0),
        ({"backoffLimit": 0}, {"failurePolicy": {"maxRestarts": 3}}, 3),
        ({"backoffLimit": 1}, {"failurePolicy": {"maxRestarts": 3}}, 7),
    ],
)
def test_as_many_failures_are_tolerated_as_upstream_tolerates(job: Any, job_set: Any, restarts: int) -> None:
    plan = kubeflow_plan(runtime=kubeflow_runtime(replicated_job(job=job), job_set=job_set))
    assert plan.policy.backoff_limit == restarts


def test_suspension_and_deadline_are_the_jobs() -> None:
    policy = kubeflow_plan(suspend=True, activeDeadlineSeconds=60).policy
    assert (policy.suspend, policy.active_deadline_seconds) == (True, 60)
    assert kubeflow_plan().policy.active_deadline_seconds is None


# Gangs


def test_the_flag_decides_about_gangs_unless_the_runtime_has_a_policy() -> None:
    assert kubeflow_plan(gangs=GangPolicy(ON_REQUEST, "s")).scheduling.gang is None
    gang = kubeflow_plan(INITIALIZER, replicated_job(**AFTER), gangs=GangPolicy(ALWAYS, "s")).scheduling.gang
    assert gang is not None
    assert [(each.name, each.count, each.indexed) for each in gang.members] == [("node", 1, True)]


def test_the_policy_of_a_runtime_names_its_backend_and_volcanos_queue() -> None:
    runtime = kubeflow_runtime(podGroupPolicy={"volcano": {}})
    runtime["spec"]["template"]["metadata"] = {"annotations": {"scheduling.volcano.sh/queue-name": "high"}}
    gangs = GangPolicy(ON_REQUEST, "s", backend=BACKENDS["volcano"])
    group = kubeflow_plan(runtime=runtime, gangs=gangs).scheduling.pod_group
    assert group is not None
    assert group.queue == "high"
    words = refusal(runtime=runtime, gangs=GangPolicy(ON_REQUEST, "s"))
    assert words.startswith("spec.podGroupPolicy.volcano: ")
    assert "--gang-backend=volcano" in words
    assert kubeflow_plan(runtime=runtime, gangs=GangPolicy(OFF)).scheduling.is_gang_refused


def test_no_job_may_run_beside_the_nodes_of_a_gang() -> None:
    words = refusal(INITIALIZER, replicated_job(), gangs=GangPolicy(ALWAYS, "s"))
    assert "dataset-initializer must not run beside the nodes" in words


# torchtune


TUNE = kubeflow_runtime(
    INITIALIZER,
    replicated_job(
        container={
            "command": ["tune", "run", "full_finetune_distributed", "output_dir=/out", "other=x"],
            "resources": GPU,
            "volumeMounts": [{"name": "initializer", "mountPath": "/workspace"}],
        },
        **AFTER,
    ),
    name="torchtune-llama3.2-1b",
    job_set={
        "volumeClaimPolicies": [
            {
                "templates": [
                    {
                        "metadata": {"name": "initializer", "labels": {"a": "b"}},
                        "spec": {"resources": {"requests": {"storage": "20Gi"}}},
                    }
                ]
            }
        ]
    },
)


def test_torchtune_gets_recipe_config_and_rendezvous_in_its_command() -> None:
    plan = kubeflow_plan(runtime=TUNE, trainer={"command": ["tune", "run"], "args": ["epochs=3"]})
    container = container_in(plan)
    assert container["command"] == [
        "tune",
        "run",
        "--rdzv_endpoint=example-node-0-0.example:29500",
        "full_finetune_distributed",
        "--config",
        "llama3_2/1B_full",
        "output_dir=/out",
    ]
    assert container["args"] == ["epochs=3"]
    assert env_in(plan).keys() == {"PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK"}
    assert "must not set output_dir" in refusal(
        runtime=TUNE, trainer={"command": ["tune", "run"], "args": ["output_dir=x"]}
    )


def test_claims_are_created_for_the_job_and_mounted_where_a_container_names_them() -> None:
    plan = kubeflow_plan(runtime=TUNE)
    (claim,) = plan.mounts.claims
    body = build_claim(plan, claim)
    assert body["metadata"]["name"] == "initializer-example"
    assert body["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] == "example"
    assert body["metadata"]["labels"]["a"] == "b"
    assert body["metadata"]["ownerReferences"][0]["kind"] == "TrainJob"
    assert body["spec"] == {"resources": {"requests": {"storage": "20Gi"}}}
    volume = {"name": "initializer", "persistentVolumeClaim": {"claimName": "initializer-example"}}
    assert pod_of(plan)["spec"]["volumes"] == [volume]
    assert "volumes" not in pod_of(plan, "dataset-initializer-0")["spec"]
