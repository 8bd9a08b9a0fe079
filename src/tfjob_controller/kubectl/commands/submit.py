"""`kubectl tfjob submit`."""

from __future__ import annotations

import sys
from argparse import Namespace
from time import monotonic
from typing import Any

from tfjob_controller.client.builders import tfjob, trainjob
from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.job import Job
from tfjob_controller.client.validation import validate_manifest
from tfjob_controller.client.waitconditions import SUCCEEDED
from tfjob_controller.kubectl.changecommands import GPU
from tfjob_controller.kubectl.command import CLIENT, NAME, SERVER, YAML
from tfjob_controller.kubectl.output import command_for, print_error, print_value
from tfjob_controller.kubectl.session import Session
from tfjob_controller.util.commandline import UsageError
from tfjob_controller.util.terminal import print_line

# The arguments that only one of the kinds has.
_OF_TFJOBS = ("workers", "ps", "ps_image", "master")
_OF_TRAINJOBS = ("nodes", "min_nodes", "framework", "runtime", "processes", "dataset", "model", "export")


def submit(session: Session, parsed: Namespace) -> int:
    if parsed.timeout is not None and not (parsed.wait or parsed.follow):
        raise UsageError("--timeout is the limit of --wait or --follow: add one of them")
    try:
        manifest = manifest_of(parsed)
        validate_manifest(manifest, parsed.namespace or "default")
    except ClientError as error:
        raise UsageError(str(error)) from None
    if parsed.dry_run == CLIENT:
        return _print_manifest(manifest, parsed.output or YAML)
    job = session.client.submit(manifest, parsed.dry_run == SERVER, session.print_warning)
    try:
        if parsed.output:
            _print_manifest(job.manifest, parsed.output)
        else:
            print_line(f"{job.kind}/{job.name} {'would be created' if parsed.dry_run else 'created'}")
        return 0 if parsed.dry_run else _follow_and_wait(session, job, parsed)
    except KeyboardInterrupt:
        again, end = (session.aimed(command_for(job, command)) for command in ("wait", "delete"))
        stays = f"interrupted: {job.kind}/{job.name} stays. "
        print_error(f"{stays}`{again}` waits for it again, `{end}` stops and deletes it")
        raise


def _print_manifest(manifest: dict[str, Any], output: str) -> int:
    if output != NAME:
        return print_value(manifest, output)
    print_line(f"{manifest['kind'].lower()}.kubeflow.org/{manifest['metadata']['name']}")
    return 0


def _follow_and_wait(session: Session, job: Job, parsed: Namespace) -> int:
    """The time of `--timeout` counts for following and waiting together."""
    if not (parsed.wait or parsed.follow):
        return 0
    # Following loads much that printing a manifest does not need.
    from tfjob_controller.kubectl.commands.follow import follow_chief, wait_for_job

    sys.stdout.flush()
    left, begin = parsed.timeout, monotonic()
    if parsed.follow:
        follow_chief(session, job, left)
        left = None if left is None else max(0.0, left - (monotonic() - begin))
    return wait_for_job(session, job, SUCCEEDED, left, given_seconds=parsed.timeout)


def manifest_of(parsed: Namespace) -> dict[str, Any]:
    """The manifest that the flags describe. Raises `UsageError` for flags that exclude each other."""
    of_tfjobs, of_trainjobs = (
        [name for name in names if getattr(parsed, name) is not None] for names in (_OF_TFJOBS, _OF_TRAINJOBS)
    )
    if of_tfjobs and of_trainjobs:
        of_tfjob, of_trainjob = (names[0].replace("_", "-") for names in (of_tfjobs, of_trainjobs))
        raise UsageError(f"--{of_tfjob} makes a TFJob and --{of_trainjob} a TrainJob: leave one of them out")
    if not parsed.image and not (of_trainjobs and parsed.runtime):
        raise UsageError("the job needs an image: --image")
    amounts = {"cpu": parsed.cpu, "memory": parsed.memory, GPU: parsed.gpus or None}
    common: dict[str, Any] = {
        "image": parsed.image,
        "image_pull_policy": parsed.image_pull_policy,
        "command": parsed.program,
        "resources": {name: amount for name, amount in amounts.items() if amount is not None},
        "env": dict((*(parsed.env or ()), *(parsed.env_from_secret or ()))),
        "pod": _pod_fields(parsed),
        "volumes": _volumes(parsed),
        "labels": dict(parsed.label or ()),
        "annotations": dict(parsed.annotation or ()),
        "gang": True if parsed.gang else None,
        "namespace": parsed.namespace,
    }
    if parsed.suspend:
        common["suspend"] = True
    if parsed.max_restarts is not None:
        common["maxRestarts" if of_trainjobs else "backoffLimit"] = parsed.max_restarts
    if of_trainjobs:
        return trainjob(parsed.name, **common, **_trainjob_fields(parsed))
    return tfjob(parsed.name, **common, **_tfjob_fields(parsed))


def _pod_fields(parsed: Namespace) -> dict[str, Any]:
    fields = {
        "nodeSelector": dict(parsed.node_selector or ()),
        "serviceAccountName": parsed.service_account,
        "priorityClassName": parsed.priority,
    }
    return {name: value for name, value in fields.items() if value}


def _volumes(parsed: Namespace) -> dict[str, Any]:
    volumes = [*(parsed.pvc or ()), *(parsed.volume or ())]
    paths = [path for path, _ in volumes]
    if shared_path := next((path for path in paths if paths.count(path) > 1), ""):
        raise UsageError(f"two volumes at {shared_path}: give each its own path")
    return dict(volumes)


def _tfjob_fields(parsed: Namespace) -> dict[str, Any]:
    if parsed.ps_image and not parsed.ps:
        raise UsageError("--ps-image requires --ps, the number of parameter servers")
    image = {"tfImage": parsed.ps_image} if parsed.ps_image else {}
    master = bool(parsed.master) or not parsed.workers
    return {"workers": parsed.workers or 0, "ps": parsed.ps or 0, "master": master, **image}


def _trainjob_fields(parsed: Namespace) -> dict[str, Any]:
    processes = parsed.processes
    elastic: dict[str, Any] = {}
    if parsed.min_nodes is not None:
        if parsed.nodes is None:
            raise UsageError(f"--min-nodes {parsed.min_nodes} requires --nodes, the maximum number of nodes")
        if parsed.min_nodes > parsed.nodes:
            raise UsageError(f"--min-nodes {parsed.min_nodes}: must not be more than --nodes")
        elastic = {"elasticPolicy": {"minNodes": parsed.min_nodes, "maxNodes": parsed.nodes}}
    return {
        **elastic,
        "nodes": parsed.nodes if parsed.nodes is not None or parsed.runtime else 1,
        "framework": parsed.framework,
        "runtime": parsed.runtime,
        "processes_per_node": int(processes) if processes and processes.isdecimal() else processes,
        "dataset": parsed.dataset,
        "model": parsed.model,
        "output": parsed.export,
    }
