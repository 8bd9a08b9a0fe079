"""Benchmarks: `python -m bench.<name>`. Figures as JSON lines on standard output, progress on standard error."""

import logging
import sys

import structlog

# The measured code must not print between the figures.
structlog.configure(
    logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
)
