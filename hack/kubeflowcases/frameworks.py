"""Cases of what the programs of each framework find: variables, ports, hosts and numbers of pods."""

from __future__ import annotations

from kubeflowcases.model import Fails, Has
from kubeflowcases.objects import (
    CONTAINER,
    CPU_4,
    INDEX,
    NODE,
    TORCH,
    case,
    container,
    count,
    env,
    replicated,
    runtime,
    three_jobs,
    trainer,
    variables,
)

_PORT = {f"{CONTAINER}.ports[0].containerPort": 29500}
_FLUX = {"numNodes": 2, "flux": {"numProcPerNode": 1}}
_NO_FLUX = (
    "Upstream writes a configuration and a key for Flux and adds an installer to each pod. This controller refuses "
    "the runtime and names the field: Flux needs parts of its own in each pod, which this controller does not have."
)

_TORCH = (
    case("torch-created", "controller/trainjob: Torch, created")
    .promises(
        "Each node of a torch job finds the number of nodes and processes, its rank, and the address of node 0, beside "
        "the job's own variables."
    )
    .given(
        trainer(env=[{"name": "TRAIN_JOB", "value": "value"}], resourcesPerNode={"requests": CPU_4}),
        three_jobs({"numNodes": 5, "torch": {}}),
    )
    .then_node(
        count(5),
        env(
            TRAIN_JOB="value",
            PET_NNODES="5",
            PET_NPROC_PER_NODE="1",
            PET_NODE_RANK=INDEX,
            PET_MASTER_ADDR="torch-created-node-0-0.torch-created",
            PET_MASTER_PORT="29500",
        ),
        _PORT,
    ),
    case("torch-replaces", "controller/trainjob: Torch, created")
    .promises("Image, command, arguments and resources of the trainer replace those of the runtime.")
    .given(
        trainer(resourcesPerNode={"requests": CPU_4}),
        runtime(replicated(NODE, container(command=["runtime"], args=["runtime"])), policy=TORCH),
    )
    .then_node(
        {
            f"{CONTAINER}.image": "test:trainjob",
            f"{CONTAINER}.command": ["trainjob"],
            f"{CONTAINER}.args": ["trainjob"],
            f"{CONTAINER}.resources.requests": CPU_4,
        }
    ),
    case("torch-nodes", "plugins/torch: the job's numNodes")
    .promises("The job's number of nodes has precedence over the runtime's.")
    .given(trainer(numNodes=2, numProcPerNode=2), runtime(policy={"numNodes": 5, "torch": {}}))
    .then_node(count(2), env(PET_NNODES="2", PET_NPROC_PER_NODE="2")),
    case("torch-no-trainer", "plugins/torch: no trainer")
    .promises("A torch job without a trainer gets no variables.")
    .given({}, runtime(policy={"numNodes": 2, "torch": {}}))
    .then_node(count(2), env(PET_NNODES="2"))
    .but(
        "Upstream sets torch's variables only if spec.trainer is there. Here they are always set: the "
        "runtime's own command needs them as well."
    ),
    case("torch-subdomain", "plugins/jobset: endpoints")
    .promises("The host names of pods are in the subdomain that the runtime names.")
    .given(trainer(numNodes=2), runtime(policy={"torch": {}}, network={"subdomain": "torch-subdomain-net"}))
    .then(
        Has("Service", "-net", {"spec.clusterIP": "None"}),
        Has("Pod", "-node-0-1", {"spec.hostname": "torch-subdomain-node-0-1", "spec.subdomain": "torch-subdomain-net"}),
    ),
    case("torch-subdomain-address", "plugins/torch: the job's numNodes")
    .promises("Behind the dot of PET_MASTER_ADDR is the name of the job.")
    .given(trainer(numNodes=2), runtime(policy={"torch": {}}, network={"subdomain": "other"}))
    .then_node(env(PET_MASTER_ADDR="torch-subdomain-address-node-0-0.other"))
    .but(
        "This holds for runtimes without a subdomain. With one, upstream's nodes look for a host that does not "
        "exist; here the address has the subdomain."
    ),
)

_JAX = (
    case("jax-created", "controller/trainjob: JAX, created")
    .promises("Each node of a JAX job finds the number of processes, its own number and the coordinator's address.")
    .given(trainer(numNodes=2), three_jobs({"numNodes": 1, "jax": {}}))
    .then_node(
        count(2),
        env(
            JAX_NUM_PROCESSES="2",
            JAX_PROCESS_ID=INDEX,
            JAX_COORDINATOR_ADDRESS="jax-created-node-0-0.jax-created:29500",
        ),
        variables("JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_COORDINATOR_ADDRESS"),
        _PORT,
    ),
    case("jax-gpus", "plugins/jax: GPUs")
    .promises("GPUs do not change the number of JAX's processes: there is one for each node.")
    .given(trainer(numNodes=2, resourcesPerNode={"limits": {"nvidia.com/gpu": 4}}), runtime(policy={"jax": {}}))
    .then_node(env(JAX_NUM_PROCESSES="2")),
)

_XGBOOST = (
    case("xgboost-created", "controller/trainjob: XGBoost, created")
    .promises("Each node of an XGBoost job finds the tracker, its own number and the number of workers.")
    .given(trainer(numNodes=2), three_jobs({"numNodes": 1, "xgboost": {}}))
    .then_node(
        count(2),
        env(
            DMLC_TRACKER_URI="xgboost-created-node-0-0.xgboost-created",
            DMLC_TRACKER_PORT="29500",
            DMLC_TASK_ID=INDEX,
            DMLC_NUM_WORKER="2",
        ),
        variables("DMLC_TRACKER_URI", "DMLC_TRACKER_PORT", "DMLC_TASK_ID", "DMLC_NUM_WORKER"),
        _PORT,
    ),
    case("xgboost-gpus", "plugins/xgboost: GPUs")
    .promises("An XGBoost job has a worker for each GPU of its nodes.")
    .given(trainer(numNodes=2, resourcesPerNode={"limits": {"nvidia.com/gpu": 4}}), runtime(policy={"xgboost": {}}))
    .then_node(env(DMLC_NUM_WORKER="8")),
    case("xgboost-runtime-gpus", "plugins/xgboost: resources of the runtime")
    .promises("Without resources of the job, the runtime's GPUs count.")
    .given(
        trainer(numNodes=3),
        runtime(replicated(NODE, container(resources={"requests": {"nvidia.com/gpu": 2}})), policy={"xgboost": {}}),
    )
    .then_node(env(DMLC_NUM_WORKER="6")),
    case("xgboost-no-trainer", "plugins/xgboost: no trainer")
    .promises("An XGBoost job without a trainer gets no variables.")
    .given({}, runtime(policy={"numNodes": 2, "xgboost": {}}))
    .then_node(env(DMLC_NUM_WORKER="2"))
    .but("As for torch: upstream sets them only if spec.trainer is there, and here they are always set."),
    case("xgboost-reserved", "plugins/xgboost: a reserved variable")
    .promises("A variable that XGBoost's nodes get from the controller must not be set by the job.")
    .given(trainer(env=[{"name": "DMLC_NUM_WORKER", "value": "9"}]), runtime(policy={"xgboost": {}}))
    .then(Fails("spec.trainer.env[0].name: must not have reserved envs: DMLC_NUM_WORKER")),
)

_OTHERS = (
    case("flux-created", "controller/trainjob: Flux, created")
    .promises("A Flux job gets an installer, a configuration and a key.")
    .given(trainer(numNodes=2), three_jobs(_FLUX))
    .then(Fails("spec.mlPolicy.flux: Flux is not supported by this controller"))
    .but(_NO_FLUX),
    case("flux-processes", "webhooks/trainjob: Flux, no processes")
    .promises("A Flux job with no process per node is refused.")
    .given({"trainer": {"numProcPerNode": 0}}, three_jobs(_FLUX))
    .then(Fails("spec.trainer.numProcPerNode: must be auto, cpu, gpu or a number from 1")),
    case("plain-parallelism", "plugins/jobset: numNodes and parallelism")
    .promises("The number of nodes has precedence over the parallelism that the runtime's Job names.")
    .given(
        trainer(numNodes=2), runtime(replicated(NODE, job={"parallelism": 4, "completions": 4}), policy={"numNodes": 3})
    )
    .then_node(count(2)),
)

CASES = (*_TORCH, *_JAX, *_XGBOOST, *_OTHERS)
