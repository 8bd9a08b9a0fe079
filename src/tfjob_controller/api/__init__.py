"""The kinds of this project as data, and the other objects that it reads: types, defaults, validation, decoding.

Each job kind has a folder; `common/` holds what kinds share. Everything here is pure: what is done about an object is
decided in `jobs` and `scheduling`. May import `kube` (object metadata, decoding) and `util`.
Start with `tfjob/types.py`, then `tfjob/validation.py`.
"""
