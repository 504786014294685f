"""Payload script: the rows of a Parquet file as lines of JSON, by the target's pyarrow.

``job`` has the ``path``, the path ``out`` that is written, and the ``most`` bytes of it. Bytes (pictures, sound) become
null. One record at the end: ``rows``, or ``refused`` with a ``problem`` that follows the file's name in a sentence.
"""

from __future__ import annotations

import json
from typing import Any

#: Rows that are in memory at once.
_AT_ONCE = 1000


def run(job: dict[str, Any], emit: Any) -> None:
    """Write the rows and emit how many there are."""
    import pyarrow.parquet

    rows, left = 0, job["most"]
    try:
        file = pyarrow.parquet.ParquetFile(job["path"])
        with open(job["out"], "wb") as out:
            for batch in file.iter_batches(_AT_ONCE):
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


def _plain(value: Any) -> Any:
    return None if isinstance(value, (bytes, bytearray)) else str(value)
