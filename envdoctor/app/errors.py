"""The two ways in which a command can fail before it has anything to report."""

from envdoctor.text.message import MessageError


class UsageProblem(MessageError):
    """Wrong use, wrong configuration or a wrong rule file: exit code 2. The message is one sentence for the user."""


class JobError(MessageError):
    """The job could not be done: exit code 3. The message is one sentence for the user."""
