"""Runs all attacks of a tenant on both programs at once, beside another tenant: see `attack.__main__`."""
