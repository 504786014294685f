"""Write matrices/ledger/NAME.xz anew: python tools/harvest_changes.py --work DIR [NAME ...]

What changed between the releases of a package: names of modules, members of classes, parameters. ``[changes]`` of
tools/harvest.toml says of which packages, and from when on. As with tools/harvest.py everything that is fetched is kept
in DIR, and started again it goes on there.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harvesting.changing import lines_of, read
from harvesting.kept import Kept
from harvesting.releases import chosen, released
from harvesting.stubs import told_earlier, with_stubs
from harvesting.writing import compressed

from envdoctor.matrix import Ledger, load_toml

HERE = Path(__file__).parent
LEDGER = HERE.parent / "matrices" / "ledger"
#: How much is read of the modules with a beginning; the first that fits counts.
DEPTHS = {"deep": 2, "unread": -1, "shallow": 0, "thin": 1}


def text_of(name: str, kept: Kept, ledger: Ledger, asked: Mapping[str, Any], depth: Callable[[str], int]) -> str:
    """Return the file of one package, not yet compressed. The ledger has to know its modules and releases."""
    package = ledger.package(name)
    if package is None:
        raise SystemExit(f"{name}: harvest it with tools/harvest.py first")
    listed = {release.version for release in package.releases}
    versions, found, stubs = [], [], []
    for release in chosen(released(kept.files(name)), str(asked["since"]), str(asked["patches"])):
        if str(release.version) not in listed or kept.metadata(name, release, sources=True) is None:
            continue
        one = read(kept.sources(name, release), package.modules, sys.stdlib_module_names, depth)
        if one["offers"]:
            versions.append(str(release.version))
            found.append(one)
            stubs.append(with_stubs(one, kept.sources(name, release), asked.get("stubs", {})))
    told_earlier(found, stubs)
    whole = set(package.modules) - set(asked.get("stubs", ()))  # stubs never tell of all
    return "".join(f"{line}\n" for line in ["\t".join(versions), *lines_of(versions, found, whole)])


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the packages that are named, or all, and write their files."""
    parser = argparse.ArgumentParser(description="Write matrices/ledger/*.xz anew from the package index.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="packages of the settings; all when none is given")
    parser.add_argument("--work", type=Path, required=True, help="folder for what is fetched, outside the repository")
    parser.add_argument("--ledger", type=Path, default=LEDGER, help="folder that is written")
    parser.add_argument("--settings", type=Path, default=HERE / "harvest.toml", help="which packages are read")
    asked = parser.parse_args(arguments)
    settings = load_toml(asked.settings)
    starts = [(tuple(settings["changes"][key]), depth) for key, depth in DEPTHS.items()]

    def depth(module: str) -> int:
        names = {2: f"{module}."}  # the others are of the modules below
        return next((number for start, number in starts if names.get(number, module).startswith(start)), 2)

    ledger = Ledger(asked.ledger)
    gc.disable()  # hundreds of thousands of syntax trees, none of them in a cycle
    for name in asked.names or settings["changes"]["packages"]:
        text = text_of(name, Kept(asked.work), ledger, settings["changes"]["packages"][name], depth)
        data = compressed(text.encode())
        (asked.ledger / f"{name}.xz").write_bytes(data)
        print(f"{name}: {len(text):,} bytes of text, {len(data):,} compressed", flush=True)


if __name__ == "__main__":
    main()
