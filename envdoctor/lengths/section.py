"""What a data file says about lengths: the section ``data`` of a report, as it stands in its JSON."""

from typing import TypedDict


class Padding(TypedDict):
    """Shares of padding in batches of ``batch`` samples, by how these are put together."""

    batch: int
    random: float
    grouped: float
    packed: float


class Spread(TypedDict):
    """Lengths are tokens of a sample: half of the rows have at most ``p50``, and ``cut`` are longer than the recipe's
    cutoff (None: it has none). ``longest_batch`` are the tokens of the largest batch, padding included. All of them are
    None where tokens could not be counted."""

    p50: int | None
    p90: int | None
    p99: int | None
    longest: int | None
    cut: int | None
    padding: Padding | None
    longest_batch: int | None


class DataSection(Spread):
    """``rows`` of the file, of which ``looked_at`` were read and tokenised; ``formats`` are theirs, the usual first.
    ``template``: the chat template of ``tokenizer`` (a folder) was counted.

    ``longest`` was counted; where ``longest_at_most`` is larger, a row that was not may have as many. Without tokens
    it is the number of bytes of the longest text. ``cutoff`` is the recipe's, in tokens.
    """

    path: str
    rows: int
    looked_at: int
    formats: list[str]
    tokenizer: str
    template: bool
    longest_at_most: int
    cutoff: int | None
    notes: list[str]
