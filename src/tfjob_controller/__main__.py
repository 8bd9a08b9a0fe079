"""`python -m tfjob_controller`."""

from __future__ import annotations

import sys

from tfjob_controller.cli import main

if __name__ == "__main__":
    sys.exit(main())
