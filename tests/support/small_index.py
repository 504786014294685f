"""A package index on this machine: JSON pages (PEP 691, PEP 700), files by byte ranges, and a log of what was asked."""

import io
import json
import re
import tarfile
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote
from zipfile import ZipFile


class SmallIndex:
    """Serves the files that were added; ``asked`` lists requests, ``broken`` answers 500 to paths that match it."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[bytes, dict[str, Any]]] = {}
        self.asked: list[str] = []
        self.broken = ""
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self) -> "SmallIndex":
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/simple"

    def wheel(self, name: str, version: str, day: str, members: Mapping[str, str], **more: Any) -> None:
        """Add a wheel; ``requires`` are its requirements, ``tags`` its tags, other words what the page says of it."""
        tags = more.pop("tags", "py3-none-any")
        info = f"{name}-{version}.dist-info"
        data = io.BytesIO()
        with ZipFile(data, "w") as file:
            for path, text in members.items():
                file.writestr(path, text)
            file.writestr(f"{info}/METADATA", _metadata(name, version, more.pop("requires", ())))
        self._add(f"{name}-{version}-{tags}.whl", data.getvalue(), day, more)

    def sdist(self, name: str, version: str, day: str, members: Mapping[str, str], **more: Any) -> None:
        """Add an sdist with a PKG-INFO that says no requirements."""
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w:gz") as file:
            for path, text in {**members, "PKG-INFO": _metadata(name, version, ())}.items():
                entry = tarfile.TarInfo(f"{name}-{version}/{path}")
                entry.size = len(text.encode())
                file.addfile(entry, io.BytesIO(text.encode()))
        self._add(f"{name}-{version}.tar.gz", data.getvalue(), day, more)

    def _add(self, name: str, data: bytes, day: str, more: dict[str, Any]) -> None:
        page = {"filename": name, "url": f"../../files/{name}", "hashes": {}, "size": len(data)}
        self.files[name] = data, {**page, "upload-time": f"{day}T10:00:00Z", **more}

    def page(self, project: str) -> bytes:
        """The project's page."""
        listed = [page for name, (_, page) in self.files.items() if name.partition("-")[0].replace("_", "-") == project]
        return json.dumps({"meta": {"api-version": "1.1"}, "name": project, "files": listed}).encode()


def _metadata(name: str, version: str, requires: tuple[str, ...]) -> str:
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {version}",
        *(f"Requires-Dist: {r}" for r in requires),
    ]
    return "\n".join([*lines, "", "Requires-Dist: this is prose"])


def _handler(index: SmallIndex) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            index.asked.append(self.path)
            self._answer(body=True)

        def log_message(self, *_: object) -> None:
            pass

        def _answer(self, *, body: bool) -> None:
            parts = unquote(self.path).strip("/").split("/")
            kind = "application/octet-stream"
            status = 200
            if index.broken and re.search(index.broken, self.path):
                data, status = b"", 500
            elif parts[0] == "simple" and (data := index.page(parts[1])) and b'"filename"' in data:
                kind = "application/vnd.pypi.simple.v1+json"
            elif parts[0] == "files" and parts[1] in index.files:
                data = index.files[parts[1]][0]
            else:
                data, status = b"", 404
            asked = re.match(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            if asked and status == 200:
                data, status = data[int(asked[1]) : int(asked[2]) + 1], 206
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Accept-Ranges", "bytes")
            self.end_headers()
            if body:
                self.wfile.write(data)

    return Handler
