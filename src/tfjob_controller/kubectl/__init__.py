"""The kubectl plugin `kubectl tfjob`: commands, their flags, and what they print.

It is based on `client`, and no other package imports it. A command loads only what it needs, so that it is fast;
test/unit/kubectl/test_cli.py lists what each one must not load. Start with `cli.py`, then `arguments.py`.
"""
