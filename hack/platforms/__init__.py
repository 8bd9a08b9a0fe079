"""Where the package can be installed: `python -m platforms` asks uv for wheels of each platform and Python."""
