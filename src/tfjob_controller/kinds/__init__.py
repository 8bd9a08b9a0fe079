"""The kinds of jobs: for each a folder with all in which it differs, and one line in `registry`.

A folder has the plan of a job (`plan`), its pods (`podtemplate`), its status on the wire (`status`), its informers
(`caches`) and its adapter (`kind`), as far as they differ. Start reading with `registry.py`, then
`kindcontroller.py`, which is what the program runs for each.
"""
