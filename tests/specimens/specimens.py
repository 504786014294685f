"""Broken environments as recipes: a healthy one, what is done to it, and what must be said of it."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import stand_ins
from environments import Built, Recording, Store, build, link, package_of, place, recordings, remove, write

from envdoctor.matrix import load_toml

_HEALTHY = {recording.name: recording for recording in recordings("healthy")}


class Specimen(NamedTuple):
    """One broken environment.

    ``cause`` is what was done, in words. ``said`` is the recipe: ``base`` names the healthy environment, ``edits`` are
    done in order, ``set`` and ``environ`` describe the machine and the caller. ``errors`` and ``warnings`` are what
    envdoctor shows at these levels, no more and no less. ``pending`` says which rule is still to be written.
    """

    id: str
    said: Mapping[str, Any]

    @property
    def cause(self) -> str:
        return str(self.said["cause"])

    @property
    def base(self) -> Recording:
        return _HEALTHY[self.said["base"]]

    @property
    def python(self) -> str:
        return str(self.said.get("python", self.base.said["python"]))

    @property
    def pending(self) -> str | None:
        return self.said.get("pending")

    @property
    def is_virtual(self) -> bool:
        """Whether other tools can be pointed at it: a virtual environment for Python 3.11 of this machine."""
        return self.base.said["layout"] in ("venv", "uv") and self.python.startswith("3.11.")

    def expected(self, severity: str) -> list[str]:
        return sorted(self.said.get(severity + "s", ()))

    def assignments(self) -> list[str]:
        """The machine and the recipe of the base, then what the specimen says."""
        given = [*self.base.said["machine"], *self.base.said["recipe"]] if self.said.get("at_work", True) else []
        own = list(self.said.get("set", ()))
        replaced = {text.partition("=")[0].partition(".")[0] for text in own if text == "gpu=absent"}
        return [text for text in given if text.partition(".")[0] not in replaced] + own

    def wheels(self) -> Iterator[str]:
        """The recorded wheels that its edits install."""
        return (edit["install"] for edit in self.said.get("edits", ()) if "install" in edit)


SPECIMENS = [Specimen(name, said) for name, said in load_toml(Path(__file__).with_name("specimens.toml")).items()]


def build_specimen(specimen: Specimen, home: Path, store: Store, interpreter: Path | None = None) -> Built:
    """The broken environment, below ``home``."""
    said = {**specimen.base.said, "python": specimen.python, "environ": specimen.said.get("environ", {})}
    built = build(said, home, store, interpreter=interpreter)
    for edit in specimen.said.get("edits", ()):
        _apply(edit, built, store, specimen)
    return built


def _apply(edit: Mapping[str, Any], built: Built, store: Store, specimen: Specimen) -> None:
    home, site = built.home, built.site
    folder = place(edit["in"], home, site) if "in" in edit else site
    torch = next((path.name.split("-")[1] for path in site.glob("torch-*.dist-info")), "2.0")
    match edit:
        case {"uninstall": name}:
            _uninstall(str(name), folder)
        case {"install": wanted}:
            link(store.unpacked(store.find(wanted, specimen.python), torch, "pip"), folder)
        case {"package": package}:
            package_of(package, home, site, torch)
        case {"remove": pattern}:
            remove(list(folder.glob(pattern)))
        case {"write": path, **rest}:
            write(place(path, home, site), rest.get("text", ""))
        case {"cut": path, "bytes": size}:
            write(place(path, home, site), place(path, home, site).read_bytes()[:size])
        case {"replace": path, "old": old, "new": new}:
            text = place(path, home, site).read_text()
            assert old in text, f"{path} does not say {old}"
            write(place(path, home, site), text.replace(old, new))
        case {"copy": path, "to": target}:
            link(place(path, home, site), place(target, home, site))
        case {"library": path}:
            write(place(path, home, site), stand_ins.library(Path(path).name, torch))
        case _:
            raise AssertionError(f"{specimen.id}: no such edit: {edit}")


def _uninstall(pattern: str, folder: Path) -> None:
    """Remove distributions by name (``nvidia-*``): the files that they list, and their metadata."""
    wanted = re.compile(re.sub("[-_]", "[-_]", pattern).replace("*", ".*") + r"-\d[^-]*\.dist-info\Z", re.IGNORECASE)
    found = [path for path in folder.iterdir() if wanted.match(path.name)]
    assert found, f"{pattern} is not installed"
    for info in found:
        listed = [folder / line.partition(",")[0] for line in (info / "RECORD").read_text().splitlines()]
        remove([path for path in listed if path.exists()])
        remove([info])
    for path in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
        if not any(path.iterdir()):
            path.rmdir()
