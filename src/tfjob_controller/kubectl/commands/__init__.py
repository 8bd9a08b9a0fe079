"""The commands of the plugin: related commands share a module, whose HANDLERS has their flags and what they do.

At its top a module imports the standard library and `kubectl.arguments` alone; `run` imports the rest. Start with
`diagnose.py`.
"""
