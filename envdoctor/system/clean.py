"""Clean strings from outside: no control, hidden or reordering characters and no credentials reach any output.

Credentials become ``***``, whatever stands around them.
"""

import re

from envdoctor.system.message import Message, mapped

#: Tokens with a telling prefix: Hugging Face, GitHub, GitLab, OpenAI and its kin, Slack, PyPI, AWS, JSON web tokens.
#: They may begin inside a word (my_hf_…), except sk-, which ends many an English word.
_TOKEN = re.compile(
    r"hf_[A-Za-z0-9]{16,}|gh[opsur]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{12,}|(?<![A-Za-z])sk-[\w-]{16,}"
    r"|xox[abprs]-[\w-]{10,}|pypi-[\w-]{24,}|AKIA[0-9A-Z]{12,}|eyJ[\w-]{12,}(?:\.[\w-]+)*"
)
_ASSIGNED = r"(?i)\b((?:token|passwd|password|secret|api[_-]?key|access[_-]?key)=)[^\s&'\"]{8,}"
_PARAMETER = r"([?&;#][^=?&#;\s]*=)[^&#;\s]+"
_PRIVATE = r"(?i)token|key|secret|passw|pwd|auth|sig|credential"
#: The text behind /t/ in a URL's path: there the indexes that Anaconda serves carry the token, whatever it looks like.
_AFTER_T = r"(?<=/t/)[^/?#\s]+"
#: A long segment of letters and digits in a URL's path: other package indexes carry the token there.
_LONG_SEGMENT = r"(?<=/)(?=[^/\s]*\d)(?=[^/\s]*[A-Za-z])[A-Za-z0-9_-]{24,}(?=[/?#\s]|\Z)"
#: Characters kept of one string in text meant for people.
LIMIT = 500
#: The text behind this many characters is cut: cleaning must not be the slow part of a run on hostile input.
_READ = 65_536

# Patterns are compiled when there is something to hide: most texts are plain.
#: ECMA-48 control sequences (colours, cursor moves), with the one-character CSI of C1 too. Other escape sequences lose
#: only their ESC, so that the text they would have hidden can be seen.
_CSI = "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"
_BREAKS = "[\t\n\x0b\x0c\r\x1c-\x1f\x85\u2028\u2029]+"

#: Characters that Unicode counts as letters, symbols or marks although nothing is drawn: Hangul fillers, the Braille
#: blank, the grapheme joiner, Khmer inherent vowels, Mongolian and general variation selectors.
_INVISIBLE = "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]+"
#: More marks than this on one letter are decoration that paints over neighbouring lines.
_MARKS = 3


def without_credentials(text: str) -> str:
    """Return the text without users and passwords in URLs, tokens, and values of parameters such as ``token``."""
    if "://" in text and "@" in text:
        text = re.sub(r"\S+", lambda word: _without_user(word[0], "://"), text)
    if "=" in text:
        text = re.sub(_PARAMETER, lambda match: f"{match[1]}***" if re.search(_PRIVATE, match[1]) else match[0], text)
        text = re.sub(_ASSIGNED, r"\1***", text)
    return _TOKEN.sub("***", text) if len(text) > 12 else text


def without_url_credentials(text: str) -> str:
    """Clean the address of a package index or a Hub: also of secrets in its path, and of a user without ``://``."""
    if "://" not in text:
        text = re.sub(r"\S+", lambda word: _without_user(word[0], ""), text)
    return re.sub(_LONG_SEGMENT, "***", re.sub(_AFTER_T, "***", without_credentials(text)))


def _without_user(word: str, scheme: str) -> str:
    """Remove everything up to the last @: a password may itself hold /, : and @; too much is better than a rest."""
    front, scheme, rest = word.partition(scheme) if scheme else ("", "", word)
    return f"{front}{scheme}***@{rest.rpartition('@')[2]}" if "@" in rest else word


def clean(text: str, limit: int | None = LIMIT) -> str:
    """Return one line: line breaks become blanks, hidden characters go, credentials become ``***``.

    ``limit`` caps the length in characters (the cut is marked with ``...``); None keeps up to 65,536. Broken and
    unassigned characters become ``?``, because a gap would let two names look alike.
    """
    if isinstance(text, Message):
        return mapped(text, lambda part: _edged(part, clean(part, limit)))
    cut = len(text) > _READ
    if cut:
        text = text[:_READ]
    if not (text.isascii() and text.isprintable()):
        text = _visible(re.sub(_BREAKS, " ", re.sub(_CSI, "", text)))
    text = without_credentials(text).strip(" ")
    if limit is not None and (len(text) > limit or cut):
        text = text[: limit - 3].rstrip(" ") + "..."
    return text


def _edged(part: str, text: str) -> str:
    """Return the text with the blanks that set it off in a sentence."""
    return " " * part.startswith(" ") + text + " " * part.endswith(" ") if text else text


def _visible(text: str) -> str:
    from unicodedata import category

    out: list[str] = []
    marks = 0
    for char in text if text.isascii() else re.sub(_INVISIBLE, "", text):
        if char.isascii():
            if char.isprintable():
                out.append(char)
                marks = 0
            continue
        kind = category(char)
        if kind in ("Cc", "Cf"):
            continue
        if kind in ("Mn", "Me"):
            marks += 1
            if marks > _MARKS:
                continue
        else:
            marks = 0
        if kind[0] == "Z":
            char = " "
        elif kind[0] == "C":
            char = "?"
        out.append(char)
    return "".join(out)
