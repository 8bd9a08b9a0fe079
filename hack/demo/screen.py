"""How the demo speaks: steps, what the steps say, commands and what they print. Lines are never folded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from demo.checks import Check

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Screen:
    """A terminal, or whatever standard output is: then without colours and without a live picture."""

    console: Console

    @property
    def is_live(self) -> bool:
        return self.console.is_terminal

    def step(self, text: str) -> None:
        self._line(("==> ", "bold cyan"), text)

    def detail(self, text: str) -> None:
        """Something of the present step."""
        self._line("    ", (text, "dim"))

    @contextmanager
    def command(self, text: str) -> Iterator[None]:
        """What stands in the block is what the command prints."""
        self._line(("$ ", "bold"), (text, "bold"))
        yield
        self.blank()

    def output(self, text: str) -> None:
        """Another program's words, as they are."""
        self.console.out(text.rstrip("\n"), highlight=False)

    def check(self, check: Check) -> None:
        mark = ("✓ ", "green") if check.holds else ("✗ ", "bold red")
        self._line(mark, check.text)

    def error(self, text: str) -> None:
        self._line(("error: ", "bold red"), text)

    def blank(self) -> None:
        self.console.print()

    def _line(self, *parts: str | tuple[str, str]) -> None:
        self.console.print(Text.assemble(*parts), soft_wrap=True)
