"""What may come next, as far as no cluster has to be asked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tfjob_controller.kubectl.arguments import COMMANDS
from tfjob_controller.kubectl.complete import FILES, NO_FILES, complete, print_candidates


def words(line: str) -> list[str]:
    return line.split(" ")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", [each.name for each in COMMANDS]),
        ("su", ["submit", "suspend"]),
        ("--v", ["--version"]),
        ("list -o ", ["table", "wide", "json", "yaml", "name"]),
        ("-n team --context=x list -o w", ["wide"]),
        ("-n team su", ["submit", "suspend"]),
        ("list --output=j", ["json"]),
        ("list --kind t", ["tfjob", "trainjob"]),
        ("list --all", ["--all-namespaces"]),
        ("wait --for c", ["complete", "created", "changesreverted", "condition="]),
        ("completion ", ["bash", "zsh", "fish"]),
        ("submit x --dry-run ", ["client", "server", "none"]),
        ("submit ", []),
        ("nonsense ", []),
    ],
)
def test_commands_flags_and_their_values_are_completed(line: str, expected: list[str]) -> None:
    found, directive = complete(words(line))
    assert [each.partition("\t")[0] for each in found] == expected
    assert directive == NO_FILES


@pytest.mark.parametrize(
    "line", ["list --kubeconfig ", "list --kubeconfig=/e", "submit x -- ", "submit x -- python tr"]
)
def test_files_are_the_shells_business(line: str) -> None:
    assert complete(words(line)) == ((), FILES)


def test_every_flag_of_every_command_is_known_with_a_few_words() -> None:
    for command in COMMANDS:
        found, _ = complete([command.name, "--"])
        flags = dict(each.split("\t") for each in found)
        assert all(flags.values()), command
        assert "--namespace" in flags or command.name == "completion"


def test_errors_of_completion_print_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    for arguments in (["describe", "--kubeconfig", "/nowhere", ""], ["logs", "BAD", "--replica", ""], ["list", "-o"]):
        assert print_candidates(arguments) == 0
        shown = capfd.readouterr()
        assert shown.out.endswith(f":{NO_FILES}\n")
        assert shown.err == ""


def test_kubectls_name_for_it_is_a_program_of_its_own() -> None:
    code = "import sys; sys.argv = ['kubectl_complete-tfjob', 'resu']; "
    code += "from tfjob_controller.kubectl.complete import main; raise SystemExit(main())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout == "resume\tstart a suspended job again\n:4\n"


@pytest.mark.parametrize("name", ["$(touch x)", "a\nb", "a'b", "\x1b[2J", "a\\b"])
def test_a_context_name_that_a_shell_interprets_is_not_offered(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config"
    names = ["kind-one", "arn:aws:eks:eu-1:1:cluster/a", "me@here", name]
    config.write_text(json.dumps({"contexts": [{"name": each} for each in names]}))
    assert print_candidates(["list", "--kubeconfig", str(config), "--context", ""]) == 0
    assert capfd.readouterr().out.splitlines() == [*sorted(names[:3]), f":{NO_FILES}"]
