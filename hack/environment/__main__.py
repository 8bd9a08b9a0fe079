"""`python -m environment DIR PART`: an environment with the locked packages of a part (`local` or `dev`)."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from environment.build import PARTS, EnvironmentBuildError, make


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m environment", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("part", choices=PARTS)
    arguments = parser.parse_args()
    try:
        make(arguments.folder, arguments.part)
    except EnvironmentBuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
