"""Cases of MPI jobs: launcher and nodes, hostfile, keys, and OpenMPI's settings."""

from __future__ import annotations

from kubeflowcases.model import Contains, Fails, Has
from kubeflowcases.objects import (
    CONTAINER,
    LAUNCHER,
    NODE,
    POD,
    case,
    container,
    count,
    env,
    job,
    mpi_runtime,
    replicated,
    runtime,
    trainer,
)

_SSH = f"{POD}.volumes[mpi-ssh-auth].secret"

CASES = (
    case("mpi-created", "controller/trainjob: OpenMPI, created")
    .promises(
        "The launcher of an MPI job finds the hostfile and OpenMPI's settings; the job's variables go to the job with "
        "the trainer's label."
    )
    .given(
        trainer(numNodes=2, env=[{"name": "TRAIN_JOB", "value": "value"}]),
        mpi_runtime(
            launcher=replicated(LAUNCHER, container(command=["mpirun"]), dependsOn=[{"name": NODE, "status": "Ready"}]),
            node=replicated(NODE),
            numProcPerNode=8,
        ),
    )
    .then(
        job(NODE, count(2), env(TRAIN_JOB="value"), {f"{CONTAINER}.command": ["trainjob"]}),
        job(
            LAUNCHER,
            count(1),
            env(
                OMPI_MCA_orte_default_hostfile="/etc/mpi/hostfile",
                OMPI_MCA_orte_keep_fqdn_hostnames="true",
                OMPI_MCA_orte_set_default_slots="8",
                OMPI_MCA_plm_rsh_args="-o ConnectionAttempts=10",
                TRAIN_JOB=None,
            ),
            {f"{CONTAINER}.command": ["mpirun"]},
        ),
        Has(
            "ConfigMap",
            "-mpi-hostfile",
            {"data.hostfile": "".join(f"mpi-created-node-0-{index}.mpi-created slots=8\n" for index in range(2))},
        ),
    ),
    case("mpi-keys", "controller/trainjob: OpenMPI, created")
    .promises("The keys of an MPI job are in an immutable Secret of Kubernetes' type for them.")
    .given(trainer(numNodes=2), mpi_runtime())
    .then(
        Has(
            "Secret",
            "-mpi-ssh-auth",
            {
                "type": "kubernetes.io/ssh-auth",
                "immutable": True,
                "data.ssh-privatekey": Contains("L"),
                "data.ssh-publickey": Contains("c"),
                "metadata.ownerReferences[mpi-keys].kind": "TrainJob",
            },
        )
    ),
    case("mpi-volumes", "controller/trainjob: OpenMPI, created")
    .promises("Launcher and nodes mount the keys, with the modes that ssh demands.")
    .given(trainer(numNodes=2), mpi_runtime(sshAuthMountPath="/home/mpiuser/.ssh"))
    .then(
        *(
            job(
                name,
                {
                    f"{CONTAINER}.volumeMounts[mpi-ssh-auth].mountPath": "/home/mpiuser/.ssh",
                    f"{_SSH}.secretName": "mpi-volumes-mpi-ssh-auth",
                    f"{_SSH}.items[ssh-privatekey].mode": 0o640,
                    f"{_SSH}.items#path": ["authorized_keys", "id_rsa", "id_rsa.pub"],
                },
            )
            for name in (NODE, LAUNCHER)
        )
    ),
    case("mpi-hostfile-name", "controller/trainjob: OpenMPI, created")
    .promises("The hostfile is in a ConfigMap with the job's name and -mpi-hostfile.")
    .given(runtime=mpi_runtime())
    .then(Has("ConfigMap", "-mpi-hostfile-", {"data.hostfile": Contains("mpi-hostfile-name-node-0-0")}))
    .but(
        "The name here ends with a digest of the content, so that pods keep the hostfile that they were created with."
    ),
    case("mpi-as-node", "plugins/mpi: runLauncherAsNode")
    .promises(
        "With runLauncherAsNode the launcher is one of the nodes, and the hostfile has it in the order of the "
        "runtime's jobs."
    )
    .given(trainer(numNodes=3), mpi_runtime(runLauncherAsNode=True))
    .then(
        job(NODE, count(2)),
        Has(
            "ConfigMap",
            "-mpi-hostfile",
            {
                "data.hostfile": "".join(
                    f"mpi-as-node-{host}.mpi-as-node slots=1\n" for host in ("node-0-0", "node-0-1", "launcher-0-0")
                )
            },
        ),
    ),
    case("mpi-as-node-first", "plugins/mpi: runLauncherAsNode")
    .promises("If the runtime lists the launcher first, the hostfile does so as well.")
    .given(
        trainer(numNodes=2),
        runtime(
            replicated(LAUNCHER, ancestor="trainer"),
            replicated(NODE, ancestor=""),
            policy={"mpi": {"runLauncherAsNode": True}},
        ),
    )
    .then(
        Has(
            "ConfigMap",
            "-mpi-hostfile",
            {
                "data.hostfile": "".join(
                    f"mpi-as-node-first-{host}.mpi-as-node-first slots=1\n" for host in ("launcher-0-0", "node-0-0")
                )
            },
        )
    ),
    case("mpi-as-node-one", "plugins/mpi: runLauncherAsNode")
    .promises("With runLauncherAsNode a job of one node still has a pod in addition to the launcher.")
    .given(trainer(numNodes=1), mpi_runtime(runLauncherAsNode=True))
    .then(job(NODE, count(1)), job(LAUNCHER, count(1))),
    case("mpi-as-node-env", "plugins/jobset: builder, runLauncherAsNode")
    .promises("With runLauncherAsNode the nodes get the job's variables and resources, but keep their own command.")
    .given(
        trainer(
            numNodes=2,
            env=[{"name": "TRAIN_JOB", "value": "value"}],
            resourcesPerNode={"limits": {"nvidia.com/gpu": 2}},
        ),
        mpi_runtime(node=replicated(NODE, container(command=["sshd"]), ancestor=""), runLauncherAsNode=True),
    )
    .then_node(
        env(TRAIN_JOB="value"),
        {f"{CONTAINER}.command": ["sshd"], f"{CONTAINER}.resources.limits": {"nvidia.com/gpu": 2}},
    ),
    case("mpi-processes", "plugins/mpi: the job's numProcPerNode")
    .promises("The job's number of processes per node has precedence over the runtime's.")
    .given(trainer(numNodes=2, numProcPerNode=3), mpi_runtime(numProcPerNode=5))
    .then(job(LAUNCHER, env(OMPI_MCA_orte_set_default_slots="3"))),
    case("mpi-gpus", "plugins/mpi: GPUs")
    .promises("A runtime's single process per node stands for one process for each GPU.")
    .given(trainer(numNodes=2, resourcesPerNode={"limits": {"nvidia.com/gpu": 8}}), mpi_runtime(numProcPerNode=1))
    .then(job(LAUNCHER, env(OMPI_MCA_orte_set_default_slots="8"))),
    case("mpi-reserved", "plugins/mpi: a reserved variable")
    .promises("A variable that OpenMPI gets from the controller must not be set by the job.")
    .given(trainer(env=[{"name": "OMPI_MCA_orte_default_hostfile", "value": "/mine"}]), mpi_runtime())
    .then(Fails("spec.trainer.env[0].name: must not have reserved envs: OMPI_MCA_orte_default_hostfile")),
    case("mpi-no-launcher", "plugins/mpi: no launcher")
    .promises("With runLauncherAsNode and two nodes, the runtime must have a launcher.")
    .given(trainer(numNodes=2), runtime(replicated(NODE), policy={"numNodes": 1, "mpi": {"runLauncherAsNode": True}}))
    .then(Fails("with mlPolicy.mpi there must be the jobs launcher and node")),
    case("mpi-one-node", "plugins/mpi: no launcher, one node")
    .promises("With a single node, an MPI runtime needs no launcher.")
    .given(trainer(numNodes=1), runtime(replicated(NODE), policy={"numNodes": 1, "mpi": {"runLauncherAsNode": True}}))
    .then(Fails("with mlPolicy.mpi there must be the jobs launcher and node"))
    .but(
        "Upstream accepts the job, whose node then runs without a launcher and without mpirun. This controller "
        "refuses every MPI runtime without a launcher."
    ),
)
