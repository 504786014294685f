"""The two ways in which a command can fail before it has anything to report."""

from __future__ import annotations


class UsageProblem(Exception):
    """Wrong use, wrong configuration or a wrong rule file: exit code 2. The message is one sentence for the user."""


class JobError(Exception):
    """The job could not be done: exit code 3. The message is one sentence for the user."""
