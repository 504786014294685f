"""Why no prediction could be made."""

from __future__ import annotations

from envdoctor.text.message import MessageError


class MemoryProblem(MessageError):
    """No number can be given; the message is one sentence for the user: what is missing, or what is not followed."""
