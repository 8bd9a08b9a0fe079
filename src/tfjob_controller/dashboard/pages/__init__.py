"""The pages: each module reads what its page shows through `client`, and renders it with a template of the same name.

Pages that read the API server are plain functions, which Starlette runs in its pool of threads; streams are coroutines.
"""
