"""The command line of the plugin: its commands with their flags, and how it is parsed.

Only the standard library and modules that need no more are imported, so that `--help`, `--version` and completion are
fast. The module that runs a command is imported once the command line is known to be valid.
"""

from __future__ import annotations

import argparse
import pkgutil
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfjob_controller.client.waitconditions import ENDED, FAILED, RUNNING, SUCCEEDED
from tfjob_controller.kubectl.argumenttypes import (
    KINDS,
    count_argument,
    duration_argument,
    job_argument,
    name_argument,
    namespace_argument,
    port_argument,
    positive_argument,
    quantity_argument,
    until_argument,
    variable_argument,
)
from tfjob_controller.util.commandline import Parser, UsageError

if TYPE_CHECKING:
    from tfjob_controller.kubectl.session import Session

PROGRAM = "kubectl tfjob"
# That of timeout(1).
EXIT_TIMEOUT = 124

TABLE, WIDE, JSON, YAML, NAME = "table", "wide", "json", "yaml", "name"
CLIENT, SERVER = "client", "server"
GPU = "nvidia.com/gpu"
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_CLUSTER_FLAGS = ("-n", "--namespace", "--kubeconfig", "--context")
_MOST_USED = ", ".join(name.lower() for name in (SUCCEEDED, RUNNING, ENDED, FAILED))


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the plugin. `handler` is the module below `kubectl`, and the function that runs the command.

    The function returns the exit code, and raises `ClientError`, `UsageError` or `ApiError`. `examples` end `--help`.
    """

    name: str
    summary: str
    handler: str
    add_arguments: Callable[[ArgumentParser], None]
    examples: Sequence[str]
    has_cluster: bool = True

    def run(self, session: Session, parsed: argparse.Namespace) -> int:
        code: int = pkgutil.resolve_name(f"tfjob_controller.kubectl.{self.handler}")(session, parsed)
        return code

    def add_flags(self, parser: ArgumentParser) -> None:
        """Adds all arguments of the command, with those that choose a cluster."""
        self.add_arguments(parser)
        if self.has_cluster:
            parser.add_argument(
                "-n", "--namespace", default="", type=namespace_argument, metavar="NAME", help="default: the context's"
            )
            parser.add_argument("--kubeconfig", default="", metavar="FILE", help="default: as kubectl finds it")
            parser.add_argument(
                "--context", default="", metavar="NAME", help="of the kubeconfig; default: its current one"
            )


def _add_list(parser: ArgumentParser) -> None:
    _add_all_namespaces(parser)
    parser.add_argument("--kind", choices=KINDS, default="", help="only jobs of this kind; default: both")
    parser.add_argument(
        "-l", "--selector", default="", metavar="SELECTOR", help="only jobs with these labels, such as a=b"
    )
    parser.add_argument("-w", "--watch", action="store_true", help="print a row for every change after the table")
    _add_output(parser, TABLE, WIDE, JSON, YAML, NAME)


def _add_describe(parser: ArgumentParser) -> None:
    _add_job(parser)
    _add_output(parser, TABLE, JSON, YAML)


def _add_explain(parser: ArgumentParser) -> None:
    _add_job(parser)
    parser.add_argument(
        "--controller-logs",
        action="store_true",
        help="also the controller's log lines about the job, with their reconcile ids",
    )
    parser.add_argument(
        "--controller-namespace",
        type=namespace_argument,
        default="tfjob-system",
        metavar="NAME",
        help="where the controller runs; default: tfjob-system",
    )
    _add_output(parser, TABLE, JSON, YAML)


def _add_logs(parser: ArgumentParser) -> None:
    _add_job(parser)
    follow = "wait for the program to start, and print lines as they come, also after restarts"
    parser.add_argument("-f", "--follow", action="store_true", help=follow)
    which = "a replica (worker-1), a role (worker) or `all`; default: the chief"
    parser.add_argument("--replica", default="", metavar="REPLICA", help=which)
    other = "another container of the pod, such as an init container or a sidecar; default: that of the program"
    parser.add_argument("-c", "--container", default="", metavar="NAME", help=other)
    parser.add_argument("--tail", type=count_argument, metavar="N", help="the last N lines only")
    parser.add_argument(
        "--since", type=duration_argument, metavar="DURATION", help="only lines of the last 90s or 1h30m"
    )
    parser.add_argument("--timestamps", action="store_true", help="print the time of each line before it")
    parser.add_argument(
        "-p", "--previous", action="store_true", help="print the log of the run before the last restart"
    )


def _add_wait(parser: ArgumentParser) -> None:
    parser.description = (
        "Waits until a job runs, ends or has a condition. Exit codes: 0 it is reached; 1 it can no longer be "
        "reached, because the job ended otherwise or was deleted; 124 the timeout has passed."
    )
    _add_job(parser)
    parser.add_argument(
        "--for",
        dest="until",
        type=until_argument,
        default=SUCCEEDED,
        metavar="WHAT",
        help=f"{_MOST_USED}, a condition, or condition=NAME[=STATUS], in any case; default: {SUCCEEDED.lower()}",
    )
    _add_timeout(parser)


def _add_queue(parser: ArgumentParser) -> None:
    _add_all_namespaces(parser)
    _add_output(parser, TABLE, WIDE, JSON, YAML)


def _add_top(parser: ArgumentParser) -> None:
    _add_all_namespaces(parser)
    _add_output(parser, TABLE, JSON, YAML)


def _add_dashboard(parser: ArgumentParser) -> None:
    _add_all_namespaces(parser)
    parser.add_argument(
        "--port", type=port_argument, default=0, metavar="PORT", help="on loopback; default: a free one"
    )
    parser.add_argument(
        "--no-browser", dest="open_browser", action="store_false", help="print the address without opening it"
    )


def _add_submit(parser: ArgumentParser) -> None:
    parser.usage = "kubectl tfjob submit NAME --image IMAGE [flags] [-- COMMAND [ARGUMENT ...]]"
    parser.add_argument("name", metavar="NAME", type=name_argument, help="the name of the job")
    parser.add_argument("--image", default="", help="image of all replicas; optional if a TrainJob's runtime has one")
    parser.add_argument(
        "--image-pull-policy", choices=PULL_POLICIES, help="TrainJobs accept IfNotPresent only, their default"
    )
    add = parser.add_argument_group("TFJobs", "The job is a TFJob unless a flag of TrainJobs is given.").add_argument
    add("--workers", type=count_argument, metavar="N", help="workers; without a master worker-0 is the chief")
    add("--ps", type=count_argument, metavar="N", help="parameter servers, which run TensorFlow's own server")
    of_ps = "TensorFlow's image for them; default: tfImage of the controller's config file"
    add("--ps-image", metavar="IMAGE", help=of_ps)
    add("--master", action="store_true", default=None, help="add a master; default: only without --workers")
    add = parser.add_argument_group("TrainJobs").add_argument
    add("--nodes", type=positive_argument, metavar="N", help="nodes that train together")
    add("--framework", metavar="NAME", help="torch, tensorflow, jax, xgboost, mpi, plain, …")
    add("--runtime", metavar="NAME", help="the ClusterTrainingRuntime; default: the framework's")
    add("--processes", metavar="N", help="training processes on each node: a number, auto, cpu, gpu")
    add("--dataset", metavar="URI", help="dataset to fetch before training, such as s3://bucket/folder")
    add("--model", metavar="URI", help="model to fetch before training")
    add("--export", metavar="URI", help="URI to which the model is exported at the end")
    add = parser.add_argument_group("each replica").add_argument
    add("--cpu", type=quantity_argument, metavar="QUANTITY", help="such as 2 or 500m")
    add("--memory", type=quantity_argument, metavar="QUANTITY", help="such as 4Gi")
    add("--gpus", type=count_argument, metavar="N", help=GPU)
    add("--env", type=variable_argument, action="append", metavar="NAME=VALUE", help="can be repeated")
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
    add("--dry-run", choices=(CLIENT, SERVER), help="print the job without creating it; `client` sends no request")
    add("-o", "--output", choices=(YAML, JSON, NAME), help="format in which the job is printed")
    add("--wait", action="store_true", help="return when the job has ended, with the exit code of `wait`")
    add("-f", "--follow", action="store_true", help="print the chief's log as it comes, and then wait as with --wait")
    _add_timeout(group)


def _add_scale(parser: ArgumentParser) -> None:
    _add_job(parser)
    what = "workers of a TFJob, or nodes of a TrainJob"
    parser.add_argument("number", metavar="N", type=count_argument, nargs="?", help=what)
    parser.add_argument("--replicas", metavar="N", type=count_argument, help="the same number, as for `kubectl scale`")


def _add_delete(parser: ArgumentParser) -> None:
    _add_jobs(parser)
    parser.add_argument(
        "--wait", action="store_true", help="return when the jobs are deleted; pods may terminate later"
    )
    _add_timeout(parser)


def _add_completion(parser: ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell that you use")


_JOB_HELP = "NAME, tfjob/NAME or trainjob/NAME"


def _add_job(parser: ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB", type=job_argument, help=_JOB_HELP)


def _add_jobs(parser: ArgumentParser) -> None:
    parser.add_argument("jobs", metavar="JOB", type=job_argument, nargs="+", help=_JOB_HELP)


def _add_all_namespaces(parser: ArgumentParser) -> None:
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="include all namespaces")


def _add_output(parser: ArgumentParser, *formats: str) -> None:
    parser.add_argument("-o", "--output", choices=formats, default=formats[0], help=f"default: {formats[0]}")


def _add_timeout(parser: Any) -> None:
    says = "such as 90s, 10m or 1h30m; 0 checks once; default: no limit"
    parser.add_argument("--timeout", type=duration_argument, metavar="DURATION", help=says)


COMMANDS = (
    Command(
        "list",
        "list the jobs of a namespace, as `kubectl get` shows them",
        "commands.list:list_jobs",
        _add_list,
        (
            "kubectl tfjob list",
            "kubectl tfjob list -A -o wide",
            "kubectl tfjob list --kind trainjob -o name",
            "kubectl tfjob list -l team=vision --watch",
        ),
    ),
    Command(
        "describe",
        "show why a job does not run, its replicas, conditions and events",
        "commands.diagnose:describe",
        _add_describe,
        (
            "kubectl tfjob describe train",
            "kubectl tfjob describe trainjob/finetune",
            "kubectl tfjob describe train -o json",
        ),
    ),
    Command(
        "explain",
        "show the timeline of a job, its state, and what would change it",
        "commands.diagnose:explain",
        _add_explain,
        (
            "kubectl tfjob explain train",
            "kubectl tfjob explain trainjob/finetune --controller-logs",
            "kubectl tfjob explain train -o json",
        ),
    ),
    Command(
        "logs",
        "print the logs of a job's replicas",
        "commands.follow:logs",
        _add_logs,
        (
            "kubectl tfjob logs train",
            "kubectl tfjob logs train --replica worker-1 --tail 20",
            "kubectl tfjob logs trainjob/finetune --replica all -f",
        ),
    ),
    Command(
        "wait",
        "wait until a job runs, ends or has a condition",
        "commands.follow:wait",
        _add_wait,
        (
            "kubectl tfjob wait train",
            "kubectl tfjob wait train --for Running --timeout 10m",
            "kubectl tfjob wait trainjob/finetune --for condition=Suspended",
            'kubectl tfjob wait train --for ended && echo "it has ended"',
        ),
    ),
    Command(
        "queue",
        "list the waiting gangs in order, and what each one lacks",
        "commands.queue:show_queue",
        _add_queue,
        ("kubectl tfjob queue -A", "kubectl tfjob queue -A -o wide", "kubectl tfjob queue -o json"),
    ),
    Command(
        "top",
        "show which jobs use which resources of each node, and what is free",
        "commands.top:show_usage",
        _add_top,
        ("kubectl tfjob top", "kubectl tfjob top -A", "kubectl tfjob top -A -o json"),
    ),
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
        ("kubectl tfjob scale train 4", "kubectl tfjob scale train --replicas=4"),
    ),
    Command(
        "suspend",
        "stop the pods of a job, and keep the job",
        "commands.change:suspend",
        _add_jobs,
        ("kubectl tfjob suspend train", "kubectl tfjob resume train"),
    ),
    Command(
        "resume",
        "start a suspended job again",
        "commands.change:resume",
        _add_jobs,
        ("kubectl tfjob suspend train", "kubectl tfjob resume train"),
    ),
    Command(
        "delete",
        "delete jobs and their pods",
        "commands.change:delete",
        _add_delete,
        ("kubectl tfjob delete train", "kubectl tfjob delete tfjob/train trainjob/finetune --wait --timeout 5m"),
    ),
    Command(
        "dashboard",
        "show the jobs in a browser, with your rights",
        "commands.dashboard:serve_dashboard",
        _add_dashboard,
        ("kubectl tfjob dashboard", "kubectl tfjob dashboard -A --port 8001 --no-browser"),
    ),
    Command(
        "completion",
        "print the script that completes commands in your shell",
        "complete:print_script",
        _add_completion,
        (
            "source <(kubectl tfjob completion bash)",
            "kubectl tfjob completion zsh > ~/.zsh/completions/_kubectl-tfjob",
            "kubectl tfjob completion fish > ~/.config/fish/completions/kubectl-tfjob.fish",
        ),
        has_cluster=False,
    ),
)


def command_of(name: str) -> Command | None:
    return next((command for command in COMMANDS if command.name == name), None)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The parsed command line; `program` is what follows `--`. Raises `UsageError`; exits for `--help`."""
    dashes = list(argv).index("--") if "--" in argv else len(argv)
    own, program = _as_flags(command_first(argv[:dashes])), list(argv[dashes + 1 :])
    called = command_of(next((each for each in own if not each.startswith("-")), ""))
    if called is None and own and not own[0].startswith("-"):
        raise _no_command(own[0])
    parsed, left_over = build_parser(called).parse_known_args(own)
    if left_over:
        raise _not_understood(left_over, None if own[0].startswith("-") else called)
    if dashes < len(argv) and parsed.command != "submit":
        raise UsageError("only `submit` accepts a command after `--`")
    parsed.program = program
    return parsed


def _as_flags(words: Sequence[str]) -> Sequence[str]:
    """`help COMMAND` and `version` are `COMMAND --help` and `--version`, as for kubectl."""
    if words[:1] == ["version"]:
        return ["--version", *words[1:]]
    # Flags that choose a cluster may stand in between.
    return [*words[1:][-1:], "--help"] if words[:1] == ["help"] else words


def _no_command(word: str) -> UsageError:
    import difflib

    similar = difflib.get_close_matches(word[:80], [command.name for command in COMMANDS], 1)
    hint = f": did you mean `{similar[0]}`?" if similar else ""
    return UsageError(f"there is no command {word[:80]!r}{hint} (see `{PROGRAM} --help`)")


def _not_understood(words: Sequence[str], called: Command | None) -> UsageError:
    """The error about the first unknown word; a flag is named without its value, which may be a secret."""
    flag = next((word.partition("=")[0] for word in words if word.startswith("-")), "")
    what = f"unknown flag: {flag[:80]}" if flag else f"unexpected argument: {words[0][:80]}"
    if called is None:
        return UsageError(f"{what} (see `{PROGRAM} --help`)")
    return UsageError(what, f"{flags_of(called).format_usage()}See `{PROGRAM} {called.name} --help`.")


def command_first(argv: Sequence[str]) -> Sequence[str]:
    """Moves the flags that choose a cluster behind the command; as for kubectl, they may stand before it."""
    index = 0
    while index < len(argv) and argv[index].startswith("-"):
        flag = argv[index].partition("=")[0]
        if flag not in _CLUSTER_FLAGS:
            return argv
        index += 1 if "=" in argv[index] else 2
    return [argv[index], *argv[:index], *argv[index + 1 :]] if index < len(argv) else argv


def build_parser(called: Command | None) -> Parser:
    """The parser of the whole command line, in which only the called command has its flags."""
    parser = Parser(
        prog=PROGRAM,
        description="TFJobs and TrainJobs of a cluster: submit them, see why one does not run, read its logs.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", dest="show_version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", title="commands", metavar="COMMAND", parser_class=Parser)
    for command in COMMANDS:
        if command != called:
            commands.add_parser(command.name, help=command.summary, add_help=False)
            continue
        own = commands.add_parser(
            command.name,
            help=command.summary,
            description=f"{command.summary[0].upper()}{command.summary[1:]}.",
            epilog="\n  ".join(("examples:", *command.examples)),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.add_flags(own)
    return parser


def flags_of(command: Command) -> Parser:
    """A parser of the command alone, from which its flags can be read."""
    parser = Parser(prog=f"{PROGRAM} {command.name}", allow_abbrev=False)
    command.add_flags(parser)
    return parser
