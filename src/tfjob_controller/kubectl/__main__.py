"""`python -m tfjob_controller.kubectl`."""

from __future__ import annotations

import sys

from tfjob_controller.kubectl.cli import main

if __name__ == "__main__":
    sys.exit(main())
