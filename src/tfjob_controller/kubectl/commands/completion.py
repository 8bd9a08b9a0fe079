"""`kubectl tfjob completion`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfjob_controller.kubectl.session import Session

EXAMPLES = """
source <(kubectl tfjob completion bash)
kubectl tfjob completion zsh > ~/.zsh/completions/_kubectl-tfjob
kubectl tfjob completion fish > ~/.config/fish/completions/kubectl-tfjob.fish
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="of your own")


def run(session: Session, parsed: Namespace) -> int:
    from tfjob_controller.kubectl.shells import SCRIPTS

    print(SCRIPTS[parsed.shell], end="")
    return 0
