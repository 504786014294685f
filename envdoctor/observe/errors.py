"""The one error of observations that a caller can handle."""

from envdoctor.system.message import MessageError


class ObservationError(MessageError):
    """What was named is not there, or nothing of it can be read. The message is a sentence for the user.

    ``usage`` is true when what the user wrote is wrong, and false when the job could not be done. ``text`` is what was
    read and holds no fact.
    """

    usage, text = True, ""
