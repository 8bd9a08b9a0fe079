"""Makes `.venv` with exactly the locked packages. Standard library only, since it runs before anything is installed."""
