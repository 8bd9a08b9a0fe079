"""Bindings: the PreBind check, which verifies capacity just before a pod is bound, and the binder, which posts them.

It may import status, state and bindrequests. Start reading with binder.py.
"""
