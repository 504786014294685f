"""Credentials in text from outside become ``***``, whatever stands around them."""

from __future__ import annotations

import re

#: Tokens that say by their prefix what they are: Hugging Face, GitHub, GitLab, OpenAI and its kin, Slack, PyPI, AWS,
#: JSON web tokens. No word needs to begin there (my_hf_…); only sk- does, which ends many an English word.
_TOKEN = re.compile(
    r"hf_[A-Za-z0-9]{16,}|gh[opsur]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{12,}|(?<![A-Za-z])sk-[\w-]{16,}"
    r"|xox[abprs]-[\w-]{10,}|pypi-[\w-]{24,}|AKIA[0-9A-Z]{12,}|eyJ[\w-]{12,}(?:\.[\w-]+)*"
)
_ASSIGNED = r"(?i)\b((?:token|passwd|password|secret|api[_-]?key|access[_-]?key)=)[^\s&'\"]{8,}"
_PARAMETER = r"([?&;#][^=?&#;\s]*=)[^&#;\s]+"
_PRIVATE = r"(?i)token|key|secret|passw|pwd|auth|sig|credential"
#: What follows /t/ in a URL's path: there the indexes that Anaconda serves carry the token, whatever it looks like.
_AFTER_T = r"(?<=/t/)[^/?#\s]+"
#: A long segment of letters and digits in a URL's path: other package indexes carry the token there.
_LONG_SEGMENT = r"(?<=/)(?=[^/\s]*\d)(?=[^/\s]*[A-Za-z])[A-Za-z0-9_-]{24,}(?=[/?#\s]|\Z)"


def without_credentials(text: str) -> str:
    """The text without users and passwords in URLs, values of parameters called token and the like, and tokens."""
    if "://" in text and "@" in text:
        text = re.sub(r"\S+", lambda word: _without_user(word[0], "://"), text)
    if "=" in text:
        text = re.sub(_PARAMETER, lambda given: f"{given[1]}***" if re.search(_PRIVATE, given[1]) else given[0], text)
        text = re.sub(_ASSIGNED, r"\1***", text)
    return _TOKEN.sub("***", text) if len(text) > 12 else text


def without_url_credentials(text: str) -> str:
    """The address of a package index or a Hub: also without what its path may carry, and with a user in front."""
    if "://" not in text:
        text = re.sub(r"\S+", lambda word: _without_user(word[0], ""), text)
    return re.sub(_LONG_SEGMENT, "***", re.sub(_AFTER_T, "***", without_credentials(text)))


def _without_user(word: str, scheme: str) -> str:
    """Everything up to the last @ goes: a password may itself hold /, : and @; too much is better than a rest."""
    front, scheme, rest = word.partition(scheme) if scheme else ("", "", word)
    return f"{front}{scheme}***@{rest.rpartition('@')[2]}" if "@" in rest else word
