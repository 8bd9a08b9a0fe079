"""One module for each command: its flags, and what it does. See `kubectl.registry`."""
