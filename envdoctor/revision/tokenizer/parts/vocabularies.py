"""Vocabularies and merges: in tokenizer.json, with the steps around them, and in files of their own."""

import hashlib
import json
import posixpath
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from envdoctor.hub.snapshot import Snapshot, Unread
from envdoctor.revision.comparer import Change, Revisions, parse_json, read_json
from envdoctor.revision.short_text import LONGEST, around, short
from envdoctor.text.message import Message

#: The largest tokenizer.json of the Hub's well-known models has about 34 MB (gemma-3).
_LIMIT = 64 << 20
_STEPS = {
    **dict.fromkeys(("normalizer", "pre_tokenizer"), "pre-tokenizer-changed"),
    **{"post_processor": "post-processor-changed", "decoder": "decoder-changed"},
    **{"truncation": "truncation-changed", "padding": "padding-changed"},
}


class Merges(NamedTuple):
    """How many there are, and a digest that stands for them. ``pairs`` says whether each is a list of two tokens
    (tokenizers >= 0.20) or one text (before)."""

    number: int
    digest: str
    pairs: bool | None = None


class TokenizerFile(NamedTuple):
    """What is compared of one tokenizer.json.

    ``added`` are the entries of added_tokens; ``steps`` the parts around the model; ``options`` the model without its
    vocabulary and merges; ``vocabulary`` maps tokens to ids; ``scores`` is a digest of those of a unigram model (whose
    ids are positions).
    """

    added: list[Mapping[str, Any]]
    steps: Mapping[str, Any]
    options: Mapping[str, Any]
    vocabulary: Mapping[str, Any]
    scores: str | None
    merges: Merges


def read_tokenizer_file(snapshot: Snapshot, path: str) -> TokenizerFile | Unread | None:
    """The file in a snapshot; None without one, unread when it is too large, hostile, or not of the expected shape."""
    found = read_json(snapshot, path, _LIMIT)
    if found is None or isinstance(found, Unread):
        return found
    data = found.data
    model, added = data.get("model"), _or_empty(data.get("added_tokens"))
    if not isinstance(model, dict):
        return Unread(path, Message("its model is not a table"))
    if not isinstance(added, list) or not all(isinstance(entry, dict) for entry in added):
        return Unread(path, Message("its added_tokens are not a list of tables"))
    vocabulary, scores = _vocabulary(model.get("vocab"))
    given = _or_empty(model.get("merges"))
    if vocabulary is None or not isinstance(given, list):
        return Unread(path, Message("its vocabulary or its merges are not in a form that is known"))
    merges = _merges(given)
    if merges is None:
        return Unread(path, Message("its merges are neither texts nor pairs of tokens"))
    options = {key: value for key, value in model.items() if key not in ("vocab", "merges")}
    return TokenizerFile(added, {key: data.get(key) for key in _STEPS}, options, vocabulary, scores, merges)


def _or_empty(value: Any) -> Any:
    return [] if value is None else value


def _vocabulary(vocab: object) -> tuple[dict[str, Any] | None, str | None]:
    """Token -> id, and the digest of the scores."""
    if vocab is None or isinstance(vocab, dict):
        return vocab or {}, None
    tokens: dict[str, Any] = {}
    scores = hashlib.sha256()
    for number, entry in enumerate(vocab if isinstance(vocab, list) else [None]):
        match entry:
            case [str(token), score]:
                tokens.setdefault(token, number)
                scores.update(repr(score).encode())
            case _:
                return None, None
    return tokens, scores.hexdigest()


def _merges(merges: list[Any]) -> Merges | None:
    digest = hashlib.sha256()
    pairs: bool | None = None
    for merge in merges:
        pairs = not isinstance(merge, str)
        match merge if pairs else merge.split(" ", 1):
            case [str(), str()] as parts:
                digest.update(json.dumps(parts).encode())
            case _:
                return None
    return Merges(len(merges), digest.hexdigest(), pairs)


def compare_files(path: str, one: TokenizerFile, two: TokenizerFile) -> Iterator[Change]:
    """The changes between two tokenizer.json files, without those of the added tokens."""
    yield from _compare_vocabularies(path, "model.vocab", one.vocabulary, two.vocabulary)
    if one.vocabulary.keys() == two.vocabulary.keys() and one.scores != two.scores:
        yield Change("tokenizer", "vocabulary-changed", path, "model.vocab", "scores", "other scores")
    yield from _compare_merges(path, "model.merges", one.merges, two.merges)
    formats = one.merges.pairs, two.merges.pairs
    if one.merges.digest == two.merges.digest and None not in formats and formats[0] != formats[1]:
        forms = ["pairs of tokens" if pairs else "texts" for pairs in formats]
        yield Change("tokenizer", "merges-format-changed", path, "model.merges", forms[0], forms[1])
    for key in dict.fromkeys([*two.options, *one.options]):
        before, after = one.options.get(key), two.options.get(key)
        if (before or after) and before != after:  # missing, null, false and "" mean the same here
            was, now = (short(side.options[key]) if key in side.options else None for side in (one, two))
            yield Change("tokenizer", "model-option-changed", path, f"model.{key}", was, now)
    for key, kind in _STEPS.items():
        before, after = one.steps[key], two.steps[key]
        if before != after:
            yield Change("tokenizer", kind, path, key, *_step(before, after))


def _step(before: object, after: object) -> tuple[str | None, str | None]:
    if before is None or after is None:
        return None if before is None else _name(before), None if after is None else _name(after)
    first, second = (json.dumps(side, sort_keys=True, ensure_ascii=False) for side in (before, after))
    return (first, second) if max(len(first), len(second)) <= LONGEST else around(first, second)


def _name(step: object) -> str:
    kind = step.get("type") if isinstance(step, Mapping) else None
    return short(kind if isinstance(kind, str) else step)


def _compare_vocabularies(path: str, symbol: str, one: Mapping[str, Any], two: Mapping[str, Any]) -> Iterator[Change]:
    """``vocabulary-grown`` when tokens only came, ``vocabulary-changed`` when some went or have other ids."""
    added = [token for token in two if token not in one]
    removed = [token for token in one if token not in two]
    moved = [token for token, number in one.items() if token in two and two[token] != number]
    clauses = [
        f"{len(tokens):,} {what} ({', '.join(short(token) for token in tokens[:3])}{', …' if len(tokens) > 3 else ''})"
        for what, tokens in (("added", added), ("removed", removed), (Message("with other ids"), moved))
        if tokens
    ]
    if clauses:
        kind = "vocabulary-changed" if removed or moved else "vocabulary-grown"
        was, now = (f"{len(side):,} entries" for side in (one, two))
        count = len(added) + len(removed) + len(moved)
        yield Change("tokenizer", kind, path, symbol, was, now, count, "; ".join(clauses))


def _compare_merges(path: str, symbol: str, one: Merges, two: Merges) -> Iterator[Change]:
    """``merges-changed`` when number, order or content of the merges differ."""
    if one.digest != two.digest:
        yield Change("tokenizer", "merges-changed", path, symbol, f"{one.number:,} merges", f"{two.number:,} merges")


def compare_vocabulary_file(revisions: Revisions, path: str) -> Iterator[Change | Unread]:
    """The change of tokenizer.model, vocab.json, vocab.txt, merges.txt and the like. Text formats are read; the others
    are told apart by object id and size alone."""
    state = revisions.state(path)
    name = posixpath.basename(path)
    readable = name in ("vocab.json", "vocab.txt", "merges.txt")
    sizes = revisions.sizes(path)
    before = after = b""
    if state in ("added", "removed"):
        yield Change("tokenizer", f"tokenizer-file-{state}", path, name, *sizes)
        return
    if state != "changed" or readable:
        pair = revisions.read(path, _LIMIT)
        if isinstance(pair, Unread):
            yield pair
            return
        before, after = pair[0] or b"", pair[1] or b""
        if before == after:
            return
    if name == "merges.txt":
        yield from _compare_merges(path, name, _merges_in(before), _merges_in(after))
    elif name == "vocab.txt":
        yield from _compare_vocabularies(path, name, _lines_in(before), _lines_in(after))
    elif name == "vocab.json":
        sides = [parse_json(content, path) for content in (before, after)]
        one, two = ({} if isinstance(side, Unread) else side.data for side in sides)
        broken = [side for side in sides if isinstance(side, Unread)]
        yield from broken[:1] or _compare_vocabularies(path, name, one, two)
    else:
        now = f"{sizes[1]} with other content" if sizes[0] == sizes[1] else sizes[1]
        yield Change("tokenizer", "vocabulary-changed", path, name, sizes[0], now)


def _merges_in(content: bytes) -> Merges:
    lines = [line.rstrip(b"\r") for line in content.split(b"\n")]
    lines = [line for number, line in enumerate(lines) if line and not (number == 0 and line.startswith(b"#"))]
    return Merges(len(lines), hashlib.sha256(b"\n".join(lines)).hexdigest())


def _lines_in(content: bytes) -> dict[str, int]:
    lines = content.decode("utf-8", "replace").split("\n")
    return {token.rstrip("\r"): number for number, token in enumerate(lines) if token}
