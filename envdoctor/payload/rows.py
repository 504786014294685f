"""Payload scripts: the rows of a data set, and their lengths, by libraries of the target."""

from __future__ import annotations

import json
import os
import time
from typing import Any

#: Rows of a file that are in memory at once.
_ROWS = 1000
#: Rows of one call of a tokenizer: one that takes long is not followed by many.
_TEXTS = 64


def unpack(job: dict[str, Any], emit: Any) -> None:
    """Write the rows of a Parquet file as lines of JSON, by pyarrow; bytes (pictures, sound) become null.

    ``job`` has the ``path``, the path ``out`` that is written, and the ``most`` bytes of it. Emit one record: ``rows``
    with their number, or ``refused`` with a ``problem`` that follows the file's name in a sentence.
    """
    import pyarrow.parquet

    rows, left = 0, job["most"]
    try:
        file = pyarrow.parquet.ParquetFile(job["path"])
        with open(job["out"], "wb") as out:
            for batch in file.iter_batches(_ROWS):
                for row in batch.to_pylist():
                    line = json.dumps(row, ensure_ascii=False, default=_plain).encode("utf-8", "replace") + b"\n"
                    left -= len(line)
                    if left < 0:
                        problem = ["has more than {} GiB of rows: give a part of it", job["most"] >> 30]
                        emit({"case": "refused", "problem": problem})
                        return
                    out.write(line)
                    rows += 1
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        problem = ["cannot be read by pyarrow {}: {}", pyarrow.__version__, str(error)]
        emit({"case": "refused", "problem": problem})
        return
    emit({"case": "rows", "rows": rows})


def tokenize(job: dict[str, Any], emit: Any) -> None:
    """Count the tokens of texts, with the library ``tokenizers`` and a ``tokenizer.json``.

    ``job`` has the path ``tokenizer``, ``special`` (whether the tokenizer adds its own tokens) and ``rows``, each with
    the ``size`` of the row and its ``texts``, of which the longest counts: first ``sampled`` rows of all sizes, then
    others from the largest down. ``beyond`` is the size of the largest row that is not among them. The others are
    followed until no row that is left can be the longest, by the densest row so far (tokens beyond the least, by size),
    or for ``seconds``.

    Emit ``refused`` with a ``problem``; ``lengths`` of the next rows; at the end ``left`` with what the longest of the
    rows that were not looked at can have at ``most``.
    """
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
        batch = rows[here : min(here + _TEXTS, sampled if here < sampled else len(rows))]
        texts = [text for row in batch for text in row["texts"]]
        counts = iter([len(tokens.ids) for tokens in encode(texts, add_special_tokens=job["special"])])
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


def _plain(value: Any) -> Any:
    return None if isinstance(value, (bytes, bytearray)) else str(value)
