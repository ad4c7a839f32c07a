"""Version of the package, in one place."""

__version__ = "0.5.0"
