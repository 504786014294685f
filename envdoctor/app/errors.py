"""The two ways in which a command can fail before it has anything to report."""

from collections.abc import Iterator
from contextlib import contextmanager

from envdoctor.system.message import MessageError, said_by


class UsageProblem(MessageError):
    """Wrong use, wrong configuration or a wrong rule file: exit code 2. The message is one sentence for the user."""


class JobError(MessageError):
    """The job could not be done: exit code 3. The message is one sentence for the user."""


@contextmanager
def told_as(kind: type[MessageError] | None, *errors: type[MessageError]) -> Iterator[None]:
    """Raise these errors of the rooms below as a ``kind`` of the two; with None, the error's ``usage`` decides."""
    try:
        yield
    except errors as error:
        raise (kind or (UsageProblem if getattr(error, "usage", False) else JobError))(said_by(error)) from None
