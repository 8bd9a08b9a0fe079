"""State that all parts share: informers, the cluster view, and what pods request beyond their Gangs' specs.

It imports nothing of the gang scheduler but bindrequests. Start reading with shared.py.
"""
