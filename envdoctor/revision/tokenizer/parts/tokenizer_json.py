"""tokenizer.json of the tokenizers library: vocabulary, merges and the steps around them, compared part by part."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from envdoctor.hub.snapshot import Snapshot, Unread
from envdoctor.revision.comparer import Change
from envdoctor.revision.json_files import read_json
from envdoctor.revision.short_text import LONGEST, around, short
from envdoctor.text.message import Message

#: The largest tokenizer.json of the Hub's well-known models has about 34 MB (gemma-3).
_LIMIT = 64 << 20
_STEPS = {
    "normalizer": "pre-tokenizer-changed",
    "pre_tokenizer": "pre-tokenizer-changed",
    "post_processor": "post-processor-changed",
    "decoder": "decoder-changed",
    "truncation": "truncation-changed",
    "padding": "padding-changed",
}


class TokenizerFile(NamedTuple):
    """What is compared of one tokenizer.json.

    ``added`` are the entries of added_tokens; ``steps`` the parts around the model; ``options`` the model without its
    vocabulary and merges; ``vocabulary`` maps tokens to ids; ``merges`` is their number and ``digest`` stands for them;
    ``pairs`` says whether each is a list of two tokens (tokenizers >= 0.20) or one text (before).
    """

    added: list[Mapping[str, Any]]
    steps: Mapping[str, Any]
    options: Mapping[str, Any]
    vocabulary: Mapping[str, Any]
    scores: str | None
    merges: int
    digest: str
    pairs: bool | None


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
    merges = _or_empty(model.get("merges"))
    if vocabulary is None or not isinstance(merges, list):
        return Unread(path, Message("its vocabulary or its merges are not in a form that is known"))
    digest, pairs = _merges(merges)
    if digest is None:
        return Unread(path, Message("its merges are neither texts nor pairs of tokens"))
    options = {key: value for key, value in model.items() if key not in ("vocab", "merges")}
    steps = {key: data.get(key) for key in _STEPS}
    return TokenizerFile(added, steps, options, vocabulary, scores, len(merges), digest, pairs)


def _or_empty(value: Any) -> Any:
    return [] if value is None else value


def _vocabulary(vocab: object) -> tuple[dict[str, Any] | None, str | None]:
    """Token -> id, and a digest of the scores of a unigram model (whose ids are positions)."""
    if vocab is None:
        return {}, None
    if isinstance(vocab, dict):
        return vocab, None
    if not isinstance(vocab, list):
        return None, None
    tokens: dict[str, Any] = {}
    scores = hashlib.sha256()
    for number, entry in enumerate(vocab):
        match entry:
            case [str(token), score]:
                tokens.setdefault(token, number)
                scores.update(repr(score).encode())
            case _:
                return None, None
    return tokens, scores.hexdigest()


def _merges(merges: list[Any]) -> tuple[str | None, bool | None]:
    digest = hashlib.sha256()
    pairs: bool | None = None
    for merge in merges:
        pairs = not isinstance(merge, str)
        match merge if pairs else merge.split(" ", 1):
            case [str(), str()] as parts:
                digest.update(json.dumps(parts).encode())
            case _:
                return None, None
    return digest.hexdigest(), pairs


def compare_files(path: str, one: TokenizerFile, two: TokenizerFile) -> Iterator[Change]:
    """The changes between two tokenizer.json files, without those of the added tokens."""
    yield from compare_vocabularies(path, "model.vocab", one.vocabulary, two.vocabulary)
    if one.vocabulary.keys() == two.vocabulary.keys() and one.scores != two.scores:
        yield Change("tokenizer", "vocabulary-changed", path, "model.vocab", "scores", "other scores")
    yield from compare_merges(path, "model.merges", (one.merges, one.digest), (two.merges, two.digest))
    if one.digest == two.digest and None not in (one.pairs, two.pairs) and one.pairs != two.pairs:
        was, now = ("pairs of tokens" if side.pairs else "texts" for side in (one, two))
        yield Change("tokenizer", "merges-format-changed", path, "model.merges", was, now)
    for key in dict.fromkeys([*two.options, *one.options]):
        if key in one.options and key in two.options and one.options[key] == two.options[key]:
            continue
        if one.options.get(key) or two.options.get(key):  # missing, null, false and "" mean the same here
            texts = [short(side.options[key]) if key in side.options else None for side in (one, two)]
            yield Change("tokenizer", "model-option-changed", path, f"model.{key}", texts[0], texts[1])
    for key, kind in _STEPS.items():
        before, after = one.steps[key], two.steps[key]
        if before != after:
            yield Change("tokenizer", kind, path, key, *_step(before, after))


def compare_vocabularies(path: str, symbol: str, one: Mapping[str, Any], two: Mapping[str, Any]) -> Iterator[Change]:
    """``vocabulary-grown`` when tokens only came, ``vocabulary-changed`` when some went or have other ids."""
    added = [token for token in two if token not in one]
    removed = [token for token in one if token not in two]
    moved = [token for token, number in one.items() if token in two and two[token] != number]
    if not (added or removed or moved):
        return
    kind = "vocabulary-changed" if removed or moved else "vocabulary-grown"
    clauses = [
        f"{len(tokens):,} {what} ({', '.join(short(token) for token in tokens[:3])}{', …' if len(tokens) > 3 else ''})"
        for what, tokens in (("added", added), ("removed", removed), (Message("with other ids"), moved))
        if tokens
    ]
    was, now = (f"{len(side):,} entries" for side in (one, two))
    count = len(added) + len(removed) + len(moved)
    yield Change("tokenizer", kind, path, symbol, was, now, count, "; ".join(clauses))


def compare_merges(path: str, symbol: str, one: tuple[int, str], two: tuple[int, str]) -> Iterator[Change]:
    """``merges-changed`` when number, order or content of the merges differ; each side is ``(number, digest)``."""
    if one[1] != two[1]:
        yield Change("tokenizer", "merges-changed", path, symbol, f"{one[0]:,} merges", f"{two[0]:,} merges")


def _step(before: object, after: object) -> tuple[str | None, str | None]:
    if before is None or after is None:
        return None if before is None else _name(before), None if after is None else _name(after)
    first, second = (json.dumps(side, sort_keys=True, ensure_ascii=False) for side in (before, after))
    if max(len(first), len(second)) <= LONGEST:
        return first, second
    return around(first, second)


def _name(step: object) -> str:
    kind = step.get("type") if isinstance(step, Mapping) else None
    return short(kind if isinstance(kind, str) else step)
