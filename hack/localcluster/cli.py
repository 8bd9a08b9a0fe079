"""`python -m localcluster`: up, down, status, node-kill, node-start, image.

Standard output is for programs (`up`: the kubeconfig's path; `status`: the status; `image`: the tar's path);
all messages go to standard error. Errors are one line and exit code 1, wrong usage 2, Ctrl-C 130.
"""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from localcluster import images, nodes, stack, state
from localcluster.controlplane import ControlPlane, check_platform
from localcluster.errors import LocalClusterError
from localcluster.imagestore import ImageStore
from localcluster.report import to_stderr
from localcluster.state import Condition
from localcluster.status import as_text

INTERRUPTED = 128 + signal.SIGINT
_DESCRIPTION = "A real Kubernetes control plane on this machine, with real nodes on request (root on Linux)."


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parser().parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # Like Ctrl-C: stops what is being started.
    try:
        check_platform()
        run: Callable[[argparse.Namespace], None] = chosen.run
        run(chosen)
    except KeyboardInterrupt:
        to_stderr("interrupted: stopped everything that was being started")
        return INTERRUPTED
    except LocalClusterError as error:
        to_stderr(f"error: {error}")
        return error.exit_code
    except OSError as error:
        to_stderr(f"error: {error}")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="localcluster", description=_DESCRIPTION)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    up = _command(commands, "up", _up, "start a stack; the last line on standard output is its kubeconfig's path")
    up.add_argument("--nodes", type=_node_count, default=0, metavar="N", help="with N real nodes (default: none)")
    up.add_argument(
        "--with",
        dest="addons",
        type=lambda text: [name for name in text.split(",") if name],
        default=[],
        metavar="NAME",
        help="with programs of other projects, separated by commas: kueue",
    )
    _command(commands, "down", _down, "stop it and remove everything but its logs")
    _command(commands, "status", _status, "what runs, and where its logs are")
    for name, run, text in (
        ("node-kill", _node_kill, "kill a node, like a power failure"),
        ("node-start", _node_start, "start a killed node again"),
    ):
        _command(commands, name, run, text).add_argument("number", type=int, metavar="N", help="1, 2, ...")
    image = _command(commands, "image", _image, "build an image, load it on running nodes, print its tar's path")
    image.add_argument(
        "images", nargs="+", metavar="IMAGE", help="localhost/tensorflow, localhost/tfjob-controller, localhost/base"
    )
    image.add_argument("--unpack", action="store_true", help="unpack it for nodes that start later instead")
    return parser


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    run: Callable[[argparse.Namespace], None],
    text: str,
) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=text, description=text)
    command.add_argument(
        "--name", default=state.DEFAULT_NAME, help="name of the stack (several can run at the same time)"
    )
    command.set_defaults(run=run)
    return command


def _node_count(text: str) -> int:
    count = int(text)
    if not 0 <= count <= 9:
        raise argparse.ArgumentTypeError("0 to 9 nodes fit on one machine")
    return count


def _up(chosen: argparse.Namespace) -> None:
    existing = stack.existing_kubeconfig()
    if existing is not None and not stack.is_own(existing):
        to_stderr(f"KUBECONFIG={existing} names an existing cluster: nothing is started (unset it for a local one)")
        print(existing)
        return
    plane = stack.up(_folder(chosen), chosen.nodes, addons=chosen.addons)
    to_stderr(f"next:   export KUBECONFIG={plane.kubeconfig}")
    to_stderr(f"        kubectl get namespaces     (logs: {plane.logs})")
    to_stderr(f"        {_make('cluster-down', chosen)}")
    print(plane.kubeconfig)


def _down(chosen: argparse.Namespace) -> None:
    if stack.down(_folder(chosen)):
        to_stderr(f"stopped; its logs stay in {_folder(chosen) / 'logs'}")
        to_stderr(f"next:   {_make('cluster-up', chosen)}")
    else:
        to_stderr(f"nothing runs; start it with: {_make('cluster-up', chosen)}")


def _status(chosen: argparse.Namespace) -> None:
    folder = _folder(chosen)
    print(as_text(chosen.name, folder))
    next_step = {
        Condition.ABSENT: _make("cluster-up", chosen),
        Condition.RUNNING: f"export KUBECONFIG={ControlPlane(folder).kubeconfig}",
        Condition.STARTING: "wait; if its start was interrupted: " + _make("cluster-down", chosen),
    }
    condition = state.condition(state.read(folder))
    to_stderr(f"next:   {next_step.get(condition, _make('cluster-up', chosen) + ' starts a new one')}")


def _node_kill(chosen: argparse.Namespace) -> None:
    stack.node_kill(_folder(chosen), chosen.number)
    to_stderr(f"node {chosen.number} is dead; Kubernetes notices in about 20 s")
    to_stderr(f"next:   {_make(f'node-start N={chosen.number}', chosen)}")


def _node_start(chosen: argparse.Namespace) -> None:
    stack.node_start(_folder(chosen), chosen.number)
    to_stderr(f"node {chosen.number} runs again")
    to_stderr("next:   kubectl get nodes")


def _image(chosen: argparse.Namespace) -> None:
    for name in chosen.images:
        if nodes.exists(_folder(chosen)) and not chosen.unpack:
            nodes.load_image(_folder(chosen), name)
        print(images.ensure(name))
    if chosen.unpack:
        ImageStore(to_stderr).ensure(chosen.images)


def _folder(chosen: argparse.Namespace) -> Path:
    return state.stack_dir(chosen.name)


def _make(target: str, chosen: argparse.Namespace) -> str:
    """Returns the command line of make for this stack."""
    return f"make {target}" + ("" if chosen.name == state.DEFAULT_NAME else f" NAME={chosen.name}")
