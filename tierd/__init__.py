"""tierd: the archive that outlives its broker."""

__version__ = "0.1.0"
