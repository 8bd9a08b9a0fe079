"""The output of the demo: steps and their details, commands and their output. Lines are never wrapped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text


@dataclass(frozen=True, slots=True)
class Check:
    """A sentence at the end of a demo, and whether it holds."""

    holds: bool
    text: str


@dataclass(frozen=True, slots=True)
class Screen:
    """Standard output, with colours on a terminal."""

    console: Console

    def step(self, text: str) -> None:
        self._line(("==> ", "bold cyan"), text)

    def detail(self, text: str) -> None:
        """Prints a detail of the current step."""
        self._line("    ", (text, "dim"))

    @contextmanager
    def command(self, text: str) -> Iterator[None]:
        """Prints a command; the block prints its output."""
        self._line(("$ ", "bold"), (text, "bold"))
        yield
        self.blank()

    def output(self, text: str) -> None:
        """Prints the output of a program unchanged."""
        self.console.out(text.rstrip("\n"), highlight=False)

    def check(self, check: Check) -> None:
        mark = ("✓ ", "green") if check.holds else ("✗ ", "bold red")
        self._line(mark, check.text)

    def checks(self, checks: Sequence[Check]) -> bool:
        """Prints all checks, and returns whether they hold."""
        for check in checks:
            self.check(check)
        return all(check.holds for check in checks)

    def title(self, text: str) -> None:
        self.blank()
        self.step(text)

    def error(self, text: str) -> None:
        self._line(("error: ", "bold red"), text)

    def blank(self) -> None:
        self.console.print()

    def _line(self, *parts: str | tuple[str, str]) -> None:
        self.console.print(Text.assemble(*parts), soft_wrap=True)
