"""Which commands there are, and where each one stands.

A command is a module with three names; it is imported only when its command is called:

    EXAMPLES: str                                       lines that `--help` ends with; a test runs their parsing
    def add_arguments(parser: ArgumentParser) -> None   its own flags; those of all commands are there already
    def run(session: Session, parsed: Namespace) -> int the exit code; raises CommandError, UsageError or ApiError

At its top a command imports the standard library and `kubectl.arguments` alone: what is heavy waits until `run`.
"""

from __future__ import annotations

from dataclasses import dataclass

_PACKAGE = "tfjob_controller.kubectl.commands."


@dataclass(frozen=True, slots=True)
class Command:
    """`module` may serve several commands; `parsed.command` says which was called."""

    name: str
    summary: str
    module: str


COMMANDS = (
    Command("list", "the jobs of a namespace, as `kubectl get` shows them", _PACKAGE + "list"),
    Command("describe", "one job in full: why it does not run, replicas, conditions, events", _PACKAGE + "describe"),
    Command(
        "explain",
        "what happened to one job so far, where it stands, and what would change that",
        "tfjob_controller.kubectl.explain",
    ),
    Command("logs", "what the training program of a replica printed", _PACKAGE + "logs"),
    Command("wait", "wait until a job runs, ends or has a condition", _PACKAGE + "wait"),
    Command("queue", "the jobs that wait for room as a gang, in order, and what each one lacks", _PACKAGE + "queue"),
    Command("top", "which replicas hold what on which node, and what is free", _PACKAGE + "top"),
    Command("submit", "make a job from an image and a command, or print its manifest", _PACKAGE + "submit"),
    Command("scale", "change the number of workers of a TFJob while it runs", _PACKAGE + "scale"),
    Command("suspend", "end the pods of a job, and keep the job", _PACKAGE + "suspend"),
    Command("resume", "let a suspended job run again", _PACKAGE + "suspend"),
    Command("delete", "delete jobs with their pods", _PACKAGE + "delete"),
    Command("completion", "print the script that completes commands in your shell", _PACKAGE + "completion"),
)


def command_of(name: str) -> Command | None:
    return next((each for each in COMMANDS if each.name == name), None)
