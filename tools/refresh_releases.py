"""Write matrices/tables/releases.toml anew from the package index: python tools/refresh_releases.py [TABLE]

The packages, and the release that each list begins with, are those of the table as it is; its head is kept. Review the
difference before committing: it is what changed in the world, or a mistake.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path

from package_index import Index
from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version
from pip._internal.models.link import Link

from envdoctor.matrix import load_toml

TABLE = Path(__file__).parents[1] / "matrices" / "tables" / "releases.toml"


def released(files: Iterable[Link]) -> list[Version]:
    """Return the versions that are not withdrawn, in order."""
    found: set[Version] = set()
    for file in files:
        parse = parse_wheel_filename if file.filename.endswith(".whl") else parse_sdist_filename
        try:
            version = parse(file.filename)[1]
        except (InvalidWheelFilename, InvalidSdistFilename):
            continue
        if file.yanked_reason is None and not version.local:
            found.add(version)
    return sorted(found)


def chosen(found: Iterable[Version], first: Version) -> list[Version]:
    """From the release ``first`` on, without pre-releases where the package has others."""
    later = [version for version in found if version >= first]
    return [version for version in later if not version.is_prerelease] or later


def body(packages: Mapping[str, Iterable[Version]]) -> str:
    """Return the text of [releases]."""
    lines = ["[releases]"]
    for name, versions in packages.items():
        listed = ", ".join(f'"{version}"' for version in versions)
        lines += [f"{name} = [", textwrap.indent(textwrap.fill(listed, 116), "  ") + ",", "]"]
    return "\n".join([*lines, ""])


def main(table: Path) -> None:
    """Read every package of the table and write it again."""
    text = table.read_text(encoding="utf-8")
    present = load_toml(table)
    index = Index()
    packages = {
        name: chosen(released(index.files(name)), Version(versions[0]))
        for name, versions in present["releases"].items()
    }
    head = text.partition("[releases]\n")[0]
    head = head.replace(f"as_of = {present['table']['as_of']}", f"as_of = {date.today()}")
    table.write_text(head + body(packages), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else TABLE)
