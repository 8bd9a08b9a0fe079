"""`kubectl tfjob describe`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from tfjob_controller.kubectl.arguments import JSON, TABLE, YAML, add_cluster, add_job, add_output

if TYPE_CHECKING:
    from tfjob_controller.kubectl.session import Session

EXAMPLES = """
kubectl tfjob describe train
kubectl tfjob describe trainjob/finetune
kubectl tfjob describe train -o json
"""


def add_arguments(parser: ArgumentParser) -> None:
    add_job(parser)
    add_output(parser, TABLE, JSON, YAML)
    add_cluster(parser)


def run(session: Session, parsed: Namespace) -> int:
    from datetime import UTC, datetime

    from tfjob_controller.kubectl.output import is_for_programs, print_value, screen

    description = session.job(parsed.job).describe()
    if is_for_programs(parsed.output):
        return print_value(description, parsed.output)
    from tfjob_controller.kubectl.description import print_description

    print_description(screen(), description, datetime.now(UTC))
    return 0
