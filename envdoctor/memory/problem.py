"""Why no prediction could be made."""

from __future__ import annotations


class MemoryProblem(Exception):
    """No number can be given; the message is one sentence for the user: what is missing, or what is not followed."""
