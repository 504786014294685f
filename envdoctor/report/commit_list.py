"""The commits of a repository to choose from, as lines or as JSON; :mod:`envdoctor.app.commit_list` collects them."""

import json
from collections.abc import Sequence
from typing import Any

from envdoctor.report.cleaned import cleaned
from envdoctor.report.page import display_width, pad, shortened
from envdoctor.text.language import sentence
from envdoctor.text.message import Message, joined

_LONGEST_TITLE = 72
_WIDEST = 44


def render(repo: str, rows: Sequence[Any], following: str | None, *, offline: bool, lang: str = "en") -> str:
    """Return a line for each commit (id, day, kinds of files, title), and what to type next."""
    repo, rows = cleaned(repo), cleaned(list(rows))
    head = Message("{}: {} commits, newest first", repo, len(rows))
    if offline:
        head = Message("{}: the local cache holds {} commits; the day is that of the download", repo, len(rows))
    lines = [sentence(lang, head)]
    columns = [(sentence(lang, _kinds(row, offline)), shortened(row.title, _LONGEST_TITLE)) for row in rows]
    columns = [two[::-1] if offline else two for two in columns]
    width = min(max((display_width(first) for first, _ in columns), default=0), _WIDEST)
    for row, (first, second) in zip(rows, columns, strict=True):
        mark = "*" if row.cached and not offline else " "
        lines.append(f"{row.id[:7]}{mark} {row.day:10}  {pad(first, width)}  {second}".rstrip())
    lines.append("")
    if any(row.cached for row in rows) and not offline:
        lines.append(sentence(lang, Message("* in the local cache")))
    lines.append(sentence(lang, Message("Compare two of them: {}", f"envdoctor diff-revision {repo} OLD NEW")))
    if following:
        lines.append(
            sentence(lang, Message("Older ones: {}", f"envdoctor diff-revision {repo}@{following[:10]} --list"))
        )
    return "\n".join(lines)


def render_json(repo: str, rows: Sequence[Any], following: str | None) -> str:
    """Return the same as JSON, with the changed files by kind; what is not known is null."""
    commits = [
        {
            "id": row.id,
            "day": row.day or None,
            "title": row.title,
            "cached": row.cached,
            "files": dict(row.files) or None,
        }
        for row in cleaned(list(rows))
    ]
    return json.dumps({"schema": "envdoctor.commits/1", "repo": repo, "commits": commits, "next": following}, indent=1)


def _kinds(row: Any, offline: bool) -> Message:
    """What kinds of files changed; offline: are there, and which weights are not."""
    names = joined(row.files, ", ")
    if row.unread is not None and offline:
        return joined([names, row.unread])
    if row.unread is not None:
        return Message("not known: {}", row.unread)
    return Message("{} only", names) if list(row.files) == ["docs"] else names or Message("nothing")
