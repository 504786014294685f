"""The text of a lock file, whatever the name leads to."""

from pathlib import Path

from envdoctor.observe.documents.locks.lock import LockError
from envdoctor.text.documents import decoded, read_bounded
from envdoctor.text.files import because_of

__all__ = ["read_text"]

#: The largest lock that was seen has 3 MiB.
_LARGEST = 16 << 20


def read_text(path: str) -> str:
    """The text of a file, which may be UTF-16 with a mark, as PowerShell writes it. Raises :class:`LockError`."""
    try:
        data = read_bounded(Path(path), _LARGEST)
    except OSError as error:
        raise LockError(f"cannot be read: {because_of(error)}") from None
    if data is None:
        raise LockError(f"is larger than {_LARGEST >> 20} MiB, and no lock is")
    try:
        text = decoded(data)
    except UnicodeDecodeError:
        raise LockError("is not text in UTF-8") from None
    if "\0" in text:
        raise LockError("is not text but binary")
    return text
