"""Decide how to write to this stream: colour, width, language, and characters that it cannot show."""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

#: Columns of text on a terminal; a narrower terminal or COLUMNS narrows it.
WIDTH = 80
_NARROWEST = 40
_STYLES = {"error": "31", "warning": "33", "note": "32", "bold": "1", "-": "31", "+": "32", "@": "36"}


def decide(option: str, environ: Mapping[str, str], isatty: bool, *, notebook: bool = False) -> bool:
    """Return whether to colour. ``option`` is auto, always or never. With auto: NO_COLOR (https://no-color.org) beats
    FORCE_COLOR and CLICOLOR_FORCE, these beat CLICOLOR=0 and a dumb terminal, then the terminal itself counts. Inside a
    notebook kernel nothing is coloured unless forced."""
    if option != "auto" or environ.get("NO_COLOR"):
        return option == "always"
    if any(environ.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return isatty and not notebook and environ.get("CLICOLOR") != "0" and environ.get("TERM") != "dumb"


def choose_width(
    environ: Mapping[str, str], isatty: bool, *, notebook: bool = False, descriptor: int = 1
) -> int | None:
    """Return the columns to wrap at, or None for a pipe or file, whose lines are left whole. COLUMNS when it is set;
    else 80, or less on a narrower terminal; 80 inside a notebook."""
    columns = environ.get("COLUMNS", "")
    if columns.isascii() and columns.isdigit() and int(columns[:6]) > 0:
        return max(int(columns[:6]), _NARROWEST)
    if notebook:
        return WIDTH
    if not isatty:
        return None
    try:
        terminal = os.get_terminal_size(descriptor).columns
    except (OSError, ValueError):
        terminal = 0
    return max(min(terminal, WIDTH), _NARROWEST) if terminal else WIDTH


def choose_lang(option: str, environ: Mapping[str, str], encoding: str | None = None) -> str:
    """Return ``en`` or ``zh``. ``auto`` follows LC_ALL, LC_MESSAGES and LANG, and LANGUAGE as gettext does. Auto stays
    with English when ``encoding`` (of the output) cannot show Chinese."""
    if option != "auto":
        return "zh" if option.startswith("zh") else "en"
    locale = environ.get("LC_ALL") or environ.get("LC_MESSAGES") or environ.get("LANG") or ""
    if locale.partition(".")[0] not in ("", "C", "POSIX"):
        locale = (environ.get("LANGUAGE") or "").partition(":")[0] or locale
    if not locale.lower().startswith("zh"):
        return "en"
    try:
        "中文".encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return "en"
    return "zh"


def harden_stdout(*streams: Any) -> None:
    """Let characters that a stream's encoding lacks (GBK consoles, ASCII pipes) come out as ``\\uXXXX``. Without
    arguments for standard output and error. Streams that cannot be reconfigured (a notebook's) are left alone."""
    for stream in streams or (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")


def paint(text: str, style: str, color: bool) -> str:
    """Return the text in the style of a level (error, warning, note), of a line of a diff by its sign, or bold."""
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if color else text
