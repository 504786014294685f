"""Packages as an installer leaves them."""

from collections.abc import Mapping
from pathlib import Path


def install(site: Path, name: str, version: str, *lines: str, files: Mapping[str, str | bytes] | None = None) -> Path:
    """Write a package with these files and further lines of METADATA into ``site``; gives its ``.dist-info``."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    head = ("Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *lines)
    (info / "METADATA").write_text("\n".join(head) + "\n\n")
    for path, content in (files or {}).items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(content.encode() if isinstance(content, str) else content)
    listed = [*(files or ()), f"{info.name}/METADATA", f"{info.name}/RECORD"]
    (info / "RECORD").write_text("".join(f"{path},,\n" for path in listed))
    return info
