"""What ends a command of the plugin: one line, with the remedy."""

from __future__ import annotations

from tfjob_controller.client.errors import ClientError as CommandError
from tfjob_controller.client.errors import in_words

__all__ = ["CommandError", "in_words"]
