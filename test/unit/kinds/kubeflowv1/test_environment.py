"""The variables and init containers of each kind. Numbers in ids are cases of the contract with training-operator."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from helpers.v1manifests import v1_job, v1_replicas
from tfjob_controller.api.kubeflowv1.defaults import with_defaults
from tfjob_controller.api.kubeflowv1.types import V1_KINDS, V1Job
from tfjob_controller.api.masterwait import default_wait
from tfjob_controller.kinds.kubeflowv1.environment import init_containers_of, pod_name, variables_of

POD_IP = {"fieldRef": {"fieldPath": "status.podIP"}}
RENDEZVOUS = {
    "minReplicas": 1,
    "maxReplicas": 3,
    "rdzvBackend": "etcd",
    "rdzvPort": 1234,
    "rdzvHost": "localhost",
    "rdzvId": "rdzv-id",
    "rdzvConf": [{"key": "conf-0", "value": "a"}, {"key": "conf-1", "value": "b"}],
    "maxRestarts": 3,
    "nProcPerNode": 4,
    "standalone": True,
}


def job_of(kind: str, replicas: dict[str, int], *, port: int | str | None = None, **spec: Any) -> V1Job:
    """A job `j` in namespace `team`. `port` is that of its training containers; a sidecar has one of the same name."""
    row = V1_KINDS[kind]
    named = {"name": row.port_name}
    ports = [{"name": "metrics", "containerPort": 8080}, *([] if port is None else [{**named, "containerPort": port}])]
    beside = {"name": "sidecar", "ports": [{**named, "containerPort": 1}]}
    template = {"spec": {"containers": [beside, {"name": row.container, "ports": ports}]}}
    specs = {name: v1_replicas(kind, count, template=template) for name, count in replicas.items()}
    return with_defaults(v1_job(kind, dict(specs), "j", **spec))


def pytorch_job(replicas: dict[str, int], **spec: Any) -> V1Job:
    return job_of("PyTorchJob", replicas, port=1234, **spec)


def values_of(job: V1Job, replica: str, cluster_domain: str = "") -> dict[str, Any]:
    """The variables of a replica such as `Worker-0`, as JSON has them."""
    replica_type, _, index = replica.rpartition("-")
    variables = json.loads(json.dumps(variables_of(job, cluster_domain)(replica_type, int(index)).variables))
    names = [variable["name"] for variable in variables]
    assert len(names) == len(set(names))
    return {variable["name"]: variable.get("value", variable.get("valueFrom")) for variable in variables}


@pytest.mark.parametrize(
    ("replicas", "spec", "replica", "domain", "expected"),
    [
        pytest.param({"Worker": 1}, {}, "Worker-0", "", None, id="1, one worker"),
        pytest.param({"Worker": 1}, {}, "Worker-0", "tf.training.com", None, id="one worker and a domain"),
        pytest.param({"Worker": 0, "PS": 1}, {}, "PS-0", "", None, id="one parameter server"),
        pytest.param({"Worker": 1}, {"enableDynamicWorker": True}, "Worker-0", "", None, id="one dynamic worker"),
        pytest.param({"Worker": 1, "Other": 2}, {}, "Worker-0", "", None, id="one worker beside an unknown type"),
        pytest.param(
            {"Worker": 1, "PS": 1},
            {},
            "Worker-0",
            "tf.training.org",
            '{"cluster":{"ps":["j-ps-0.team.svc.tf.training.org:2222"],"worker":["j-worker-0.team.svc.tf.training.org:2222"]}'
            ',"task":{"type":"worker","index":0},"environment":"cloud"}',
            id="43, a domain",
        ),
        pytest.param(
            {"Worker": 1, "PS": 1, "Evaluator": 1},
            {},
            "Worker-0",
            "tf.training.io",
            '{"cluster":{"evaluator":["j-evaluator-0.team.svc.tf.training.io:2222"],'
            '"ps":["j-ps-0.team.svc.tf.training.io:2222"],"worker":["j-worker-0.team.svc.tf.training.io:2222"]}'
            ',"task":{"type":"worker","index":0},"environment":"cloud"}',
            id="44, an evaluator and a domain",
        ),
        pytest.param(
            {"Worker": 1, "PS": 1, "Evaluator": 1},
            {},
            "Evaluator-0",
            "",
            '{"cluster":{"evaluator":["j-evaluator-0.team.svc:2222"],"ps":["j-ps-0.team.svc:2222"],'
            '"worker":["j-worker-0.team.svc:2222"]},"task":{"type":"evaluator","index":0},"environment":"cloud"}',
            id="45, an evaluator without a domain",
        ),
        pytest.param(
            {"Worker": 2, "PS": 0, "Chief": 1, "Other": 1},
            {"port": 3333},
            "Worker-1",
            "",
            '{"cluster":{"chief":["j-chief-0.team.svc:3333"],"other":["j-other-0.team.svc:3333"],"ps":[],'
            '"worker":["j-worker-0.team.svc:3333","j-worker-1.team.svc:3333"]}'
            ',"task":{"type":"worker","index":1},"environment":"cloud"}',
            id="the port of the container, an empty and an unknown type",
        ),
        pytest.param(
            {"Other": 1},
            {},
            "Other-0",
            "",
            '{"cluster":{"other":["j-other-0.team.svc:2222"]},"task":{"type":"other","index":0},"environment":"cloud"}',
            id="only an unknown type",
        ),
        pytest.param(
            {"Worker": 2, "PS": 2},
            {"enableDynamicWorker": True},
            "Worker-1",
            "",
            '{"cluster":{"worker":{"1":"j-worker-1.team.svc:2222"},"ps":["j-ps-0.team.svc:2222","j-ps-1.team.svc:2222"]},'
            '"task":{"type":"worker","index":1}}',
            id="a dynamic worker",
        ),
        pytest.param(
            {"Worker": 2, "PS": 2},
            {"enableDynamicWorker": True},
            "PS-1",
            "org",
            '{"cluster":{"worker":{},"ps":["j-ps-1.team.svc.org:2222"]},"task":{"type":"ps","index":1}}',
            id="a parameter server of dynamic workers",
        ),
        pytest.param(
            {"Worker": 2, "Chief": 1},
            {"enableDynamicWorker": True},
            "Worker-0",
            "",
            '{"cluster":{"worker":{"0":"j-worker-0.team.svc:2222"},"ps":null},"task":{"type":"worker","index":0}}',
            id="a dynamic worker without parameter servers",
        ),
        pytest.param(
            {"Worker": 2, "Chief": 1},
            {"enableDynamicWorker": True},
            "Chief-0",
            "",
            '{"cluster":{"worker":{},"ps":[]},"task":{"type":"chief","index":0}}',
            id="the chief of dynamic workers",
        ),
    ],
)
def test_replicas_of_a_tfjob_get_the_text_of_training_operator(
    replicas: dict[str, int], spec: dict[str, Any], replica: str, domain: str, expected: str | None
) -> None:
    values = values_of(job_of("TFJob", replicas, **spec), replica, domain)
    assert values == ({} if expected is None else {"TF_CONFIG": expected})


STATIC = {
    "PYTHONUNBUFFERED": "1",
    "MASTER_PORT": "1234",
    "PET_MASTER_PORT": "1234",
    "MASTER_ADDR": "j-master-0",
    "PET_MASTER_ADDR": "j-master-0",
    "WORLD_SIZE": "3",
    "PET_NPROC_PER_NODE": "auto",
    "PET_NNODES": "3",
}
ELASTIC = {
    "PYTHONUNBUFFERED": "1",
    "PET_NPROC_PER_NODE": "auto",
    "PET_RDZV_ENDPOINT": "j-worker-0:1234",
    "PET_RDZV_BACKEND": "c10d",
    "PET_NNODES": "1:3",
}


def ranks(rank: int) -> dict[str, str]:
    return {"RANK": str(rank), "PET_NODE_RANK": str(rank)}


@pytest.mark.parametrize(
    ("job", "replica", "expected"),
    [
        pytest.param(pytorch_job({"Master": 1, "Worker": 2}), "Master-0", STATIC | ranks(0), id="67, the master"),
        pytest.param(pytorch_job({"Master": 1, "Worker": 2}), "Worker-1", STATIC | ranks(2), id="67, a worker"),
        pytest.param(
            pytorch_job({"Master": 1, "Worker": 2}, nprocPerNode="4"),
            "Worker-0",
            STATIC | ranks(1) | {"WORLD_SIZE": "12", "PET_NPROC_PER_NODE": "4"},
            id="67, processes by number",
        ),
        pytest.param(
            pytorch_job({"Master": 1, "Worker": 2}, nprocPerNode="1_0"),
            "Worker-0",
            STATIC | ranks(1) | {"PET_NPROC_PER_NODE": "1_0"},
            id="67, no number in Go",
        ),
        pytest.param(
            pytorch_job({"Master": 1, "Worker": 2}, nprocPerNode="9" * 5000),
            "Worker-0",
            STATIC | ranks(1) | {"PET_NPROC_PER_NODE": "9" * 5000},
            id="67, more digits than a number has",
        ),
        pytest.param(
            pytorch_job({"Worker": 2}),
            "Worker-1",
            {"PYTHONUNBUFFERED": "1", "PET_NPROC_PER_NODE": "auto", "PET_NNODES": "2"},
            id="workers without a master",
        ),
        pytest.param(
            pytorch_job({"Worker": 1}, elasticPolicy={"minReplicas": 1, "maxReplicas": 3}),
            "Worker-0",
            ELASTIC,
            id="69, elastic",
        ),
        pytest.param(
            pytorch_job({"Master": 1, "Worker": 2}, elasticPolicy={"minReplicas": 1, "maxReplicas": 3}),
            "Worker-0",
            STATIC | ELASTIC | ranks(1),
            id="elastic with a master",
        ),
        pytest.param(
            pytorch_job({"Worker": 1}, elasticPolicy=RENDEZVOUS),
            "Worker-0",
            {
                "PYTHONUNBUFFERED": "1",
                "PET_RDZV_ENDPOINT": "localhost:1234",
                "PET_RDZV_BACKEND": "etcd",
                "PET_NNODES": "1:3",
                "PET_MAX_RESTARTS": "3",
                "PET_NPROC_PER_NODE": "4",
                "PET_RDZV_ID": "rdzv-id",
                "PET_RDZV_CONF": "conf-0=a,conf-1=b",
                "PET_STANDALONE": "",
            },
            id="71, all fields of the rendezvous",
        ),
        pytest.param(
            pytorch_job(
                {"Worker": 1},
                elasticPolicy={
                    "minReplicas": 1,
                    "maxReplicas": 3,
                    "rdzvConf": [],
                    "standalone": False,
                    "maxRestarts": 0,
                },
            ),
            "Worker-0",
            ELASTIC | {"PET_MAX_RESTARTS": "0"},
            id="fields of the rendezvous that are empty",
        ),
    ],
)
def test_replicas_of_a_pytorchjob_get_the_options_of_torchrun(
    job: V1Job, replica: str, expected: dict[str, str]
) -> None:
    assert values_of(job, replica) == expected


LIGHTGBM = {
    "PYTHONUNBUFFERED": "1",
    "MASTER_PORT": "9999",
    "MASTER_ADDR": "j-master-0",
    "WORLD_SIZE": "3",
    "WORKER_PORT": "9999",
    "WORKER_ADDRS": "j-worker-0,j-worker-1",
}
COORDINATED = {
    "PYTHONUNBUFFERED": "1",
    "COORDINATOR_ADDRESS": "j-worker-0",
    "NUM_PROCESSES": "2",
}
PADDLE = {"PYTHONUNBUFFERED": "1", "PADDLE_JOB_ID": "j", "PADDLE_NNODES": "3"}
OWN_ADDRESS = {"POD_IP_DUMMY": POD_IP, "PADDLE_MASTER": "$(POD_IP_DUMMY):36543"}


@pytest.mark.parametrize(
    ("job", "replica", "expected"),
    [
        pytest.param(
            job_of("XGBoostJob", {"Master": 1, "Worker": 2}), "Master-0", LIGHTGBM | {"RANK": "0"}, id="XGBoost master"
        ),
        pytest.param(
            job_of("XGBoostJob", {"Master": 1, "Worker": 2}), "Worker-1", LIGHTGBM | {"RANK": "2"}, id="XGBoost worker"
        ),
        pytest.param(
            job_of("XGBoostJob", {"Master": 1}),
            "Master-0",
            {
                "PYTHONUNBUFFERED": "1",
                "MASTER_PORT": "9999",
                "MASTER_ADDR": "j-master-0",
                "WORLD_SIZE": "1",
                "RANK": "0",
            },
            id="XGBoost master alone",
        ),
        pytest.param(
            job_of("JAXJob", {"Worker": 2}, port=1234),
            "Worker-1",
            COORDINATED | {"COORDINATOR_PORT": "1234", "PROCESS_ID": "1"},
            id="141, JAX with a port",
        ),
        pytest.param(
            job_of("JAXJob", {"Worker": 2}),
            "Worker-0",
            COORDINATED | {"COORDINATOR_PORT": "6666", "PROCESS_ID": "0"},
            id="142, JAX without a port",
        ),
        pytest.param(
            job_of("PaddleJob", {"Master": 1, "Worker": 2}),
            "Master-0",
            PADDLE | OWN_ADDRESS | {"PADDLE_SERVER_NUM": "1"},
            id="140, Paddle master",
        ),
        pytest.param(
            job_of("PaddleJob", {"Master": 2, "Worker": 1}, port=1234),
            "Master-1",
            PADDLE | {"PADDLE_MASTER": "j-master-0:1234", "PADDLE_SERVER_NUM": "1"},
            id="140, Paddle master 1",
        ),
        pytest.param(
            job_of("PaddleJob", {"Master": 1, "Worker": 2}),
            "Worker-0",
            PADDLE | {"PADDLE_MASTER": "j-master-0:36543", "PADDLE_TRAINER_NUM": "1"},
            id="140, Paddle worker",
        ),
        pytest.param(job_of("PaddleJob", {"Worker": 3}), "Worker-0", PADDLE | OWN_ADDRESS, id="Paddle worker 0 alone"),
        pytest.param(
            job_of("PaddleJob", {"Worker": 3}),
            "Worker-1",
            PADDLE | {"PADDLE_MASTER": "j-worker-0:36543"},
            id="Paddle worker 1 without a master",
        ),
    ],
)
def test_replicas_of_the_other_kinds_get_address_size_and_rank(
    job: V1Job, replica: str, expected: dict[str, Any]
) -> None:
    assert values_of(job, replica) == expected


def test_a_port_that_is_no_number_is_left_to_the_api_server() -> None:
    assert values_of(job_of("JAXJob", {"Worker": 1}, port="http"), "Worker-0")["COORDINATOR_PORT"] == "http"


@pytest.mark.parametrize("replica_type", ["Master", "Worker"])
def test_the_address_of_a_paddle_pod_comes_before_the_variable_that_refers_to_it(replica_type: str) -> None:
    names = [
        variable["name"]
        for variable in variables_of(job_of("PaddleJob", {replica_type: 2}), "")(replica_type, 0).variables
    ]
    assert names.index("POD_IP_DUMMY") < names.index("PADDLE_MASTER")


@pytest.mark.parametrize(
    ("kind", "container"),
    [("TFJob", "tensorflow"), ("PyTorchJob", ""), ("XGBoostJob", ""), ("JAXJob", ""), ("PaddleJob", "")],
)
def test_only_in_a_tfjob_the_variables_are_for_one_container(kind: str, container: str) -> None:
    job = job_of(kind, dict.fromkeys(("Worker",) if kind == "JAXJob" else ("Master", "Worker"), 1))
    assert variables_of(job, "")("Worker", 0).container == container


@pytest.mark.parametrize(
    ("job", "replica_type", "count"),
    [
        pytest.param(pytorch_job({"Master": 1, "Worker": 1}), "Worker", 1, id="72, a worker with a master"),
        pytest.param(pytorch_job({"Master": 1, "Worker": 1}), "Master", 0, id="73, a master"),
        pytest.param(pytorch_job({"Worker": 1}), "Worker", 0, id="74, a worker alone"),
        pytest.param(job_of("XGBoostJob", {"Master": 1, "Worker": 1}), "Worker", 0, id="another kind"),
    ],
)
def test_only_pytorch_workers_with_a_master_have_an_init_container(job: V1Job, replica_type: str, count: int) -> None:
    assert len(init_containers_of(job, replica_type, default_wait())) == count


def test_the_init_container_has_the_image_and_the_resources_of_training_operator() -> None:
    job = pytorch_job({"Master": 1, "Worker": 1})
    (container,) = init_containers_of(job, "Worker", default_wait())
    assert container["command"][:2] == ["sh", "-c"]
    assert {name: value for name, value in container.items() if name != "command"} == {
        "name": "init-pytorch",
        "image": "alpine:3.10",
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": {"cpu": "50m", "memory": "10Mi"}, "limits": {"cpu": "100m", "memory": "20Mi"}},
    }
    (own,) = init_containers_of(job, "Worker", default_wait(image="localhost/wait"))
    assert own["image"] == "localhost/wait"


@pytest.mark.parametrize(
    ("failures", "max_tries", "code", "calls"),
    [
        pytest.param(0, 3, 0, 1, id="resolves at once"),
        pytest.param(2, 3, 0, 3, id="resolves at the last try"),
        pytest.param(5, 3, 1, 3, id="does not resolve"),
    ],
)
def test_a_worker_waits_until_the_name_of_the_master_resolves(
    tmp_path: Path, failures: int, max_tries: int, code: int, calls: int
) -> None:
    """The command runs as it is, with a stand-in for nslookup, which counts its calls."""
    stand_in = tmp_path / "nslookup"
    stand_in.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\ntest $(wc -l < {tmp_path}/calls) -gt {failures}\n')
    stand_in.chmod(0o755)
    wait = default_wait(max_tries=max_tries, interval_seconds=0)
    (container,) = init_containers_of(pytorch_job({"Master": 1, "Worker": 1}), "Worker", wait)
    path = f"{tmp_path}:{os.environ['PATH']}"
    assert subprocess.run(container["command"], env={"PATH": path}, check=False, timeout=60).returncode == code
    assert (tmp_path / "calls").read_text().splitlines() == ["j-master-0"] * calls


def test_by_default_a_worker_tries_100_times_every_2_seconds() -> None:
    (container,) = init_containers_of(pytorch_job({"Master": 1, "Worker": 1}), "Worker", default_wait())
    assert "seq 100" in container["command"][2]
    assert "sleep 2;" in container["command"][2]


def test_names_of_pods_are_in_lower_case() -> None:
    assert pod_name("j", "PS", 3) == "j-ps-3"
