"""The commands that create, change or delete jobs: their flags, help and examples."""

from __future__ import annotations

from argparse import ArgumentParser

from tfjob_controller.kubectl.argumenttypes import (
    claim_argument,
    count_argument,
    image_argument,
    job_or_number_argument,
    name_argument,
    number_argument,
    object_name_argument,
    pair_argument,
    positive_argument,
    quantity_argument,
    secret_variable_argument,
    variable_argument,
    volume_argument,
)
from tfjob_controller.kubectl.command import (
    CLIENT,
    JOB_HELP,
    JSON,
    NAME,
    NO_DRY_RUN,
    SERVER,
    YAML,
    Command,
    add_dry_run,
    add_jobs,
    add_timeout,
)

GPU = "nvidia.com/gpu"
PULL_POLICIES = ("Always", "IfNotPresent", "Never")


def _add_submit(parser: ArgumentParser) -> None:
    parser.usage = "kubectl tfjob submit NAME --image IMAGE [flags] [-- COMMAND [ARGUMENT ...]]"
    parser.add_argument("name", metavar="NAME", type=name_argument, help="the name of the job")
    of_all = "image of all replicas; optional if a TrainJob's runtime has one"
    parser.add_argument("--image", type=image_argument, default="", help=of_all)
    parser.add_argument(
        "--image-pull-policy", choices=PULL_POLICIES, help="TrainJobs accept IfNotPresent only, their default"
    )
    add = parser.add_argument_group("TFJobs", "The job is a TFJob unless a flag of TrainJobs is given.").add_argument
    add(
        "--workers", type=count_argument, metavar="N", help="number of workers; without a master, worker-0 is the chief"
    )
    add(
        "--ps",
        type=count_argument,
        metavar="N",
        help="number of parameter servers, which run TensorFlow's standard server",
    )
    of_ps = "image of the parameter servers; default: tfImage of the controller's config file"
    add("--ps-image", type=image_argument, metavar="IMAGE", help=of_ps)
    add("--master", action="store_true", default=None, help="add a master; default: only without --workers")
    add = parser.add_argument_group("TrainJobs").add_argument
    add("--nodes", type=positive_argument, metavar="N", help="the number of nodes")
    of_elastic = "resize the job while it runs, between N and --nodes nodes"
    add("--min-nodes", type=positive_argument, metavar="N", help=of_elastic)
    add("--framework", metavar="NAME", help="torch, tensorflow, jax, xgboost, mpi, plain, …")
    add("--runtime", metavar="NAME", help="the ClusterTrainingRuntime; default: the framework's")
    add("--processes", metavar="N", help="training processes on each node: a number, auto, cpu, gpu")
    add("--dataset", metavar="URI", help="dataset to fetch before training, such as s3://bucket/folder")
    add("--model", metavar="URI", help="model to fetch before training")
    add("--export", metavar="URI", help="URI to which the model is exported at the end")
    add = parser.add_argument_group("each replica").add_argument
    add("--cpu", type=quantity_argument, metavar="QUANTITY", help="CPUs, such as 2 or 500m")
    add("--memory", type=quantity_argument, metavar="QUANTITY", help="memory, such as 4Gi")
    add("--gpus", type=count_argument, metavar="N", help=GPU)
    add("--env", type=variable_argument, action="append", metavar="NAME=VALUE", help="can be repeated")
    add(
        "--env-from-secret",
        type=secret_variable_argument,
        action="append",
        metavar="NAME=SECRET/KEY",
        help="a variable from a Secret, such as TOKEN=registry/token; can be repeated",
    )
    of_claim = "mount a PersistentVolumeClaim, such as data:/data; can be repeated"
    add("--pvc", type=claim_argument, action="append", metavar="CLAIM:PATH[:ro]", help=of_claim)
    of_volume = "mount configmap/NAME, secret/NAME, emptydir or memory, such as memory:/dev/shm; can be repeated"
    add("--volume", type=volume_argument, action="append", metavar="SOURCE:PATH", help=of_volume)
    of_nodes = "use only nodes with this label; can be repeated"
    add("--node-selector", type=pair_argument, action="append", metavar="KEY=VALUE", help=of_nodes)
    add("--service-account", type=object_name_argument, metavar="NAME", help="the ServiceAccount of the pods")
    add("--priority", type=object_name_argument, metavar="NAME", help="the PriorityClass of the pods")
    add = parser.add_argument_group("the job").add_argument
    add("--label", type=pair_argument, action="append", metavar="KEY=VALUE", help="can be repeated")
    add("--annotation", type=pair_argument, action="append", metavar="KEY=VALUE", help="can be repeated")
    group = parser.add_argument_group("start and end")
    add = group.add_argument
    add("--gang", action="store_true", help="start all replicas at once, or none")
    add(
        "--max-restarts",
        type=count_argument,
        metavar="N",
        help="restarts after which the next failure ends the job; default: no limit",
    )
    add("--suspend", action="store_true", help="create the job suspended")
    add(
        "--dry-run",
        choices=(CLIENT, SERVER, NO_DRY_RUN),
        help="print the job without creating it; `client` sends no request",
    )
    add("-o", "--output", choices=(YAML, JSON, NAME), help="format in which the job is printed")
    add("--wait", action="store_true", help="return when the job has ended, with the exit code of `wait`")
    add("-f", "--follow", action="store_true", help="print the chief's log as it comes, and then wait as with --wait")
    add_timeout(group)


def _add_scale(parser: ArgumentParser) -> None:
    parser.usage = "kubectl tfjob scale (JOB ... | -l SELECTOR | --all) (N | --replicas=N) [--dry-run[=client|server]]"
    add_jobs(
        parser, job_or_number_argument, f"{JOB_HELP}; or N, after the jobs: workers of a TFJob, nodes of a TrainJob"
    )
    parser.add_argument(
        "--replicas", metavar="N", type=number_argument, help="the number N as a flag, as in `kubectl scale`"
    )
    add_dry_run(parser)


def _add_changed(parser: ArgumentParser) -> None:
    add_jobs(parser)
    add_dry_run(parser)


def _add_delete(parser: ArgumentParser) -> None:
    _add_changed(parser)
    parser.add_argument(
        "--wait", action="store_true", help="return when the jobs are deleted; pods may terminate later"
    )
    add_timeout(parser)


CHANGE_COMMANDS = (
    Command(
        "submit",
        "create a job from an image and a command, or print its manifest",
        "commands.submit:submit",
        _add_submit,
        (
            "kubectl tfjob submit train --image example/train:1 --workers 2 --ps 1 -- python train.py --epochs 3",
            "kubectl tfjob submit train --image example/train:1 --workers 4 --gpus 1 --gang --dry-run=client -o yaml",
            "kubectl tfjob submit finetune --image example/tune:1 --framework torch --nodes 2 -f -- torchrun tune.py",
        ),
    ),
    Command(
        "scale",
        "change the number of workers, or of nodes of a TrainJob that is elastic or has not started",
        "commands.change:scale",
        _add_scale,
        (
            "kubectl tfjob scale train 4",
            "kubectl tfjob scale train --replicas=4",
            "kubectl tfjob scale -l team=vision --replicas=4 --dry-run=server",
        ),
    ),
    Command(
        "suspend",
        "stop the pods of a job, and keep the job",
        "commands.change:suspend",
        _add_changed,
        ("kubectl tfjob suspend train", "kubectl tfjob resume train"),
    ),
    Command(
        "resume",
        "start a suspended job again",
        "commands.change:resume",
        _add_changed,
        ("kubectl tfjob suspend train", "kubectl tfjob resume train"),
    ),
    Command(
        "delete",
        "delete jobs and their pods",
        "commands.change:delete",
        _add_delete,
        (
            "kubectl tfjob delete train",
            "kubectl tfjob delete tfjob/train trainjob/finetune --wait --timeout 5m",
            "kubectl tfjob delete -l team=vision --dry-run",
        ),
    ),
)
