"""Programs go into the samples' ConfigMaps and nothing else of a sample changes."""

from pathlib import Path

import yaml

from generate.samples import with_programs

SAMPLE = """\
# A comment stays.
data:
  # so does this one
  a.py: |
    old
      text
---
kind: TFJob
"""


def test_the_program_replaces_what_stood_there(tmp_path: Path) -> None:
    program = 'def main():\n    print("x")\n\n\nmain()\n'
    (tmp_path / "a.py").write_text(program)
    text = with_programs(SAMPLE, tmp_path)
    config_map, job = yaml.safe_load_all(text)
    assert config_map["data"]["a.py"] == program
    assert job == {"kind": "TFJob"}
    assert "# A comment stays." in text
    assert "# so does this one" in text


def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    once = with_programs(SAMPLE, tmp_path)
    assert with_programs(once, tmp_path) == once
