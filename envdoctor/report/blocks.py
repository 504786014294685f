"""One document for every writer: a section gives blocks, and a writer knows blocks and nothing of sections.

Texts are in the language of the page already. ``lines.py`` writes blocks for a terminal, ``markdown_report.py`` and
``html_report.py`` in their own ways.
"""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple, TypeAlias

from envdoctor.judge.finding import Evidence


class Items(NamedTuple):
    """Short texts side by side. ``most`` of them are shown on a terminal unless all is asked for; ``keys``: they are
    the keys to the segments of a bar."""

    texts: Sequence[str]
    glue: str | None = None
    most: int | None = None
    keys: bool = False


class Commands(NamedTuple):
    """Shell commands to copy."""

    lines: Sequence[str]


class SourceList(NamedTuple):
    """Where the claim comes from, and how well it is known. A terminal shows the first unless all is asked for."""

    confidence: str
    evidence: Sequence[Evidence]


class Bar(NamedTuple):
    """Segments (size, kind) side by side; ``words`` say what they show where ``text`` is not beside them."""

    text: str
    segments: Sequence[tuple[float, str]]
    words: str = ""


class Bars(NamedTuple):
    """Bars on one scale up to ``whole``. A terminal writes their texts alone unless they are ``drawn`` there too."""

    bars: Sequence[Bar]
    whole: float
    drawn: bool = False

    def drawn_to_100(self, bar: Bar) -> Iterator[tuple[float, float, str]]:
        """Yield where each segment begins and how wide it is, in percent of the whole."""
        begin, scale = 0.0, 100 / self.whole if self.whole > 0 else 0.0
        for size, kind in bar.segments:
            yield begin * scale, max(size * scale, 0.0), kind
            begin += size


Content: TypeAlias = str | Items | Commands | SourceList | Bars


class Field(NamedTuple):
    """Contents behind a label. ``bare``: they speak for themselves, and a terminal goes without the label."""

    label: str
    contents: Sequence[Content]
    bare: bool = False


class Group(NamedTuple):
    """Contents below a line of their own."""

    title: str
    contents: Sequence[Content]


class Table(NamedTuple):
    """Rows below a head. ``lines`` say them on a terminal, where they may be fewer; None: rows in columns."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    lines: Sequence[str] | None = None


class Paragraph(NamedTuple):
    """A text in full width; ``margin`` is what stands before it on a terminal."""

    text: str
    margin: str = "  "


class Lines(NamedTuple):
    """Lines that are laid out already."""

    lines: Sequence[str]


class Diff(NamedTuple):
    """Lines of a unified diff below a title. A terminal shows ``most`` of them unless all is asked for, then ``hint``;
    those that stand ``beside`` each other only on a page it says elsewhere."""

    title: str
    lines: Sequence[str]
    most: int | None = None
    hint: str = ""
    beside: bool = False

    def shown(self, everything: bool = False) -> Sequence[str]:
        """Return the lines for a narrow reader."""
        return self.lines if everything else self.lines[: self.most]

    def pairs(self) -> Iterator[tuple[str, str | None, str | None]]:
        """Yield (kind, old, new) line by line: what went stands beside what came in its place, None where there is
        nothing. The kind is same, changed or at (``new`` says where the lines are)."""
        gone: list[str] = []
        come: list[str] = []
        for line in self.lines:
            sign = line[:1]
            if sign != "+" and (sign != "-" or come):
                yield from (("changed", *both) for both in zip_longest(gone, come))
                gone, come = [], []
            if sign == "-":
                gone.append(line[1:])
            elif sign == "+":
                come.append(line[1:])
            else:
                yield ("at", None, line) if sign == "@" else ("same", line[1:], line[1:])
        yield from (("changed", *both) for both in zip_longest(gone, come))


class Banner(NamedTuple):
    """A text that begins with a label in the style of its level: error, warning, note or bold."""

    label: str
    text: str
    level: str = "bold"


class Folded(NamedTuple):
    """What is shown when it is asked for: with ``-v``, or by a click on the summary. Before that a terminal hints."""

    summary: str
    blocks: "Sequence[Block]"
    hint: str = ""


Block: TypeAlias = Field | Group | Table | Paragraph | Lines | Diff | Banner | Items | Commands | Folded


class Section(NamedTuple):
    """Blocks about one thing. ``bare``: a terminal goes without the title, which its first label says."""

    title: str
    blocks: Sequence[Block]
    bare: bool = False


class ReportedCase(NamedTuple):
    """One message of a finding, with the places to edit; each of ``found`` are facts that it alone rests on."""

    message: str
    places: Sequence[str]
    found: Sequence[Sequence[str]]


class Card(NamedTuple):
    """Findings of one cause. The labels of its fields are phrases: a terminal shows them in English, where they are
    searched for. ``marks`` tell more of it in a few words, ``anchor`` names it within a page."""

    severity: str
    name: str
    times: int
    marks: Sequence[str]
    anchor: str
    cases: Sequence[ReportedCase]
    fields: Sequence[Field]


Part: TypeAlias = Section | Card
