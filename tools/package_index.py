"""What the package index that pip is configured for has: the files of a project, and members of a wheel by byte ranges.

Everything goes through pip's own client, so that indexes, proxies and certificates are those of its configuration. pip
has no stable Python API: this was written for pip 26.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Any
from zipfile import ZipFile

from packaging.utils import parse_wheel_filename
from packaging.version import Version
from pip._internal.commands import create_command
from pip._internal.index.collector import parse_links
from pip._internal.models.link import Link
from pip._internal.network.lazy_wheel import LazyZipOverHTTP


class Index:
    """The indexes that pip is configured for."""

    def __init__(self) -> None:
        command: Any = create_command("download")
        options, _ = command.parse_args(["--no-deps", "placeholder"])
        command._in_main_context = True  # the client is closed when the process ends
        self.client = command._build_session(options)
        self.finder = command._build_package_finder(options, self.client)

    def files(self, project: str) -> Iterator[Link]:
        """Yield every file of a project; a link has ``filename``, ``requires_python`` and ``yanked_reason``."""
        for page_url in self.finder.search_scope.get_index_urls_locations(project):
            page = self.finder._link_collector.fetch_response(Link(page_url))
            yield from parse_links(page) if page is not None else ()

    def wheels(self, project: str) -> dict[str, str]:
        """Return a wheel of every release that is not a candidate, for Linux or for any system, oldest first; also of
        withdrawn ones, because people have them."""
        found: dict[Version, str] = {}
        for name in (link.filename for link in self.files(project) if link.filename.endswith(".whl")):
            _, version, _, tags = parse_wheel_filename(name)
            if not version.is_prerelease and any("linux" in tag.platform or tag.platform == "any" for tag in tags):
                found.setdefault(version, name)
        return {str(version): found[version] for version in sorted(found)}

    def wheel(self, name: str, *, whole: bool = False) -> ZipFile:
        """Return the wheel of this file name; its members are fetched when read, unless it is fetched as a whole."""
        for link in self.files(name.partition("-")[0].replace("_", "-")):
            if link.filename == name and link.scheme.startswith("http"):
                if whole:
                    return ZipFile(BytesIO(self.client.get(link.url_without_fragment).content))
                return ZipFile(LazyZipOverHTTP(link.url_without_fragment, self.client))  # type: ignore[arg-type]
        raise SystemExit(f"{name} is on none of the configured indexes")
