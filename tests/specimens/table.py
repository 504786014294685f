"""The table of the specimens, as the README shows it."""

from collections.abc import Iterable, Sequence

from peers import Complaint
from specimens import SPECIMENS, Specimen

HEAD = """# Specimens

Broken environments, built by the tests from recorded metadata of released wheels ([specimens.toml](specimens.toml) says
how), and what is said of them: by `envdoctor check`, and by the real `uv pip check` and `pip check` where these can be
pointed at the environment (a virtual one of this machine's Python). **Bold** is an error, the rest are warnings;
nothing else is shown at these levels. `WRITE_README=1 pytest -m slow tests/specimens` writes this file; the tests fail
when it is out of date.

| specimen | true cause | envdoctor | uv pip check | pip check |
|---|---|---|---|---|
"""


def envdoctor_says(specimen: Specimen) -> str:
    """The findings that the test of this specimen asserts."""
    told = [f"**{_marked(entry)}**" for entry in specimen.expected("error")]
    told += [_marked(entry) for entry in specimen.expected("warning")]
    if specimen.pending:
        told.append(f"*(a rule is still missing: {specimen.pending})*")
    return "<br>".join(told)


def peer_says(complaints: Sequence[Complaint] | None) -> str:
    """A cell for another tool, one line a package; an em dash where it was not run."""
    if complaints is None:
        return "—"
    lines = []
    for kind, package in dict.fromkeys((one.kind, one.package) for one in complaints):
        askers = [one.asker for one in complaints if (one.kind, one.package) == (kind, package) and one.asker]
        by = f" ({', '.join(askers[:2])}{f', +{len(askers) - 2}' if len(askers) > 2 else ''})" if askers else ""
        lines.append(f"{package}: {kind}{by}")
    if len(lines) > 4:
        lines = [*lines[:3], f"… {len(lines) - 3} more"]
    return "<br>".join(lines) or "nothing"


def row(specimen: Specimen, uv: Sequence[Complaint] | None, pip: Sequence[Complaint] | None) -> str:
    cells = (f"`{specimen.id}`", specimen.cause, envdoctor_says(specimen), peer_says(uv), peer_says(pip))
    return "| " + " | ".join(cells) + " |"


def rows_of(text: str) -> dict[str, list[str]]:
    """The cells of each row of the table, by specimen."""
    found = {}
    for line in text.splitlines():
        cells = line.strip("|").split(" | ")
        if line.startswith("| `") and len(cells) == 5:
            found[cells[0].strip(" `")] = [cell.strip() for cell in cells]
    return found


def _marked(entry: str) -> str:
    rule, _, item = entry.partition(" ")
    return f"{rule} ({item})" if item else rule


def missing_rows(rows: Iterable[str]) -> set[str]:
    """Specimens that have no row, and rows of specimens that are no more."""
    return {specimen.id for specimen in SPECIMENS} ^ set(rows)
