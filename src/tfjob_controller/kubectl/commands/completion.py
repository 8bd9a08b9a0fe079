"""`kubectl tfjob completion`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from tfjob_controller.kubectl.arguments import CommandHandler

if TYPE_CHECKING:
    from tfjob_controller.kubectl.session import Session

_COMPLETION_EXAMPLES = """
source <(kubectl tfjob completion bash)
kubectl tfjob completion zsh > ~/.zsh/completions/_kubectl-tfjob
kubectl tfjob completion fish > ~/.config/fish/completions/kubectl-tfjob.fish
"""


def _add_completion_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="of your own")


def _run_completion(session: Session, parsed: Namespace) -> int:

    print(SCRIPTS[parsed.shell], end="")
    return 0


# Works without the package bash-completion, and with the bash 3.2 of macOS.
BASH = r"""# Completes kubectl-tfjob in bash. For `kubectl tfjob` load kubectl's own completion.
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

ZSH = r"""#compdef kubectl-tfjob
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

FISH = r"""# Completes kubectl-tfjob in fish. For `kubectl tfjob` load kubectl's own completion.
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

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


HANDLERS = {
    "completion": CommandHandler(_COMPLETION_EXAMPLES, _add_completion_arguments, _run_completion),
}
