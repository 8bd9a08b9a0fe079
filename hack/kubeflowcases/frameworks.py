"""Cases of what the programs of each framework find: variables, ports, hosts and numbers of pods."""

from __future__ import annotations

from kubeflowcases.model import Case, Fails, Has
from kubeflowcases.objects import (
    CONTAINER,
    CPU_4,
    INDEX,
    NODE,
    condition,
    container,
    count,
    env,
    job,
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
    Case(
        "torch-created",
        "controller/trainjob: Torch, created",
        "Each node of a torch job finds the number of nodes and processes, its rank, and the address of node 0, beside "
        "the job's own variables.",
        trainer(env=[{"name": "TRAIN_JOB", "value": "value"}], resourcesPerNode={"requests": CPU_4}),
        three_jobs({"numNodes": 5, "torch": {}}),
        (
            job(
                NODE,
                count(5),
                env(
                    {
                        "TRAIN_JOB": "value",
                        "PET_NNODES": "5",
                        "PET_NPROC_PER_NODE": "1",
                        "PET_NODE_RANK": INDEX,
                        "PET_MASTER_ADDR": "torch-created-node-0-0.torch-created",
                        "PET_MASTER_PORT": "29500",
                    }
                ),
                _PORT,
            ),
        ),
    ),
    Case(
        "torch-replaces",
        "controller/trainjob: Torch, created",
        "Image, command, arguments and resources of the trainer replace those of the runtime.",
        trainer(resourcesPerNode={"requests": CPU_4}),
        runtime(
            replicated(NODE, container(command=["runtime"], args=["runtime"])), policy={"numNodes": 1, "torch": {}}
        ),
        (
            job(
                NODE,
                {
                    f"{CONTAINER}.image": "test:trainjob",
                    f"{CONTAINER}.command": ["trainjob"],
                    f"{CONTAINER}.args": ["trainjob"],
                    f"{CONTAINER}.resources.requests": CPU_4,
                },
            ),
        ),
    ),
    Case(
        "torch-nodes",
        "plugins/torch: the job's numNodes",
        "The job's number of nodes has precedence over the runtime's.",
        trainer(numNodes=2, numProcPerNode=2),
        runtime(policy={"numNodes": 5, "torch": {}}),
        (job(NODE, count(2), env({"PET_NNODES": "2", "PET_NPROC_PER_NODE": "2"})),),
    ),
    Case(
        "torch-no-trainer",
        "plugins/torch: no trainer",
        "A torch job without a trainer gets no variables.",
        {},
        runtime(policy={"numNodes": 2, "torch": {}}),
        (job(NODE, count(2), env({"PET_NNODES": "2"})),),
        differs="Upstream sets torch's variables only if spec.trainer is there. Here they are always set: the "
        "runtime's own command needs them as well.",
    ),
    Case(
        "torch-subdomain",
        "plugins/jobset: endpoints",
        "The host names of pods are in the subdomain that the runtime names.",
        trainer(numNodes=2),
        runtime(policy={"torch": {}}, network={"subdomain": "torch-subdomain-net"}),
        (
            Has("Service", "-net", {"spec.clusterIP": "None"}),
            Has(
                "Pod",
                "-node-0-1",
                {"spec.hostname": "torch-subdomain-node-0-1", "spec.subdomain": "torch-subdomain-net"},
            ),
        ),
    ),
    Case(
        "torch-subdomain-address",
        "plugins/torch: the job's numNodes",
        "Behind the dot of PET_MASTER_ADDR is the name of the job.",
        trainer(numNodes=2),
        runtime(policy={"torch": {}}, network={"subdomain": "other"}),
        (job(NODE, env({"PET_MASTER_ADDR": "torch-subdomain-address-node-0-0.other"})),),
        differs="This holds for runtimes without a subdomain. With one, upstream's nodes look for a host that does not "
        "exist; here the address has the subdomain.",
        is_pure=True,
    ),
)

_JAX = (
    Case(
        "jax-created",
        "controller/trainjob: JAX, created",
        "Each node of a JAX job finds the number of processes, its own number and the coordinator's address.",
        trainer(numNodes=2),
        three_jobs({"numNodes": 1, "jax": {}}),
        (
            job(
                NODE,
                count(2),
                env(
                    {
                        "JAX_NUM_PROCESSES": "2",
                        "JAX_PROCESS_ID": INDEX,
                        "JAX_COORDINATOR_ADDRESS": "jax-created-node-0-0.jax-created:29500",
                    }
                ),
                variables("JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_COORDINATOR_ADDRESS"),
                _PORT,
            ),
        ),
    ),
    Case(
        "jax-gpus",
        "plugins/jax: GPUs",
        "GPUs do not change the number of JAX's processes: there is one for each node.",
        trainer(numNodes=2, resourcesPerNode={"limits": {"nvidia.com/gpu": 4}}),
        runtime(policy={"jax": {}}),
        (job(NODE, env({"JAX_NUM_PROCESSES": "2"})),),
        is_pure=True,
    ),
)

_XGBOOST = (
    Case(
        "xgboost-created",
        "controller/trainjob: XGBoost, created",
        "Each node of an XGBoost job finds the tracker, its own number and the number of workers.",
        trainer(numNodes=2),
        three_jobs({"numNodes": 1, "xgboost": {}}),
        (
            job(
                NODE,
                count(2),
                env(
                    {
                        "DMLC_TRACKER_URI": "xgboost-created-node-0-0.xgboost-created",
                        "DMLC_TRACKER_PORT": "29500",
                        "DMLC_TASK_ID": INDEX,
                        "DMLC_NUM_WORKER": "2",
                    }
                ),
                variables("DMLC_TRACKER_URI", "DMLC_TRACKER_PORT", "DMLC_TASK_ID", "DMLC_NUM_WORKER"),
                _PORT,
            ),
        ),
    ),
    Case(
        "xgboost-gpus",
        "plugins/xgboost: GPUs",
        "An XGBoost job has a worker for each GPU of its nodes.",
        trainer(numNodes=2, resourcesPerNode={"limits": {"nvidia.com/gpu": 4}}),
        runtime(policy={"xgboost": {}}),
        (job(NODE, env({"DMLC_NUM_WORKER": "8"})),),
        is_pure=True,
    ),
    Case(
        "xgboost-runtime-gpus",
        "plugins/xgboost: resources of the runtime",
        "Without resources of the job, the runtime's GPUs count.",
        trainer(numNodes=3),
        runtime(
            replicated(NODE, container(resources={"requests": {"nvidia.com/gpu": 2}})),
            policy={"xgboost": {}},
        ),
        (job(NODE, env({"DMLC_NUM_WORKER": "6"})),),
        is_pure=True,
    ),
    Case(
        "xgboost-both",
        "plugins/xgboost: resources of both",
        "The job's resources count instead of the runtime's.",
        trainer(numNodes=2, resourcesPerNode={"requests": {"nvidia.com/gpu": 3}}),
        runtime(
            replicated(NODE, container(resources={"requests": {"nvidia.com/gpu": 1}})),
            policy={"xgboost": {}},
        ),
        (job(NODE, env({"DMLC_NUM_WORKER": "6"})),),
        is_pure=True,
    ),
    Case(
        "xgboost-no-trainer",
        "plugins/xgboost: no trainer",
        "An XGBoost job without a trainer gets no variables.",
        {},
        runtime(policy={"numNodes": 2, "xgboost": {}}),
        (job(NODE, env({"DMLC_NUM_WORKER": "2"})),),
        differs="As for torch: upstream sets them only if spec.trainer is there, and here they are always set.",
        is_pure=True,
    ),
    Case(
        "xgboost-reserved",
        "plugins/xgboost: a reserved variable",
        "A variable that XGBoost's nodes get from the controller must not be set by the job.",
        trainer(env=[{"name": "DMLC_NUM_WORKER", "value": "9"}]),
        runtime(policy={"xgboost": {}}),
        (Fails("spec.trainer.env[0].name: must not have reserved envs: DMLC_NUM_WORKER"),),
    ),
)

_OTHERS = (
    Case(
        "flux-created",
        "controller/trainjob: Flux, created",
        "A Flux job gets an installer, a configuration and a key.",
        trainer(numNodes=2),
        three_jobs(_FLUX),
        (Fails("spec.mlPolicy.flux: Flux is not supported by this controller"),),
        differs=_NO_FLUX,
    ),
    *(
        Case(
            f"flux-{end}",
            f"controller/trainjob: Flux, {end}",
            f"A Flux job has the condition {end} when its nodes have ended.",
            trainer(numNodes=2),
            three_jobs(_FLUX),
            (condition("Failed", "JobsBuildFailed"),),
            differs="As for a Flux job that is created: Flux is refused.",
        )
        for end in ("complete", "failed")
    ),
    Case(
        "flux-processes",
        "webhooks/trainjob: Flux, no processes",
        "A Flux job with no process per node is refused.",
        {"trainer": {"numProcPerNode": 0}},
        three_jobs(_FLUX),
        (Fails("spec.trainer.numProcPerNode: must be auto, cpu, gpu or a number from 1"),),
    ),
    Case(
        "flux-installer",
        "webhooks/trainjob: Flux, the installer's name",
        "A runtime must not use the name of Flux's own init container.",
        {},
        three_jobs(_FLUX),
        (Fails("spec.mlPolicy.flux: "),),
        differs="The runtime is refused because of Flux, whatever the names of its containers.",
    ),
    Case(
        "plain-nodes",
        "plugins/plainml: the job's numNodes",
        "Without a framework, the job's number of nodes has precedence over the runtime's.",
        trainer(numNodes=3),
        runtime(policy={"numNodes": 5}),
        (job(NODE, count(3), variables()),),
    ),
    Case(
        "plain-parallelism",
        "plugins/jobset: numNodes and parallelism",
        "The number of nodes has precedence over the parallelism that the runtime's Job names.",
        trainer(numNodes=2),
        runtime(replicated(NODE, job={"parallelism": 4, "completions": 4}), policy={"numNodes": 3}),
        (job(NODE, count(2)),),
        is_pure=True,
    ),
)

CASES = (*_TORCH, *_JAX, *_XGBOOST, *_OTHERS)
