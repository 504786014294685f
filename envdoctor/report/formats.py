"""The report formats by name: ``issue-comment`` is ``issue_comment_report.py``, so a new format is one new file."""

import os
from collections.abc import Callable
from importlib import import_module

_SUFFIX = "_report.py"
#: The one that is taken when nobody asks for another.
_USUAL = "terminal"


class UnknownFormatError(ValueError):
    """No such format; the message lists those there are."""


def names() -> tuple[str, ...]:
    """Return all formats in order; ``terminal`` is first."""
    try:
        files = os.listdir(os.path.dirname(__file__))
    except OSError:  # inside a zip file
        from importlib.resources import files as resources

        files = [entry.name for entry in resources("envdoctor.report").iterdir()]
    formats = {name[: -len(_SUFFIX)].replace("_", "-") for name in files if name.endswith(_SUFFIX)}
    return (_USUAL, *sorted(formats - {_USUAL}))


def load(name: str) -> Callable[..., str]:
    """Import a format's module and return its ``render``: of a report, and en or zh, the text of a file with a final
    newline. A format for programs may have one language; ``terminal`` is plain by itself: no colour, no wrapping.

    Raises :class:`UnknownFormatError`.
    """
    if name not in names():
        raise UnknownFormatError(f"no format {name!r}; there are {', '.join(names())}")
    render: Callable[..., str] = import_module(f"envdoctor.report.{name.replace('-', '_')}_report").render
    return render
