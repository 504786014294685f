"""What a data file says about lengths: the section ``data`` of a report, as it stands in its JSON."""

from typing import TypedDict


class Padding(TypedDict):
    """Shares of padding in batches of ``batch`` samples, by how these are put together."""

    batch: int
    random: float
    grouped: float
    packed: float


class DataSection(TypedDict):
    """``rows`` of the file, of which ``looked_at`` were read and tokenised; ``formats`` are theirs, the usual first.
    ``template``: the chat template of ``tokenizer`` (a folder) was counted.

    Lengths are tokens of a sample: half of the rows have at most ``p50``. ``longest`` was counted; where
    ``longest_at_most`` is larger, a row that was not may have as many. ``cut`` rows are longer than ``cutoff`` (None:
    the recipe has none); ``longest_batch`` are the tokens of the largest batch, padding included. All of them are None
    where tokens could not be counted; ``longest_at_most`` is then the number of bytes of the longest text.
    """

    path: str
    rows: int
    looked_at: int
    formats: list[str]
    tokenizer: str
    template: bool
    p50: int | None
    p90: int | None
    p99: int | None
    longest: int | None
    longest_at_most: int
    cutoff: int | None
    cut: int | None
    padding: Padding | None
    longest_batch: int | None
    notes: list[str]
