"""The commands of the plugin; related commands share a module, which is imported when one of them is called.

Their flags are in `kubectl.readcommands` and `kubectl.changecommands`, so that `--help` does not load them. Start with
`diagnose.py`.
"""
