"""`kubectl tfjob completion`: the scripts of shells, and candidates for the next word of a command line.

kubectl calls `kubectl_complete-tfjob` with the words so far, the last of which is to be completed. The output has one
candidate per line, with its description after a tab, and a last line with directives for the shell. Errors print
nothing, because they would disturb the prompt.
Source: kubectl pkg/cmd/plugin/plugin_completion.go, cobra completions.go (ShellCompDirective).
"""

from __future__ import annotations

import argparse
import re
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfjob_controller.kubectl.arguments import COMMANDS, command_of, flags_of
from tfjob_controller.kubectl.argumenttypes import CONDITION_WORDS, job_argument
from tfjob_controller.kubectl.connectionflags import command_first, with_values
from tfjob_controller.kubectl.session import Session
from tfjob_controller.util.terminal import print_text

if TYPE_CHECKING:
    from tfjob_controller.kube.meta import Resource

# Directives for the shell, which can be added: add no space, complete no file names.
FILES, NO_SPACE, NO_FILES = 0, 2, 4

Candidates = Iterable[str]

_PLAIN = re.compile(r"[\w@%+=:,./-]+")


@dataclass(frozen=True, slots=True)
class Line:
    """The parsed words before the one to complete: `values` of flags by destination, and positional arguments."""

    values: dict[str, str]
    positional: Sequence[str]
    word: str


def main() -> int:
    """The program `kubectl_complete-tfjob`."""
    return print_candidates(sys.argv[1:])


def print_script(session: Session, parsed: Namespace) -> int:
    print_text(_SCRIPTS[parsed.shell])
    return 0


def print_candidates(words: Sequence[str]) -> int:
    try:
        candidates, directive = complete(words or [""])
        lines = [*filter(_is_plain, dict.fromkeys(candidates)), f":{directive}"]
    except (Exception, SystemExit):  # after any error the next word is typed by hand
        lines = [f":{NO_FILES}"]
    print_text("\n".join(lines))
    return 0


def _is_plain(candidate: str) -> bool:
    """Whether no shell or terminal interprets a candidate; it may come from an untrusted kubeconfig or server."""
    name, _, description = candidate.partition("\t")
    return _PLAIN.fullmatch(name) is not None and description.isprintable()


def complete(words: Sequence[str]) -> tuple[Candidates, int]:
    """Candidates for the last word, and the directive."""
    # The word before the last may be a flag whose optional value is completed.
    given, word = command_first([*with_values(words[:-2]), *words[-2:-1]]), words[-1]
    called = next((index for index, argument in enumerate(given) if not argument.startswith("-")), None)
    if called is None:
        return _beginning(_commands(word), word), NO_FILES
    command = command_of(given[called])
    if command is None:
        return (), NO_FILES
    if "--" in given:
        return (), FILES
    return _after(command.name, flags_of(command), given[called + 1 :], word)


def _commands(word: str) -> Candidates:
    if word.startswith("-"):
        return ("--help", "--version")
    return [f"{command.name}\t{command.summary}" for command in COMMANDS]


def _after(name: str, parser: argparse.ArgumentParser, given: Sequence[str], word: str) -> tuple[Candidates, int]:
    # argparse has no public way to ask for these; argcomplete reads them too.
    by_flag = parser._option_string_actions
    line, open_flag = _parsed(by_flag, given, word)
    if open_flag is None and word.startswith("--") and "=" in word:
        flag, _, rest = word.partition("=")
        open_flag = by_flag.get(flag)
        line = Line(line.values, line.positional, rest)
    if open_flag is not None:
        return _of_action(open_flag, line)
    if word.startswith("-"):
        return _beginning(_flags(by_flag), word), NO_FILES
    awaited = _awaited(parser, len(line.positional))
    return _of_action(awaited, line) if awaited is not None else ((), NO_FILES)


def _parsed(
    by_flag: dict[str, argparse.Action], given: Sequence[str], word: str
) -> tuple[Line, argparse.Action | None]:
    """The line, and the flag whose value is to be completed."""
    values: dict[str, str] = {}
    positional: list[str] = []
    waiting: argparse.Action | None = None
    for argument in given:
        if waiting is not None:
            values[waiting.dest] = argument
            waiting = None
        elif argument.startswith("-"):
            flag, equals, value = argument.partition("=")
            action = by_flag.get(flag)
            if action is not None and (equals or action.nargs == 0):
                values[action.dest] = value
            elif action is not None and action.nargs != 0:
                waiting = action
        else:
            positional.append(argument)
    return Line(values, positional, word), waiting


def _flags(by_flag: dict[str, argparse.Action]) -> Candidates:
    return [f"{flag}\t{action.help}" for flag, action in by_flag.items() if flag.startswith("--")]


def _awaited(parser: argparse.ArgumentParser, taken: int) -> argparse.Action | None:
    """The positional argument that comes next."""
    positional = parser._get_positional_actions()
    if taken < len(positional):
        return positional[taken]
    return positional[-1] if positional and positional[-1].nargs in ("+", "*") else None


def _of_action(action: argparse.Action, line: Line) -> tuple[Candidates, int]:
    """Candidates for the value of a flag or argument."""
    if action.dest in ("kubeconfig", "certificate_authority"):
        return (), FILES
    if action.choices is not None:
        return _beginning(map(str, action.choices), line.word), NO_FILES
    if action.dest == "until":
        return _beginning([*CONDITION_WORDS, "condition="], line.word), NO_FILES
    sources: dict[str, Callable[[Line], Candidates]] = {
        "job": jobs,
        "jobs": jobs,
        "names": jobs,
        "namespace": namespaces,
        "context": lambda line: configured(line, "contexts"),
        "cluster": lambda line: configured(line, "clusters"),
        "user": lambda line: configured(line, "users"),
        "replica": replicas,
        "framework": frameworks,
        "runtime": runtimes,
    }
    source = sources.get(action.dest)
    return (_beginning(source(line), line.word) if source is not None else ()), NO_FILES


def _beginning(candidates: Candidates, word: str) -> list[str]:
    return [candidate for candidate in candidates if candidate.startswith(word)]


_METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
_PATIENCE_SECONDS = 3.0
# Limit for the names of one list.
_MAX_NAMES = 500


def jobs(line: Line) -> Iterable[str]:
    """Names of jobs, with their kind if two jobs have the name or the word begins with a kind."""
    with _session(line) as session:
        kinds = session.client.kinds()
        by_kind = {kind.word: set(_names(session, kind.resource, session.namespace)) for kind in kinds}
    with_kind = "/" in line.word
    counts = Counter(name for names in by_kind.values() for name in names)
    candidates = [
        f"{word}/{name}" if with_kind or counts[name] > 1 else name
        for word, names in by_kind.items()
        for name in sorted(names)
    ]
    return [candidate for candidate in candidates if candidate not in line.positional]


def replicas(line: Line) -> Iterable[str]:
    """The replicas that have a pod, their types, and `all`."""
    from tfjob_controller.api.common.core import PODS
    from tfjob_controller.api.gang import index_of, kind_of
    from tfjob_controller.jobs.naming import replica_id_of

    if not line.positional:
        return ()
    wanted = job_argument(line.positional[0])
    pairs: set[tuple[str, int]] = set()
    with _session(line) as session:
        for kind in session.client.kinds(wanted.kind or None):
            selector = kind.pod_selector(wanted.name)
            for meta in _metadata(session, PODS, session.namespace, selector):
                replica = replica_id_of(meta.get("labels") or {})
                if (index := index_of(replica)) is not None:
                    pairs.add((kind_of(replica), index))
    types = sorted({role for role, _ in pairs})
    return ["all", *types, *(f"{role}-{index}" for role, index in sorted(pairs))]


def namespaces(line: Line) -> Iterable[str]:
    from tfjob_controller.api.common.cluster import NAMESPACES

    with _session(line) as session:
        return sorted(_names(session, NAMESPACES))


def runtimes(line: Line) -> Iterable[str]:
    from tfjob_controller.api.trainjob.runtime import CLUSTER_TRAINING_RUNTIMES

    with _session(line) as session:
        return sorted(_names(session, CLUSTER_TRAINING_RUNTIMES))


def frameworks(line: Line) -> Iterable[str]:
    from tfjob_controller.api.trainjob.types import FRAMEWORKS

    return FRAMEWORKS


def configured(line: Line, plural: str) -> Iterable[str]:
    """The contexts, clusters or users of the kubeconfig's files; no request is sent."""
    import os
    from pathlib import Path

    from tfjob_controller.kube.config.plainconfig import load_yaml

    paths = line.values.get("kubeconfig") or os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    files = [Path(path) for path in paths.split(os.pathsep) if path and Path(path).is_file()]
    configs = [load_yaml(file.read_bytes()) or {} for file in files]
    return sorted({str(entry["name"]) for config in configs for entry in config.get(plural) or ()})


@contextmanager
def _session(line: Line) -> Iterator[Session]:
    session = Session(_parsed_flags(line), logs=True)
    try:
        yield session
    finally:
        session.close()


def _parsed_flags(line: Line) -> Namespace:
    """The flags that choose a cluster and an identity; a group can be named once."""
    parsed = Namespace(**{"namespace": "", "kubeconfig": "", "context": "", **line.values})
    if "as_group" in line.values:
        parsed.as_group = [line.values["as_group"]]
    parsed.insecure_skip_tls_verify = "insecure_skip_tls_verify" in line.values
    parsed.request_timeout = parsed.verbosity = 0
    return parsed


def _names(session: Session, resource: Resource[Any], namespace: str = "") -> Iterable[str]:
    """Empty for a kind that the cluster does not have, or that the user may not list."""
    from tfjob_controller.kube.errors import ApiError

    try:
        return [str(meta["name"]) for meta in _metadata(session, resource, namespace)]
    except ApiError as error:
        if error.is_not_found or error.is_forbidden:
            return []
        raise


def _metadata(
    session: Session, resource: Resource[Any], namespace: str, label_selector: str = ""
) -> Iterable[Mapping[str, Any]]:
    import msgspec

    query = {"limit": str(_MAX_NAMES)} | ({"labelSelector": label_selector} if label_selector else {})
    body = session.requester.request(
        "GET",
        resource.path(namespace),
        query=query,
        accept=_METADATA,
        timeout_seconds=_PATIENCE_SECONDS,
        retry=False,
    )
    return [item["metadata"] for item in msgspec.json.decode(body).get("items") or ()]


# Works without the package bash-completion, and with the bash 3.2 of macOS.
_BASH = r"""# Completes kubectl-tfjob in bash. For `kubectl tfjob` load kubectl's own completion.
_kubectl_tfjob() {
  local words=() word line cur directive=0 i last=-1
  # Bash takes --flag=value apart.
  for ((i = 1; i <= COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if ((last >= 0)) && { [[ $word == "=" && ${words[last]} == --* ]] || [[ ${words[last]} == --*= ]]; }; then
      words[last]+=$word
    else
      last=$((last + 1))
      words[last]=$word
    fi
  done
  cur=${COMP_WORDS[COMP_CWORD]}
  [[ $cur == "=" ]] && cur=
  COMPREPLY=()
  while IFS= read -r line; do
    if [[ $line == :* ]]; then
      directive=${line#:}
    elif [[ ${line%%$'\t'*} == "$cur"* ]]; then
      COMPREPLY+=("${line%%$'\t'*}")
    fi
  done < <(kubectl-tfjob __complete "${words[@]}" 2>/dev/null)
  ((directive & 2)) && compopt -o nospace 2>/dev/null
  if ((!(directive & 4) && ${#COMPREPLY[@]} == 0)); then
    while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -f -- "$cur")
  fi
}
complete -F _kubectl_tfjob kubectl-tfjob
"""

_ZSH = r"""#compdef kubectl-tfjob
# Completes kubectl-tfjob in zsh. For `kubectl tfjob` load kubectl's own completion.
_kubectl_tfjob() {
  local line value directive=0
  local -a candidates
  for line in "${(@f)$(kubectl-tfjob __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
    if [[ $line == :* ]]; then
      directive=${line#:}
    elif [[ -n $line ]]; then
      value=${line%%$'\t'*}
      if [[ $line == *$'\t'* ]]; then
        candidates+=("${value//:/\\:}:${line#*$'\t'}")
      else
        candidates+=("${value//:/\\:}")
      fi
    fi
  done
  compset -P '--*='
  (($#candidates)) && _describe -V 'kubectl tfjob' candidates && return
  ((directive & 4)) || _files
}
# Sourced, or found in $fpath and called.
if [[ ${funcstack[1]} == _kubectl-tfjob ]]; then
  _kubectl_tfjob "$@"
else
  compdef _kubectl_tfjob kubectl-tfjob
fi
"""

_FISH = r"""# Completes kubectl-tfjob in fish. For `kubectl tfjob` load kubectl's own completion.
function __kubectl_tfjob_complete
    set -l words (commandline -opc) (commandline -ct)
    # Fish completes --flag=value as one word.
    set -l flag (string match -r -- '^--[^=]+=' (commandline -ct))
    set -l files yes
    for line in (kubectl-tfjob __complete $words[2..-1] 2>/dev/null)
        if string match -q ':*' -- $line
            test $line = ':0'; or set files no
        else
            echo "$flag$line"
        end
    end
    test $files = yes; and __fish_complete_path (commandline -ct)
end
complete -c kubectl-tfjob -f -a '(__kubectl_tfjob_complete)'
"""

_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
