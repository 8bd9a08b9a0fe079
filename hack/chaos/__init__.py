"""Gangs that come and go while things break, with an auditor that watches: see `chaos.__main__`."""
