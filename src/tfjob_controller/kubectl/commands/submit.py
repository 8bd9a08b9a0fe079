"""`kubectl tfjob submit`."""

from __future__ import annotations

import argparse
import re
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from tfjob_controller.kubectl.arguments import (
    JSON,
    NAME,
    YAML,
    CommandHandler,
    add_cluster,
    add_timeout,
    command_for,
    count_argument,
    name_argument,
    positive_argument,
    print_refusal,
)
from tfjob_controller.util.commandline import UsageError

if TYPE_CHECKING:
    from tfjob_controller.client.job import Job
    from tfjob_controller.kubectl.session import Session

_SUBMIT_EXAMPLES = """
kubectl tfjob submit train --image example/train:1 --workers 2 --ps 1 -- python train.py --epochs 3
kubectl tfjob submit train --image example/train:1 --workers 4 --gpus 1 --gang --dry-run=client -o yaml
kubectl tfjob submit finetune --image example/tune:1 --framework torch --nodes 2 -f -- torchrun tune.py
"""

GPU = "nvidia.com/gpu"
CLIENT, SERVER = "client", "server"
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_ENV = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]*)=(.*)", re.DOTALL)
# What only one of the kinds knows.
_OF_TFJOBS = ("workers", "ps", "ps_image", "master")
_OF_TRAINJOBS = ("nodes", "framework", "runtime", "processes", "dataset", "model", "export")


def _add_submit_arguments(parser: ArgumentParser) -> None:
    parser.usage = "kubectl tfjob submit NAME --image IMAGE [flags] [-- COMMAND [ARGUMENT ...]]"
    parser.add_argument("name", metavar="NAME", type=lambda text: name_argument(text, "a job"), help="of the job")
    parser.add_argument("--image", default="", help="image of all replicas; a TrainJob's runtime may give it")
    parser.add_argument("--image-pull-policy", choices=PULL_POLICIES, help="TrainJobs: IfNotPresent, by default too")
    _add_tfjob(parser.add_argument_group("TFJobs", "What a job is unless a flag of TrainJobs is given."))
    _add_trainjob(parser.add_argument_group("TrainJobs"))
    _add_replicas(parser.add_argument_group("each replica"))
    _add_course(parser.add_argument_group("what becomes of it"))
    add_cluster(parser)


def _add_tfjob(group: Any) -> None:
    group.add_argument(
        "--workers", type=count_argument, metavar="N", help="workers; without a master worker-0 is the chief"
    )
    group.add_argument(
        "--ps", type=count_argument, metavar="N", help="parameter servers, which run TensorFlow's own server"
    )
    group.add_argument(
        "--ps-image",
        metavar="IMAGE",
        help="TensorFlow's image for them; default: tfImage of the controller's config file",
    )
    group.add_argument("--master", action="store_true", default=None, help="a master too; default: if no --workers")


def _add_trainjob(group: Any) -> None:
    group.add_argument("--nodes", type=positive_argument, metavar="N", help="nodes that train together")
    group.add_argument("--framework", metavar="NAME", help="torch, tensorflow, jax, xgboost, mpi, plain, …")
    group.add_argument("--runtime", metavar="NAME", help="the ClusterTrainingRuntime; default: the framework's")
    group.add_argument("--processes", metavar="N", help="training processes on each node: a number, auto, cpu, gpu")
    group.add_argument("--dataset", metavar="URI", help="what is fetched before, such as s3://bucket/folder")
    group.add_argument("--model", metavar="URI", help="the model that is fetched before")
    group.add_argument("--export", metavar="URI", help="where the model goes at the end")


def _add_replicas(group: Any) -> None:
    group.add_argument("--cpu", type=_quantity, metavar="QUANTITY", help="such as 2 or 500m")
    group.add_argument("--memory", type=_quantity, metavar="QUANTITY", help="such as 4Gi")
    group.add_argument("--gpus", type=count_argument, metavar="N", help=f"{GPU}")
    group.add_argument("--env", type=_variable, action="append", metavar="NAME=VALUE", help="may be given again")


def _add_course(group: Any) -> None:
    group.add_argument("--gang", action="store_true", help="no replica starts before there is room for all")
    group.add_argument(
        "--max-restarts", type=count_argument, metavar="N", help="one more fails the job; default: no limit"
    )
    group.add_argument("--suspend", action="store_true", help="make it suspended")
    group.add_argument("--dry-run", choices=(CLIENT, SERVER), help="print what would be made; `client` asks no cluster")
    group.add_argument("-o", "--output", choices=(YAML, JSON, NAME), help="print the job so")
    group.add_argument("--wait", action="store_true", help="until it has ended; the exit code is that of `wait`")
    group.add_argument("-f", "--follow", action="store_true", help="print the chief's log as it comes, then as --wait")
    add_timeout(group)


def _quantity(text: str) -> str:
    from tfjob_controller.api.common.quantity import milli_of

    try:
        amount = milli_of(text)
    except ValueError:
        amount = 0
    if amount <= 0:
        raise argparse.ArgumentTypeError(f"must be a quantity such as 2, 500m or 4Gi, not {text[:80]!r}")
    return text


def _variable(text: str) -> tuple[str, str]:
    match = _ENV.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError("must be NAME=VALUE")  # without the text, which may be a secret
    return match[1], match[2]


def _run_submit(session: Session, parsed: Namespace) -> int:
    from tfjob_controller.client.errors import ClientError
    from tfjob_controller.client.validation import validate_manifest
    from tfjob_controller.kubectl.output import print_value

    try:
        manifest = manifest_of(parsed)
        validate_manifest(manifest, parsed.namespace or "default")
    except ClientError as error:
        raise UsageError(str(error)) from None
    if parsed.dry_run == CLIENT:
        if parsed.output == NAME:
            return _print_name(manifest["kind"], parsed.name)
        return print_value(manifest, parsed.output or YAML)
    job = session.client.submit(manifest, dry_run=parsed.dry_run == SERVER)
    if parsed.dry_run:
        return _print_job(job, parsed)
    try:
        _print_job(job, parsed)
        return _see_it_through(session, job, parsed)
    except KeyboardInterrupt:
        print_refusal(
            f"interrupted: {job.kind}/{job.name} stays. `{command_for(job, 'wait')}` waits for it again, "
            f"`{command_for(job, 'delete')}` stops and deletes it"
        )
        raise


def _print_job(job: Job, parsed: Namespace) -> int:
    from tfjob_controller.kubectl.output import print_value

    if parsed.output == NAME:
        return _print_name(job.snapshot.kind.resource.kind, job.name)
    if parsed.output:
        return print_value(job.manifest, parsed.output)
    print(f"{job.kind}/{job.name} {'would be created' if parsed.dry_run else 'created'}")
    return 0


def _print_name(kind: str, name: str) -> int:
    print(f"{kind.lower()}.kubeflow.org/{name}")
    return 0


def _see_it_through(session: Session, job: Job, parsed: Namespace) -> int:
    """The time of `--timeout` counts for following and waiting together."""
    if not (parsed.wait or parsed.follow):
        return 0
    import sys
    from time import monotonic

    from tfjob_controller.client.waitconditions import SUCCEEDED
    from tfjob_controller.kubectl.commands.follow import wait

    sys.stdout.flush()
    left, begin = parsed.timeout, monotonic()
    if parsed.follow:
        from tfjob_controller.kubectl.logprinter import follow_chief

        follow_chief(session, job, left)
        left = None if left is None else max(0.0, left - (monotonic() - begin))
    return wait(job, SUCCEEDED, left, given_seconds=parsed.timeout)


def manifest_of(parsed: Namespace) -> dict[str, Any]:
    """What the flags say, as an object. Raises `UsageError` for flags that do not go together."""
    from tfjob_controller.client.builders import tfjob, trainjob

    of_tfjobs, of_trainjobs = _given(parsed, _OF_TFJOBS), _given(parsed, _OF_TRAINJOBS)
    if of_tfjobs and of_trainjobs:
        flag = of_tfjobs[0].replace("_", "-")
        raise UsageError(f"--{flag} makes a TFJob and --{of_trainjobs[0]} a TrainJob: leave one of them out")
    if not parsed.image and not (of_trainjobs and parsed.runtime):
        raise UsageError("the job needs an image: --image")
    common: dict[str, Any] = {
        "image": parsed.image,
        "image_pull_policy": parsed.image_pull_policy,
        "command": parsed.program,
        "resources": _resources(parsed),
        "env": dict(parsed.env or ()),
        "gang": True if parsed.gang else None,
        "namespace": parsed.namespace,
    }
    if parsed.suspend:
        common["suspend"] = True
    if of_trainjobs:
        return trainjob(parsed.name, **common, **_trainjob_fields(parsed))
    return tfjob(parsed.name, **common, **_tfjob_fields(parsed))


def _given(parsed: Namespace, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if getattr(parsed, name) is not None]


def _tfjob_fields(parsed: Namespace) -> dict[str, Any]:
    others: dict[str, Any] = {} if parsed.max_restarts is None else {"backoffLimit": parsed.max_restarts}
    if parsed.ps_image:
        if not parsed.ps:
            raise UsageError("--ps-image is the image of the parameter servers: say how many with --ps")
        others["tfImage"] = parsed.ps_image
    master = bool(parsed.master) or not parsed.workers
    return {"workers": parsed.workers or 0, "ps": parsed.ps or 0, "master": master, **others}


def _trainjob_fields(parsed: Namespace) -> dict[str, Any]:
    limit = {} if parsed.max_restarts is None else {"maxRestarts": parsed.max_restarts}
    processes = parsed.processes
    return {
        "nodes": parsed.nodes if parsed.nodes is not None or parsed.runtime else 1,
        "framework": parsed.framework,
        "runtime": parsed.runtime,
        "processes_per_node": int(processes) if processes and processes.isdecimal() else processes,
        "dataset": parsed.dataset,
        "model": parsed.model,
        "output": parsed.export,
        **limit,
    }


def _resources(parsed: Namespace) -> dict[str, int | str]:
    amounts = {"cpu": parsed.cpu, "memory": parsed.memory, GPU: parsed.gpus or None}
    return {name: amount for name, amount in amounts.items() if amount is not None}


HANDLERS = {
    "submit": CommandHandler(_SUBMIT_EXAMPLES, _add_submit_arguments, _run_submit),
}
