"""Gang statuses: the phases and their transitions (lifecycle, pure), and the writer that patches them and emits events.

It imports nothing else of the gang scheduler. Start reading with lifecycle.py.
"""
