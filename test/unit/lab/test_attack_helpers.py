"""attack.helpers: attackers attack no longer than the command that started them lives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from helpers.poll import eventually
from localcluster import process

# A file, since the helper imports the module of its parent.
COMMAND = """
import os, time
from lab.attack.helpers import Helpers

def attack(over, results):
    results.send(os.getpid())
    over.wait()

if __name__ == "__main__":
    helpers = Helpers()
    helpers.start("attacker", attack)
    print(helpers._started["attacker"][1].recv(), flush=True)
    time.sleep(60)
"""


def test_an_attacker_ends_with_the_command_even_if_that_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "command.py"
    program.write_text(COMMAND)
    with subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, text=True) as command:
        assert command.stdout is not None
        attacker = process.identify(int(command.stdout.readline()))
        assert attacker is not None
        command.kill()
    eventually(lambda: not process.is_alive(attacker))
