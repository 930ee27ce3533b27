"""What a user can mend: the command line shows these errors as one sentence."""

from __future__ import annotations


class UserError(Exception):
    """Its message says what to do."""
