"""How to write to a stream: colour, width, language, characters that it cannot show. And a page of text: its language,
how facts are called there (``pkg.torch`` is "torch"), and how its lines are wrapped: at blanks or between Chinese
characters, by display width, with hanging indents."""

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from envdoctor.facts.registry import Registry
from envdoctor.facts.values import NOT_GIVEN
from envdoctor.judge.finding import Finding
from envdoctor.system.message import say, sentence

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


#: Columns of the labels at the left margin.
LABEL = 13
_LONGEST_VALUE = 200
#: Characters that do not begin a line, and those that do not end one (the usual rules of Chinese typesetting).
_NOT_FIRST = "，。、；：？！）」』】》”’…％,.;:?!)]}"
#: A word of a shell command, with what it quotes.
_WORD = r"""(?:[^ '"\\]|\\.?|'[^']*'?|"(?:\\.|[^"\\])*"?)+"""
_NOT_LAST = "（「『【《“‘([{"


class Page(NamedTuple):
    """``lang`` is en or zh; ``width`` the columns to wrap at, None for pipes; ``verbosity`` as for the terminal.

    ``whole_commands``: they stay on one line, because the shells of Windows do not continue one with a backslash."""

    registry: Registry
    lang: str = "en"
    width: int | None = None
    verbosity: int = 0
    whole_commands: bool = False

    def say(self, template: str, n: int | None = None, /, **values: object) -> str:
        """Return a phrase of the interface; see :func:`envdoctor.system.message.say`."""
        return say(self.lang, template, n, **values)

    def sentence(self, text: str) -> str:
        """Return a finished English sentence in the page's language."""
        return sentence(self.lang, text)

    def separated(self, items: list[str]) -> str:
        """Return the texts with commas between: ``a, b, c``."""
        return self.say(", ").join(items)

    def some(self, items: Sequence[str], most: int) -> list[str]:
        """Return the first ``most`` texts, and how many more there are."""
        more = [self.say("{n} more", n=len(items) - most)] if len(items) > most else []
        return [*items[:most], *more]

    def bracket(self, text: str, more: str) -> str:
        """Return ``text (more)``, or the text that is not empty."""
        return self.say("{text} ({more})", text=text, more=more) if text and more else text or more

    def labelled(self, name: str, value: str) -> str:
        """Return ``name: value``, or the one that is not empty."""
        return self.say("{name}: {value}", name=name, value=value) if name and value else name or value

    def lines(self, text: str, first: str = "  ", rest: str = "    ") -> list[str]:
        """Return lines of at most the page's width; the first begins with ``first``, the others with ``rest``. Breaks
        only at blanks and beside wide characters, so that a URL, a path or a version stays whole even when it is too
        long."""
        if self.width is None or display_width(first) + display_width(text) <= self.width:
            return [first + text]
        return _fill(_atoms(text), self.width, first, rest)

    def items(
        self, items: Sequence[str], first: str = "  ", rest: str = "  ", separator: str | None = None
    ) -> list[str]:
        """Return items in one or more lines, broken between two items, and inside an item only if it is too long. A
        broken line ends with the separator, without its blanks."""
        separator = self.say(", ") if separator is None else separator
        if self.width is None or display_width(first) + display_width(separator.join(items)) <= self.width:
            return [first + separator.join(items)]
        room = self.width - display_width(rest)
        glue = separator.rstrip(" ")
        atoms: list[tuple[str, str]] = []
        for number, item in enumerate(items):
            text = item + glue if number < len(items) - 1 else item
            before = separator[len(glue) :] if number else ""
            (_, begin), *others = [("", text)] if display_width(text) <= room else _atoms(text)
            atoms += [(before, begin), *others]
        return _fill(atoms, self.width, first, rest)

    def command(self, command: str, first: str, rest: str) -> list[str]:
        """Return a shell command in lines that end with a backslash, broken between arguments and never inside quotes.

        An option stays with its value.
        """
        if self.width is None or self.whole_commands or display_width(first) + display_width(command) <= self.width:
            return [first + command]
        arguments = _with_values(re.findall(_WORD, command), lambda word: word.startswith("-"))
        return _fill([(" ", words) for words in arguments], self.width, first, rest + "  ", " \\")

    def message(self, finding: Finding) -> str:
        """Return the finding's message, with its targets if they are several. Sentences that the rule took from facts
        are in the page's language too."""
        text = finding.message.in_language(self.lang)
        for fact in finding.facts if self.lang != "en" else ():
            if " " in fact.value:
                text = text.replace(fact.value, self.sentence(fact.value))
        only = self.say("only for {targets}", targets="; ".join(finding.targets)) if finding.targets else ""
        return self.bracket(text, only)

    # --- facts ---------------------------------------------------------------------------------------------------

    def name(self, key: str) -> str:
        """Return the name of a fact: its label, or for a package and a variable its own name."""
        spec = self.registry.find(key)
        if spec is None or spec.key.endswith(".*"):
            return shortened(key.partition(".")[2] if spec is not None else key, 100)
        return spec.label.get(self.lang) or spec.label.get("en") or key

    def value(self, key: str, value: str) -> str:
        """Return a value as spelled by :func:`envdoctor.facts.values.spell`, by its name if the registry has one."""
        spec = self.registry.find(key)
        if spec is not None and spec.values:
            pairs = ((part, spec.values.get(part, {})) for part in value.split(", "))
            texts = (
                names.get(self.lang) or names.get("en") or shortened(part, _LONGEST_VALUE) for part, names in pairs
            )
            return ", ".join(texts)
        if spec is not None and spec.type == "boolean" and value in ("true", "false"):
            return self.say("yes" if value == "true" else "no")
        value = self.sentence(value) if " " in value else value
        if not key.endswith("_gib"):
            return shortened(value, _LONGEST_VALUE)
        try:
            mib = float(value) * 1024
        except ValueError:
            mib = 0.0
        return f"{mib:.0f} MiB" if 0 < mib < 1024 else f"{value} GiB"

    def fact(self, key: str, value: str) -> str:
        """Spell the fact: "torch 2.5.0", "flash-attn not installed", "GPU memory 79.1 GiB", "remote code: no"."""
        name, spec = self.name(key), self.registry.find(key)
        if value == "absent":
            absent = spec.absent.get(self.lang) if spec is not None else None
            return self.say("{name} {absent}", name=name, absent=absent) if absent else self.say("no {name}", name=name)
        if value == "unknown":
            return self.say("{name} not known", name=name)
        if key.startswith("env."):
            return f"{name}={shortened(value, _LONGEST_VALUE)}"
        if spec is not None and spec.type == "records":
            number = value.partition(" ")[0]
            return f"{number} {name}" if number.isdigit() else shortened(value, _LONGEST_VALUE)
        text = self.value(key, value)
        if (spec is not None and spec.type == "boolean") or not text.isascii():
            return self.labelled(name, text)
        return self.say("{name} {value}", name=name, value=text)

    def not_known(self, name: str, reason: str = "") -> str:
        """Return ``GPU not known (NVML gave up)``; a fact that was not given needs no reason."""
        if reason in ("", NOT_GIVEN.reason):
            return self.say("{name} not known", name=name)
        return self.say("{name} not known ({reason})", name=name, reason=self.sentence(reason))


# --- layout by display width ------------------------------------------------------------------------------------------


def display_width(text: str) -> int:
    """Return the columns that the text takes in a terminal: 2 for wide East Asian characters, 0 for combining marks."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    return sum(2 if east_asian_width(char) in "WF" else category(char) not in ("Mn", "Me") for char in text)


def pad(text: str, width: int) -> str:
    """Return the text with blanks up to ``width`` columns."""
    return text + " " * (width - display_width(text))


def shortened(text: str, longest: int) -> str:
    """Return the text, cut to ``longest`` characters, the cut marked with ``...``."""
    return text if len(text) <= longest else text[: longest - 3].rstrip(" ") + "..."


def _fill(atoms: list[tuple[str, str]], width: int, first: str, rest: str, broken: str = "") -> list[str]:
    """Return lines of atoms, each with the gap before it within a line; ``broken`` ends every line but the last."""
    lines: list[str] = []
    line, used, empty = first, display_width(first), True
    for gap, atom in atoms:
        size = display_width(atom)
        if not empty and used + len(gap) + size + len(broken) > width:
            lines.append(line + broken if broken else line.rstrip(" "))
            line, used, empty = rest, display_width(rest), True
        gap = "" if empty else gap
        line, used, empty = line + gap + atom, used + len(gap) + size, False
    return [*lines, line]


def _atoms(text: str) -> list[tuple[str, str]]:
    """Split the text into pieces that stay whole, each with the blank before it: words, an option with its value."""
    parts = filter(None, text.split(" "))
    words = _with_values(parts, lambda word: word.startswith("--") and word[-1].isalnum())
    if text.isascii():
        return [(" ", word) for word in words]
    from unicodedata import east_asian_width

    atoms: list[tuple[str, str]] = []
    for word in words:
        gap, start, before_wide = " ", 0, False
        for place, char in enumerate(word):
            wide = east_asian_width(char) in "WF"
            breakable = (wide or before_wide) and char not in _NOT_FIRST and word[place - 1] not in _NOT_LAST
            if place and breakable:
                atoms.append((gap, word[start:place]))
                gap, start = "", place
            before_wide = wide
        if word[start:]:
            atoms.append((gap, word[start:]))
    return atoms


def _with_values(words: Iterable[str], is_option: Callable[[str], bool]) -> list[str]:
    groups: list[str] = []
    for word in words:
        last = groups[-1] if groups else ""
        if is_option(last) and " " not in last and "=" not in last and not word.startswith("-"):
            groups[-1] = f"{last} {word}"
        else:
            groups.append(word)
    return groups
