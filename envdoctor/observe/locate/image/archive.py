"""An image in one file, as ``docker save``, ``podman save`` and ``skopeo`` write it (docker-archive, OCI image layout),
or the file system of a container (``docker export``): the environment in it, laid out like a folder.

https://github.com/opencontainers/image-spec/blob/main/image-layout.md and layer.md;
https://github.com/moby/docker-image-spec/blob/main/spec.md
"""

import errno
import json
import os
import posixpath
from collections.abc import Mapping, Sequence
from tempfile import TemporaryDirectory
from typing import IO, Any, NamedTuple

from envdoctor.observe.locate.image.layers import Layers
from envdoctor.observe.locate.image.stream import BROKEN, ImageUnreadable, Stream, entries, plain
from envdoctor.observe.locate.layout import EnvironmentNotFound
from envdoctor.text.files import Budget, Files, Spent, because_of

__all__ = ["Image", "open_image"]

#: A layer of 20 GB with 300,000 entries that gzip has compressed takes two minutes.
_SECONDS, _BYTES, _STEPS = 600.0, 128 << 30, 8_000_000
_MOST_LAYERS = 200
_LARGEST_DOCUMENT = 4 << 20
_MOST_LINKS = 8
#: The machine as the configuration of an image names it (GOARCH), and as Linux does.
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


class Image(Files):
    """An image's files, in a private temporary folder that :meth:`cleanup` removes.

    Libraries of layers that are not compressed are taken out when somebody opens them. ``variables`` are those that the
    image sets; ``machine`` is as ``uname -m`` says it, empty where the image does not tell.
    """

    __slots__ = ("_archive", "_folder", "_left", "machine", "variables")

    def __init__(self, archive: "_Archive") -> None:
        """Raises what stands in ``BROKEN``, :class:`ImageUnreadable` and :class:`~envdoctor.text.files.Spent`."""
        self._archive, self._folder = archive, TemporaryDirectory(prefix="envdoctor-")
        super().__init__(os.path.join(self._folder.name, "root"), Budget())
        try:
            config, names = archive.image()
            taken = os.path.join(self._folder.name, "taken")
            os.mkdir(taken)
            layers = Layers(taken)
            for name in names:
                layers.add(archive.layer(name))
            self._left = layers.write(str(self.root))
        except BaseException:
            self.cleanup()
            raise
        told = config.get("config")
        lines = told.get("Env") if isinstance(told, dict) else None
        self.variables = dict(str(one).partition("=")[::2] for one in (lines if isinstance(lines, list) else ()))
        machine = str(config.get("architecture", ""))
        self.machine = _MACHINES.get(machine, machine)

    def open(self, path: str) -> int:
        real = self.real(path)
        if real in self._left:
            start, size = self._left[real], os.path.getsize(real)
            if start < 0:
                raise OSError(errno.EFBIG, "it was left in the image", path)
            with open(real, "r+b") as file:
                for piece in self._archive.part(start, size).pieces(size):
                    file.write(piece)
            del self._left[real]
        return super().open(path)

    def cleanup(self) -> None:
        """Remove all that was taken out."""
        self._folder.cleanup()
        self._archive.close()


def open_image(path: str) -> Image:
    """The image in a file. Raises :class:`EnvironmentNotFound`: what follows the file's name in a sentence."""
    try:
        file = os.fdopen(Files().open(path), "rb", 0)
    except (OSError, ValueError) as error:
        raise EnvironmentNotFound(f"cannot be read: {because_of(error)}") from None
    try:
        return Image(_Archive(file))
    except Spent as spent:
        problem = f"was {spent}"
    except ImageUnreadable as error:
        problem = str(error)
    except BROKEN as error:
        known = isinstance(error, OSError) and error.errno not in (None, errno.EINVAL)
        problem = f"cannot be read: {because_of(error)}" if known else "is damaged, cut off, or no image"
    file.close()
    raise ImageUnreadable(problem)


class _Member(NamedTuple):
    """Where the content of a member of the archive lies; ``link`` names the member that it stands for."""

    start: int
    size: int
    link: str


class _Archive:
    """The members of the file, by name."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._budget = Budget(seconds=_SECONDS, size=_BYTES, steps=_STEPS)
        whole = os.fstat(file.fileno()).st_size
        stream = self.part(0, whole)
        if stream.start is None:
            raise ImageUnreadable("is compressed as a whole: decompress it first, its layers may stay compressed")
        self._members = {
            posixpath.normpath(one.name): _Member(one.offset_data, one.size, one.linkname if one.issym() else "")
            for one in entries(stream)
            if one.isreg() or one.issym()
        }
        self._members.setdefault("", _Member(0, whole, ""))

    def image(self) -> tuple[Mapping[str, Any], Sequence[str]]:
        """The configuration, and the names of the layers from the lowest up. Raises :class:`ImageUnreadable`."""
        try:
            if "manifest.json" in self._members:
                described = self._one(self._document("manifest.json"))
                config, layers = described["Config"], described["Layers"]
            elif "index.json" in self._members:
                described = self._document("index.json")
                for _ in range(_MOST_LINKS):
                    if "manifests" in described:
                        described = self._document(_blob(self._one(described["manifests"])))
                config, layers = _blob(described["config"]), [_blob(layer) for layer in described["layers"]]
            else:
                return {}, [""]  # the file system itself
            if len(layers) > _MOST_LAYERS:
                raise ImageUnreadable(f"has more than {_MOST_LAYERS} layers")
            return dict(self._document(config)), [str(layer) for layer in layers]
        except (LookupError, TypeError, AttributeError):
            raise ImageUnreadable("has a manifest that cannot be read") from None

    def _one(self, described: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """The one image that is there; of several for different machines that for x86-64."""
        there = [one for one in described if "digest" not in one or _blob(one) in self._members]
        platforms = [one.get("platform") or {} for one in there]
        there = [one for one, of in zip(there, platforms, strict=True) if of.get("os") != "unknown"]
        if len(there) > 1:
            there = [one for one in there if (one.get("platform") or {}).get("architecture") == "amd64"] or there
        if len(there) != 1:
            raise ImageUnreadable(f"holds {len(there)} images: one is expected" if there else "holds no image")
        return there[0]

    def _document(self, name: str) -> Any:
        member = self._member(name)
        if member.size > _LARGEST_DOCUMENT:
            raise ImageUnreadable(f"has a {name} that is too large")
        return json.loads(b"".join(self.part(member.start, member.size).pieces(member.size)))

    def layer(self, name: str) -> Stream:
        """A layer without its compression. Raises :class:`ImageUnreadable`."""
        member = self._member(name)
        return self.part(member.start, member.size)

    def part(self, start: int, size: int) -> Stream:
        """A range of the file, without its compression if it has one."""
        return plain(self._file, start, size, self._budget)

    def close(self) -> None:
        """Nothing is read any more."""
        self._file.close()

    def _member(self, name: str) -> _Member:
        for _ in range(_MOST_LINKS):
            member = self._members.get(name)
            if member is None:
                raise ImageUnreadable(f"lacks {name[:100]}, which its manifest names")
            if not member.link:
                return member
            name = posixpath.normpath(posixpath.join(posixpath.dirname(name), member.link))
        raise ImageUnreadable(f"has links that lead to each other: {name[:100]}")


def _blob(described: Mapping[str, Any]) -> str:
    return "blobs/" + str(described["digest"]).replace(":", "/")
