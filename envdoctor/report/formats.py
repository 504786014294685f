"""The report formats by name: ``issue-comment`` is ``issue_comment_report.py``, so a new format is one new file."""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from envdoctor.report.report import Report

_SUFFIX = "_report.py"
#: The one that is taken when nobody asks for another.
_USUAL = "terminal"


class Renderer(Protocol):
    """A format module's ``render``: one report to the text of a file, which ends with a newline.

    ``lang`` is en or zh; a format for programs may have one language only.
    """

    def __call__(self, report: "Report", lang: str = "en") -> str: ...


class UnknownFormatError(ValueError):
    """No such format; the message lists those there are."""


def names() -> tuple[str, ...]:
    """All formats in order; ``terminal`` is first."""
    try:
        files = os.listdir(os.path.dirname(__file__))
    except OSError:  # inside a zip file
        from importlib.resources import files as resources

        files = [entry.name for entry in resources("envdoctor.report").iterdir()]
    found = {name[: -len(_SUFFIX)].replace("_", "-") for name in files if name.endswith(_SUFFIX)}
    return (_USUAL, *sorted(found - {_USUAL}))


def load(name: str) -> Renderer:
    """The renderer of a format, imported now. ``terminal`` is plain by itself: no colour, no wrapping.

    Raises :class:`UnknownFormatError`.
    """
    if name not in names():
        raise UnknownFormatError(f"no format {name!r}; there are {', '.join(names())}")
    render: Renderer = import_module(f"envdoctor.report.{name.replace('-', '_')}_report").render
    return render
