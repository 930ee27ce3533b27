"""The command line."""

from sbtrpo.cli.app import main

__all__ = ["main"]
