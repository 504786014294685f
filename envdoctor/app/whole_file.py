"""Writing a file whole or not at all, whatever happens on the way."""

import os
from pathlib import Path

from envdoctor.app.errors import JobError
from envdoctor.system.files import because_of


def write_whole(path: Path, text: str) -> None:
    """Replace a file (or make it), as UTF-8 with the line ends of ``text``; a link stays a link, and an existing file
    keeps its permissions. A pipe or a device (/dev/stdout) is written into. Raises :class:`JobError`."""
    import tempfile  # brings OpenSSL's hashes along: a run that writes no file does without

    try:
        if path.exists() and not path.is_file():
            # Without O_NONBLOCK the open of a pipe without a reader would wait; the writing may.
            descriptor = os.open(path, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))
            with os.fdopen(descriptor, "wb") as file:
                if hasattr(os, "set_blocking"):
                    os.set_blocking(descriptor, True)
                file.write(text.encode("utf-8"))
            return
        path = Path(os.path.realpath(path))
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(text.encode("utf-8"))
            mask = os.umask(0)  # it can only be read by setting it
            os.umask(mask)
            os.chmod(name, path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~mask)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise JobError("{}: cannot be written: {}", path, because_of(error)) from None
