"""Output head and embedding: what their coming and going means beside the configuration of each revision."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from envdoctor.hub.snapshot import Snapshot, Unread
from envdoctor.revision.comparer import Change, read_json
from envdoctor.revision.weights.parts.layouts import Layout, Spec
from envdoctor.text.message import Message

_HEAD = re.compile(r"(?:^|\.)(?:lm_head|output_layer|embed_out|output)\.weight\Z")
_EMBEDDING = re.compile(
    r"(?:^|\.)(?:embed_tokens|wte|word_embeddings|tok_embeddings|embed_in|embeddings|tokens_embed|shared)\.weight\Z"
)
_ROWS = ("vocab_size", "padded_vocab_size")


def is_head(name: str) -> bool:
    """Whether the tensor turns hidden states into logits."""
    return _HEAD.search(name) is not None


def embedding_of(tensors: Mapping[str, Spec]) -> str | None:
    """The token embedding: the matrix with the most rows of those that are called so."""
    named = [name for name, spec in tensors.items() if len(spec.shape) == 2 and _EMBEDDING.search(name)]
    return max(named, key=lambda name: (tensors[name].shape[0], name), default=None)


def tying(snapshot: Snapshot) -> str:
    """``tied``, ``not tied``, ``not given``, or ``not readable`` when the configuration could not be read.

    Not given is no answer: which default holds depends on the class and on the transformers release.
    """
    config = _config(snapshot)
    if config is None:
        return "not readable"
    for table in (config, config.get("text_config"), config.get("llm_config")):
        match table:
            case {"tie_word_embeddings": bool(given)}:
                return "tied" if given else "not tied"
    return Message("not given")


def _config(snapshot: Snapshot) -> dict[str, Any] | None:
    read = read_json(snapshot, "config.json")
    return None if read is None or isinstance(read, Unread) else read.data


def head_changes(
    gone: list[str], come: list[str], snapshots: tuple[Snapshot, Snapshot], layouts: tuple[Layout, Layout]
) -> list[Change]:
    """``head-gone`` and ``head-added``, with the tying of each configuration as before and after."""
    if not gone and not come:
        return []
    before, after = tying(snapshots[0]), tying(snapshots[1])
    changes = [Change("weights", "head-gone", layouts[0].where[name], name, before, after) for name in gone]
    changes += [Change("weights", "head-added", layouts[1].where[name], name, before, after) for name in come]
    return changes


def compare_embeddings(old: Layout, new: Layout, new_snapshot: Snapshot) -> tuple[list[Change], set[str]]:
    """``embedding-rows`` and ``rows-differ-from-config``; and the names that they stand for."""
    changes: list[Change] = []
    covered: set[str] = set()
    name = embedding_of(new.tensors)
    if name is None:
        return changes, covered
    rows = new.tensors[name].shape[0]
    before = old.tensors.get(name)
    grown = before is not None and len(before.shape) == 2 and before.shape[0] != rows
    if before is not None and grown and before.shape[1:] == new.tensors[name].shape[1:]:
        covered.add(name)
        for other, spec in new.tensors.items():
            was = old.tensors.get(other)
            if was is not None and is_head(other) and was.shape != spec.shape and was.shape[1:] == spec.shape[1:]:
                covered.add(other)
        detail = Message("fewer") if rows < before.shape[0] else Message("more")
        sizes = str(before.shape[0]), str(rows)
        changes.append(Change("weights", "embedding-rows", new.where[name], name, *sizes, len(covered), detail))
    given = _vocabulary(new_snapshot)
    if given is not None and given != rows and (before is None or grown):
        which = Message("fewer rows than tokens") if rows < given else Message("more rows than tokens")
        changes.append(
            Change("weights", "rows-differ-from-config", new.where[name], name, str(rows), str(given), 1, which)
        )
    return changes, covered


def _vocabulary(snapshot: Snapshot) -> int | None:
    config = _config(snapshot) or {}
    inner = config.get("text_config")
    for table in (config, inner if isinstance(inner, dict) else {}):
        for key in _ROWS:
            if type(table.get(key)) is int:
                return int(table[key])
    return None
