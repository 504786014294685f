"""Write matrices/ledger anew from the package index: python tools/harvest.py --work DIR [--fresh] [NAME ...]

tools/harvest.toml (or ``--settings``) says which packages are read, and how deep. Everything that is fetched is kept in
DIR (outside the repository), file by file: started again, the harvest goes on where it was, and asks for nothing twice.
What packages take from each other is chosen by what the folder that is written says of the others.
``--fresh`` asks the index again which releases there are. Review the difference before committing: it is what changed
in the world, or a mistake.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from harvesting.breaking import Breaking
from harvesting.gone import with_flags
from harvesting.kept import Kept
from harvesting.ledger_format import HISTORIES
from harvesting.metadata import modules, required
from harvesting.moves import moved, served
from harvesting.names import Names
from harvesting.reading import read as read_names
from harvesting.releases import Release, chosen, released
from harvesting.selecting import selected
from harvesting.taking import Taking
from harvesting.writing import history, write_packed
from pip._internal.exceptions import NetworkConnectionError
from pip._vendor.requests import RequestException

from envdoctor.matrix import Ledger, load_toml

HERE = Path(__file__).parent
LEDGER = HERE.parent / "matrices" / "ledger"
#: What decides what is found in the files of a release: when it changes, they are read again.
SOURCE = HERE.parent / "envdoctor" / "source"
TABLES = HERE.parent / "matrices" / "tables"
NAMES = [
    *(HERE / "harvesting" / f"{name}.py" for name in ("names", "reading", "demands")),
    *(SOURCE / f"{name}.py" for name in ("offers", "signatures")),
]
TAKES = [
    *(HERE / "harvesting" / f"{name}.py" for name in ("taking", "takes")),
    *(TABLES / "entry-statements.toml", TABLES / "module-distributions.toml"),
    *(SOURCE / f"{name}.py" for name in ("offers", "importing", "deciding", "values")),
]

_SERVED = "a finder may serve it"

#: What a section says of one release: items by subject.
Found = Mapping[str, Collection[str]]


class Package:
    """One package on its way into the ledger."""

    def __init__(self, name: str, kept: Kept, settings: Mapping[str, Any], *, fresh: bool) -> None:
        self.name = name
        self.by_names = name in settings["names"]
        listed = str(settings["listed"])
        self.releases = [one for one in released(kept.files(name, fresh=fresh)) if one.day >= listed]
        self.modules: set[str] = set()
        self.sections: dict[str, dict[Release, Found]] = {section: {} for section in HISTORIES}
        for release in self.releases:
            tags = {file.tags for file in release.files}
            rare = settings["selection"]["platforms"]
            usual = {tag for tag in tags if not any(platform in tag for platform in rare)}
            self.sections["wheels"][release] = {"*": usual or tags}
        patches, since = settings["patches"].get(name, "ends"), str(settings["since"])
        read = chosen(self.releases, since, patches) if self.by_names else []
        since = str(settings.get("earlier", {}).get(name, since))
        for release in chosen(self.releases, since, patches if name in settings["packed"] else "all"):
            said = kept.metadata(name, release, sources=release in read)
            if said is not None:
                self.sections["requires"][release] = required(said[0], settings.get("extras", {}).get(name, ()))
                self.modules |= modules(said[1])
        if self.by_names:
            self._read(kept, settings, read)

    def _read(self, kept: Kept, settings: Mapping[str, Any], releases: Sequence[Release]) -> None:
        """Read everything that the files of the releases say."""
        found = {}
        for release in releases:
            said = kept.reading(
                self.name, release, "names", _key(NAMES, settings["reading"]), partial(_names, settings)
            )
            if said is not None:
                found[release] = said
        ordered = list(found.values())
        listed: set[str] = set()
        for release, modules_served in zip(found, served(ordered), strict=True):
            for section, subjects in selected(found[release]["sections"], settings["selection"]).items():
                self.sections[section][release] = subjects
            opened = self.sections["open"][release]
            self.sections["open"][release] = {**opened, **{module: [_SERVED] for module in modules_served}}
            listed |= self.sections["offers"][release].keys()
        for release, moves in zip(found, moved(ordered), strict=True):
            self.sections["moved"][release] = {
                old: new for old, new in moves.items() if old.partition(":")[0] in listed
            }

    def text(self) -> str:
        """Return the file of the ledger."""
        return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        yield "envdoctor-ledger\t1"
        yield f"package\t{self.name}"
        yield "\t".join(["modules", *sorted(self.modules)])
        yield "depth\t" + ("names" if self.by_names else "metadata")
        yield "[releases]"
        before = ""
        for release in self.releases:
            flags = "m" * (release in self.sections["requires"]) + "r" * (release in self.sections["offers"])
            flags += "y" * release.yanked
            python = release.python.replace(" ", "") or "-"
            yield "\t".join(
                [str(release.version), release.day, "." if python == before else python, *filter(None, [flags])]
            )
            before = python
        for section, by_release in self.sections.items():
            yield f"[{section}]"
            basis = list(self.sections[{"wheels": "wheels", "requires": "requires"}.get(section, "offers")])
            yield from history([str(release.version) for release in basis], [by_release.get(r, {}) for r in basis])


def takes(
    name: str, releases: Mapping[Release, Sequence[str]], kept: Kept, ledger: Ledger, settings: Mapping[str, Any]
) -> Iterator[str]:
    """Yield the lines of the section [takes] of a package, of releases that require this; needs the other files."""
    taking, breaking = Taking(TABLES, ledger, settings["names"]), Breaking(ledger, str(settings["since"]))
    found = []
    for release, needs in releases.items():
        read = partial(taking.of, (name, str(release.version)), release.day, needs)
        taken = kept.reading(name, release, "takes", _key(TAKES, settings["names"]), read)
        found.append(breaking.of(name, taken or {}, needs))
    yield from history([str(release.version) for release in releases], found)


def _names(settings: Mapping[str, Any], folder: str, tops: set[str]) -> Any:
    return read_names(Names(folder, tops, frozenset(sys.stdlib_module_names)), settings["reading"])


def _key(code: Sequence[Path], settings: object) -> str:
    """Return how files are read: by which code, with which settings, by which parser."""
    key = sha256(json.dumps([settings, *sys.version_info[:2]]).encode())
    for path in code:
        key.update(path.read_bytes())
    return key.hexdigest()


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the packages that are named, or all, and write their files."""
    parser = argparse.ArgumentParser(description="Write matrices/ledger anew from the package index.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="packages of the settings; all when none is given")
    parser.add_argument("--work", type=Path, required=True, help="folder for what is fetched, outside the repository")
    parser.add_argument("--ledger", type=Path, default=LEDGER, help="folder that is written")
    parser.add_argument("--settings", type=Path, default=HERE / "harvest.toml", help="which packages are read")
    parser.add_argument("--fresh", action="store_true", help="ask the index again which releases there are")
    asked = parser.parse_args(arguments)
    settings = load_toml(asked.settings)
    known = [*settings["names"], *settings["metadata"], *settings["packed"]]
    unknown = sorted(set(asked.names) - set(known))
    if unknown:
        parser.error(f"{unknown[0]} is not in {asked.settings}")
    kept = Kept(asked.work)
    asked.ledger.mkdir(parents=True, exist_ok=True)
    shared: dict[str, bytes] = {}
    followed: dict[str, Mapping[Release, Sequence[str]]] = {}
    for name in asked.names or known:
        try:
            package = Package(name, kept, settings, fresh=asked.fresh)
        except (RequestException, NetworkConnectionError) as error:
            raise SystemExit(f"{name}: {error}: start again to go on from here") from None
        if name in settings["packed"]:
            shared[name] = package.text().encode()
        else:
            (asked.ledger / f"{name}.txt").write_text(package.text(), encoding="utf-8", newline="\n")
        counts = ", ".join(
            f"{len(package.sections[section])} {section}" for section in ("wheels", "requires", "offers")
        )
        print(f"{name}: {counts}", flush=True)
        if package.by_names:
            needs = package.sections["requires"]
            followed[name] = {one: tuple(needs.get(one, {}).get("*", ())) for one in package.sections["offers"]}
    if shared:
        write_packed(asked.ledger, shared, settings["packed"])
    ledger = Ledger(asked.ledger)
    for name, releases in followed.items():
        lines = "".join(f"{line}\n" for line in takes(name, releases, kept, ledger, settings))
        path = asked.ledger / f"{name}.txt"
        text = path.read_text(encoding="utf-8").replace("[takes]\n", f"[takes]\n{lines}", 1)
        path.write_text(text, encoding="utf-8", newline="\n")
    for name in ledger.packages():  # what is read now may be what others require
        path = asked.ledger / f"{name}.txt"
        text = with_flags(ledger, name, path.read_text(encoding="utf-8"))
        path.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
