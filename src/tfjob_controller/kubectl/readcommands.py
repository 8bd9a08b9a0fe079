"""The commands that read: their flags, help and examples."""

from __future__ import annotations

from argparse import ArgumentParser

from tfjob_controller.client.waitconditions import ENDED, FAILED, RUNNING, SUCCEEDED
from tfjob_controller.kinds.names import KIND_NAMES
from tfjob_controller.kube.names import SYSTEM_NAMESPACE
from tfjob_controller.kubectl.argumenttypes import (
    count_argument,
    duration_argument,
    job_argument,
    namespace_argument,
    port_argument,
    until_argument,
)
from tfjob_controller.kubectl.command import (
    JOB_HELP,
    JSON,
    NAME,
    TABLE,
    WIDE,
    YAML,
    Command,
    add_all_namespaces,
    add_job,
    add_jobs,
    add_no_headers,
    add_output,
    add_timeout,
)

_MOST_USED = ", ".join(name.lower() for name in (SUCCEEDED, RUNNING, ENDED, FAILED))


def _add_list(parser: ArgumentParser) -> None:
    parser.add_argument("names", metavar="NAME", type=job_argument, nargs="*", help=f"{JOB_HELP}; default: all jobs")
    add_all_namespaces(parser)
    parser.add_argument(
        "--kind",
        choices=[name.word for name in KIND_NAMES],
        default="",
        help="list only jobs of this kind; default: all kinds",
    )
    parser.add_argument(
        "-l", "--selector", default="", metavar="SELECTOR", help="list only jobs with these labels, such as a=b"
    )
    fields = "list only jobs with these fields; the API server supports metadata.name and metadata.namespace"
    parser.add_argument("--field-selector", default="", metavar="SELECTOR", help=fields)
    order = "a column, such as age, or a field, such as .status.startTime; jobs without a value come last"
    parser.add_argument("--sort-by", default="", metavar="ORDER", help=order)
    add_no_headers(parser)
    parser.add_argument("--show-labels", action="store_true", help="add a column with the labels")
    parser.add_argument("-w", "--watch", action="store_true", help="print a row for every change after the table")
    history = (
        "list jobs that have ended, also deleted ones, from the history that the controller keeps at URL: a directory "
        "or s3://bucket/prefix; default: $TFJOB_HISTORY"
    )
    parser.add_argument("--history", nargs="?", const="", metavar="URL", help=history)
    add_output(parser, TABLE, WIDE, JSON, YAML, NAME, accepts_kubectls=True)


def _add_history(parser: ArgumentParser) -> None:
    text = "the history that has jobs which no longer exist: a directory or s3://bucket/prefix; default: $TFJOB_HISTORY"
    parser.add_argument("--history", default="", metavar="URL", help=text)


def _add_describe(parser: ArgumentParser) -> None:
    add_job(parser)
    _add_controller_namespace(parser)
    _add_history(parser)
    add_output(parser, TABLE, JSON, YAML)


def _add_explain(parser: ArgumentParser) -> None:
    add_job(parser)
    parser.add_argument(
        "--controller-logs",
        action="store_true",
        help="also print the controller's log lines about the job, with their reconcile ids",
    )
    _add_controller_namespace(parser)
    _add_history(parser)
    add_output(parser, TABLE, JSON, YAML)


def _add_controller_namespace(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--controller-namespace",
        type=namespace_argument,
        default=SYSTEM_NAMESPACE,
        metavar="NAME",
        help=f"namespace of the controller and the gang scheduler; default: {SYSTEM_NAMESPACE}",
    )


def _add_logs(parser: ArgumentParser) -> None:
    add_job(parser)
    follow = "wait for the program to start, and print lines as they come, also after restarts"
    parser.add_argument("-f", "--follow", action="store_true", help=follow)
    which = "a replica (worker-1), a role (worker) or `all`; default: the chief"
    parser.add_argument("--replica", default="", metavar="REPLICA", help=which)
    other = "another container of the pod, such as an init container or a sidecar; default: that of the program"
    parser.add_argument("-c", "--container", default="", metavar="NAME", help=other)
    parser.add_argument("--tail", type=count_argument, metavar="N", help="print only the last N lines")
    parser.add_argument(
        "--since",
        type=duration_argument,
        metavar="DURATION",
        help="print only lines of this period, such as 90s or 1h30m",
    )
    parser.add_argument("--timestamps", action="store_true", help="print the time of each line before it")
    parser.add_argument(
        "-p", "--previous", action="store_true", help="print the log of the run before the last restart"
    )
    _add_history(parser)


def _add_wait(parser: ArgumentParser) -> None:
    parser.description = (
        "Waits until jobs run, end, have a condition or are deleted. Exit codes: 0: all jobs have; 1: one of "
        "them can no longer reach it, because it ended in another way or was deleted; 124: the timeout has passed."
    )
    add_jobs(parser)
    parser.add_argument(
        "--for",
        dest="until",
        type=until_argument,
        default=SUCCEEDED,
        metavar="WHAT",
        help=f"{_MOST_USED}, delete, a condition, or condition=NAME[=STATUS], in any case; default: succeeded",
    )
    add_timeout(parser)


def _add_queue(parser: ArgumentParser) -> None:
    add_all_namespaces(parser)
    _add_controller_namespace(parser)
    add_no_headers(parser)
    add_output(parser, TABLE, WIDE, JSON, YAML)


def _add_top(parser: ArgumentParser) -> None:
    add_all_namespaces(parser)
    add_no_headers(parser)
    add_output(parser, TABLE, JSON, YAML)


def _add_dashboard(parser: ArgumentParser) -> None:
    add_all_namespaces(parser)
    parser.add_argument(
        "--port", type=port_argument, default=0, metavar="PORT", help="port on loopback; default: a free port"
    )
    parser.add_argument(
        "--no-browser", dest="open_browser", action="store_false", help="print the address without opening it"
    )
    _add_history(parser)
    _add_controller_namespace(parser)
    parser.add_argument(
        "--prometheus-url",
        default="",
        metavar="URL",
        help="a Prometheus with the metrics of NVIDIA's DCGM exporter, to show how jobs use their GPUs",
    )
    parser.add_argument(
        "--prometheus-ca-file", default="", metavar="FILE", help="CA of that Prometheus; default: those of the system"
    )
    parser.add_argument(
        "--prometheus-token-file", default="", metavar="FILE", help="file with a bearer token for that Prometheus"
    )


READ_COMMANDS = (
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
            "kubectl tfjob list --sort-by age --show-labels --no-headers",
            "kubectl tfjob list --history=s3://ml-history/prod",
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
        "show the timeline of a job, its state, and what happens next",
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
        "wait until jobs run, end, have a condition or are deleted",
        "commands.follow:wait",
        _add_wait,
        (
            "kubectl tfjob wait train",
            "kubectl tfjob wait train --for Running --timeout 10m",
            "kubectl tfjob wait trainjob/finetune --for condition=Suspended",
            "kubectl tfjob wait -l team=vision --for delete --timeout 5m",
            'kubectl tfjob wait train --for ended && echo "it has ended"',
        ),
    ),
    Command(
        "queue",
        "list the waiting gangs in order, with the resources that each one lacks",
        "commands.queue:show_queue",
        _add_queue,
        ("kubectl tfjob queue -A", "kubectl tfjob queue -A -o wide", "kubectl tfjob queue -o json"),
    ),
    Command(
        "top",
        "show the used and free resources of each node, and the jobs that use them",
        "commands.top:show_usage",
        _add_top,
        ("kubectl tfjob top", "kubectl tfjob top -A", "kubectl tfjob top -A -o json"),
    ),
    Command(
        "dashboard",
        "show the jobs in a browser, with your rights",
        "commands.dashboard:serve_dashboard",
        _add_dashboard,
        (
            "kubectl tfjob dashboard",
            "kubectl tfjob dashboard -A --port 8001 --no-browser",
            "kubectl tfjob dashboard --prometheus-url http://localhost:9090",
        ),
    ),
)
