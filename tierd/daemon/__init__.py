"""Builds the parts of a running tierd, joins them, and ends them in order."""

from tierd.daemon.run import run

__all__ = ["run"]
