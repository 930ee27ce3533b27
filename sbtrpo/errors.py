"""Errors that a user can mend; the command line shows only their message."""

from __future__ import annotations


class UserError(Exception):
    """An error whose message is one sentence that says what to do."""
