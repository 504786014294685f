"""Payload script: how many tokens texts have, with the library ``tokenizers`` and a ``tokenizer.json``.

``job`` has the path ``tokenizer``, ``special`` (whether the tokenizer adds its own tokens) and ``rows``, each with the
``size`` of the row and its ``texts``, of which the longest counts: first ``sampled`` rows of all sizes, then others
from the largest down. ``beyond`` is the size of the largest row that is not among them. The others are followed until
no row that is left can be the longest, by the densest that was seen (tokens beyond the least, by size), or until
``seconds`` are over.

Records: ``refused`` with a ``problem``; ``lengths`` of the next rows; at the end ``left`` with what the longest of the
rows that were not looked at can have at ``most``.
"""

from __future__ import annotations

import os
import time
from typing import Any

#: Rows of one call: one that takes long is not followed by many.
_AT_ONCE = 64


def run(job: dict[str, Any], emit: Any) -> None:
    """Emit the lengths."""
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    import tokenizers

    started = time.time()
    try:
        tokenizer = tokenizers.Tokenizer.from_file(job["tokenizer"])
    except Exception as error:
        emit({"case": "refused", "problem": ["tokenizers {} cannot read it: {}", tokenizers.__version__, str(error)]})
        return
    tokenizer.no_truncation()
    tokenizer.no_padding()
    encode = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
    rows, sampled = job["rows"], job["sampled"]
    lengths: list[int] = []
    most = densest = 0.0
    while len(lengths) < len(rows):
        here = len(lengths)
        batch = rows[here : min(here + _AT_ONCE, sampled if here < sampled else len(rows))]
        texts = [text for row in batch for text in row["texts"]]
        counts = iter([len(one.ids) for one in encode(texts, add_special_tokens=job["special"])])
        new = [max(next(counts) for _ in row["texts"]) for row in batch]
        emit({"case": "lengths", "lengths": new})
        lengths += new
        least = min(lengths)
        densest = max((count - least) / max(1, row["size"]) for count, row in zip(lengths, rows))
        largest = rows[len(lengths)]["size"] if len(lengths) < len(rows) else job["beyond"]
        most = least + densest * largest
        if (len(lengths) >= sampled and most <= max(lengths)) or time.time() - started > job["seconds"]:
            break
    emit({"case": "left", "most": int(most)})
