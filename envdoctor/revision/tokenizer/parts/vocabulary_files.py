"""Vocabularies that lie in files of their own: tokenizer.model, vocab.json, vocab.txt, merges.txt and the like."""

from __future__ import annotations

import hashlib
import posixpath

from envdoctor.hub.snapshot import Unread
from envdoctor.revision.comparer import Change, Revisions
from envdoctor.revision.json_files import parse_json
from envdoctor.revision.tokenizer.parts.tokenizer_json import compare_merges, compare_vocabularies

_LIMIT = 64 << 20


def compare_vocabulary_file(revisions: Revisions, path: str) -> list[Change] | Unread:
    """The change of one such file. Text formats are read; the others are told apart by object id and size alone."""
    found = revisions.state(path)
    name = posixpath.basename(path)
    if found in ("added", "removed"):
        return [Change("tokenizer", f"tokenizer-file-{found}", path, name, *revisions.sizes(path))]
    readable = name in ("vocab.json", "vocab.txt", "merges.txt")
    before = after = b""
    if found != "changed" or readable:
        pair = revisions.read(path, _LIMIT)
        if isinstance(pair, Unread):
            return pair
        before, after = pair[0] or b"", pair[1] or b""
        if before == after:
            return []
    if not readable:
        was, now = revisions.sizes(path)
        now = f"{now} with other content" if was == now else now
        return [Change("tokenizer", "vocabulary-changed", path, name, was, now)]
    return _merges(path, before, after) if name == "merges.txt" else _vocabulary(path, name, before, after)


def _merges(path: str, before: bytes, after: bytes) -> list[Change]:
    sides = []
    for content in (before, after):
        lines = [line.rstrip(b"\r") for line in content.split(b"\n")]
        lines = [line for number, line in enumerate(lines) if line and not (number == 0 and line.startswith(b"#"))]
        sides.append((len(lines), hashlib.sha256(b"\n".join(lines)).hexdigest()))
    return list(compare_merges(path, "merges.txt", sides[0], sides[1]))


def _vocabulary(path: str, name: str, before: bytes, after: bytes) -> list[Change] | Unread:
    sides = []
    for content in (before, after):
        if name == "vocab.txt":
            lines = content.decode("utf-8", "replace").split("\n")
            sides.append({token.rstrip("\r"): number for number, token in enumerate(lines) if token})
            continue
        found = parse_json(content, path)
        if isinstance(found, Unread):
            return found
        sides.append(found.data)
    return list(compare_vocabularies(path, name, sides[0], sides[1]))
