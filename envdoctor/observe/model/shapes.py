"""The shape of a model whose files are not here, by its name: the table model-shapes."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

#: Longer names than the Hub's are nobody's.
_LONGEST = 200
#: Another size (7b, 8x7b, a3b; 1m tokens) or release; and a day or a month, which tell nothing.
_OTHER, _DAY = r"(?:\d+x)?[ae]?\d+[bm]|\d{1,2}", r"v?\d|\d{4}|\d{6}|\d{8}"
#: Types with plain layers and attention: the others are not what a number of parameters alone means.
_PLAIN = ("qwen2", "llama", "qwen3", "mistral")

Rows = Iterable[Mapping[str, Any]]


class Shape(NamedTuple):
    """What a name tells of a model.

    ``config`` are the sizes as config.json gives them, those of ``like``, a name in the table, read at ``source``.
    ``quantized`` is the method in the name, "" where it tells no method, None where it tells nothing; ``bits`` are
    those of a weight, 0 where it does not tell. ``vendor`` tells whether the organisation is one of the model's own.
    ``unknown`` are the words that nobody has explained; ``bare`` is a number of parameters without a name.
    """

    config: Mapping[str, Any]
    like: str
    source: str
    quantized: str | None = None
    vendor: bool = True
    unknown: tuple[str, ...] = ()
    bare: bool = False
    bits: int = 0


def words_of(name: str) -> tuple[str, ...]:
    """Return the words of a name without its organisation: ``Qwen2.5-7B``, ``qwen-2_5-7b`` are qwen, 2, 5, 7b."""
    last = name.lower().rpartition("/")[2].removeprefix("meta-")
    parted = re.sub(r"\b(?!int|mxfp|nvfp)([a-z]{3,})(?=\d)", r"\1-", last.replace("_", "-"))
    return tuple(word for word in re.split(r"[-.]+", parted) if word)


def shape_of(name: str, rows: Rows, suffixes: Sequence[Mapping[str, Any]]) -> Shape | None:
    """Return the shape of the model called ``name``; None where the table has none that can be it.

    ``rows`` and ``suffixes`` are those parts of the table model-shapes. The longest known beginning of the name counts.
    What follows may tell how the weights are stored, or nothing of the shape. Another size, family or architecture in
    it makes it another model.
    """
    words, rows = words_of(name[: _LONGEST + 1]), list(rows)
    if len(name) > _LONGEST or not words:
        return None
    meant: dict[str, list[Mapping[str, Any]]] = {}
    for suffix in suffixes:
        for word in suffix["words"]:
            meant.setdefault(word, []).append(suffix)
    known: dict[tuple[str, ...], tuple[str, Mapping[str, Any]]] = {}
    for row in rows:
        for one in row["names"]:
            known.setdefault(words_of(one), (one, row))
    for whole, named in list(known.items()):  # Llama-2-7b is Llama-2-7b-hf
        while len(whole) > 1 and any(suffix["means"] == "same" for suffix in meant.get(whole[-1], ())):
            known.setdefault(whole := whole[:-1], named)
    end = next((end for end in range(len(words), 0, -1) if words[:end] in known), 0)
    if not end:
        return _bare(name, rows)
    like, row = known[words[:end]]
    organisation = name.lower().rpartition("/")[0]
    vendor = organisation in {"", *(one.lower().rpartition("/")[0] for one in row["names"])}
    quantized, unknown, bits = None, [], 0
    for word in words[end:]:
        means = {suffix["means"] for suffix in meant.get(word, ())}
        if "another model" in means or re.fullmatch(_OTHER, word) or any(word == one[0] for one in known):
            return None
        if "quantized" in means:
            by = [suffix for suffix in meant[word] if vendor or organisation in suffix.get("by", (organisation,))]
            quantized = quantized or next((suffix["method"] for suffix in by if "method" in suffix), "")
            bits = bits or next((suffix["bits"] for suffix in meant[word] if "bits" in suffix), 0)
        elif not means and not re.fullmatch(_DAY, word):
            unknown.append(word)
    return Shape(row["config"], like, row["source"], quantized, vendor, tuple(unknown), bits=bits)


def _bare(name: str, rows: Rows) -> Shape | None:
    """Return the first plain model whose name tells a number of parameters near to a bare one."""
    asked = _billions(name) if re.fullmatch(r"[\d.]{1,6}[bB]", name) else None
    plain = [row for row in rows if row["config"]["model_type"] in _PLAIN]
    far = [abs((_billions(row["names"][0]) or 0.0) / asked - 1) for row in plain] if asked else [1.0]
    if min(far, default=1.0) > 0.15:
        return None
    row = plain[far.index(min(far))]
    return Shape(row["config"], row["names"][0], row["source"], bare=True)


def _billions(name: str) -> float | None:
    found = re.search(r"(?<![\w.])(\d+(?:\.\d+)?)b(?![a-z])", name.lower())
    return float(found[1]) if found else None
