"""The commits of a repository to choose from, as lines or as JSON; :mod:`envdoctor.app.diff_revision` collects them."""

import json
from typing import Any

from envdoctor.report.page import display_width, pad, shortened
from envdoctor.report.report import cleaned
from envdoctor.system.message import Message, joined, sentence

_LONGEST_TITLE = 72
_WIDEST = 44


def render(listed: Any, lang: str = "en") -> str:
    """Return a line for each commit (id, day, kinds of files, title), and what to type next."""
    page = cleaned(listed)
    head = Message("{}, newest first", page.repo) if page.rows else Message("{}: no commits there", page.repo)
    if page.offline:
        head = Message("{} in the local cache; the day is that of the download", page.repo)
    columns = [(sentence(lang, _kinds(row, page.offline)), shortened(row.title, _LONGEST_TITLE)) for row in page.rows]
    columns = [pair[::-1] if page.offline else pair for pair in columns]
    width = min(max((display_width(first) for first, _ in columns), default=0), _WIDEST)
    lines = [sentence(lang, head)]
    for row, (first, second) in zip(page.rows, columns, strict=True):
        mark = "*" if row.cached and not page.offline else " "
        lines.append(f"{row.id[:7]}{mark} {row.day:10}  {pad(first, width)}  {second}".rstrip())
    command = f"envdoctor diff-revision {page.repo}"
    notes = [Message("Compare two of them: {}", f"{command} OLD NEW")] if page.rows else []
    if any(row.cached for row in page.rows) and not page.offline:
        notes.insert(0, Message("* in the local cache"))
    if page.following:
        notes.append(Message("Older ones: {}", f"{command}@{page.following[:10]} {page.until or ''} --list"))
    return "\n".join([*lines, "", *(" ".join(sentence(lang, note).split()) for note in notes)])


def render_json(listed: Any) -> str:
    """Return the commits as JSON, with the changed files by kind; an unknown value is null."""
    page = cleaned(listed)
    commits = []
    for row in page.rows:
        files = None if row.unread and not page.offline else dict(row.files)
        about = {"id": row.id, "day": row.day or None, "title": row.title, "cached": row.cached}
        commits.append({**about, "files": files})
    document = {"schema": "envdoctor.commits/1", "repo": page.repo, "commits": commits, "next": page.following}
    return json.dumps(document, indent=1)


def _kinds(row: Any, offline: bool) -> Message:
    """Return the kinds of the changed files; offline, the kinds of the cached files and the missing weights."""
    names = joined(row.files, ", ")
    if row.unread is not None and offline:
        return joined([names, row.unread])
    if row.unread is not None:
        return Message("not known: {}", row.unread)
    return Message("{} only", names) if list(row.files) == ["docs"] else names or Message("nothing")
