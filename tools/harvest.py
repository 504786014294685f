"""Write matrices/ledger anew from the package index: python tools/harvest.py --work DIR [--fresh] [NAME ...]

tools/harvest.toml says which packages are read, and how deep. Everything that is fetched is kept in DIR (outside the
repository), file by file: started again, the harvest goes on where it was, and asks for nothing twice. ``--fresh`` asks
the index again which releases there are. Review the difference before committing: it is what changed in the world, or
a mistake.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harvesting.history import history
from harvesting.kept import Kept
from harvesting.metadata import modules, required
from harvesting.releases import Release, chosen, released

from envdoctor.knowledge.ledger_schema import HISTORIES
from envdoctor.knowledge.toml_files import load_toml

HERE = Path(__file__).parent
LEDGER = HERE.parent / "matrices" / "ledger"

#: What a section says of one release: items by subject.
Found = Mapping[str, Collection[str]]


class Package:
    """One package on its way into the ledger."""

    def __init__(self, name: str, kept: Kept, settings: Mapping[str, Any], *, fresh: bool) -> None:
        self.name = name
        self.by_names = name in settings["names"]
        self.releases = released(kept.files(name, fresh=fresh))
        patches = settings["patches"].get(name, "ends")
        self.modules: set[str] = set()
        self.sections: dict[str, dict[Release, Found]] = {section: {} for section in HISTORIES}
        for release in self.releases:
            self.sections["wheels"][release] = {"*": {file.tags for file in release.files}}
        for release in chosen(self.releases, str(settings["since"]), patches):
            said = kept.metadata(name, release)
            if said is not None:
                self.sections["requires"][release] = {"*": required(said[0])}
                self.modules |= modules(said[1])

    def text(self) -> str:
        """The file of the ledger."""
        return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        yield "envdoctor-ledger\t1"
        yield f"package\t{self.name}"
        yield "\t".join(["modules", *sorted(self.modules)])
        yield "depth\t" + ("names" if self.by_names else "metadata")
        yield "[releases]"
        for release in self.releases:
            flags = [
                *(["metadata"] if release in self.sections["requires"] else []),
                *(["read"] if release in self.sections["offers"] else []),
                *(["yanked"] if release.yanked else []),
            ]
            python = release.python.replace(" ", "") or "-"
            yield "\t".join([str(release.version), release.day, python, *flags])
        for section, by_release in self.sections.items():
            yield f"[{section}]"
            basis = list(self.sections[{"wheels": "wheels", "requires": "requires"}.get(section, "offers")])
            yield from history([str(release.version) for release in basis], [by_release.get(r, {}) for r in basis])


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the packages that are named, or all, and write their files."""
    settings = load_toml(HERE / "harvest.toml")
    parser = argparse.ArgumentParser(description="Write matrices/ledger anew from the package index.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="packages of tools/harvest.toml; all when none is given"
    )
    parser.add_argument("--work", type=Path, required=True, help="folder for what is fetched, outside the repository")
    parser.add_argument("--ledger", type=Path, default=LEDGER, help="folder that is written")
    parser.add_argument("--fresh", action="store_true", help="ask the index again which releases there are")
    asked = parser.parse_args(arguments)
    known = [*settings["names"], *settings["metadata"]]
    unknown = sorted(set(asked.names) - set(known))
    if unknown:
        parser.error(f"{unknown[0]} is not in tools/harvest.toml")
    kept = Kept(asked.work)
    asked.ledger.mkdir(parents=True, exist_ok=True)
    for name in asked.names or known:
        package = Package(name, kept, settings, fresh=asked.fresh)
        (asked.ledger / f"{name}.txt").write_text(package.text(), encoding="utf-8", newline="\n")
        counts = ", ".join(
            f"{len(package.sections[section])} {section}" for section in ("wheels", "requires", "offers")
        )
        print(f"{name}: {counts}", flush=True)


if __name__ == "__main__":
    main()
