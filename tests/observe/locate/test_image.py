"""The environment in an image's archive: layers on top of each other, and what hostile ones come to."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import tempfile

import pytest
from images import SITE, docker_archive, layer, oci_archive, package, python

from envdoctor.observe.locate.bare import inside
from envdoctor.observe.locate.image.archive import open_image
from envdoctor.observe.locate.layout import EnvironmentNotFound


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path, monkeypatch):
    """Nothing may be left there, and nothing outside of it may be written."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert not list(folder.iterdir())


def names(path, folder=SITE):
    image = open_image(str(path))
    try:
        return image.names_or_none(os.path.join(image.root, folder))
    finally:
        image.cleanup()


def read(path, name):
    image = open_image(str(path))
    try:
        return image.head(os.path.join(image.root, name), 100)
    finally:
        image.cleanup()


@pytest.mark.parametrize("write", [docker_archive, oci_archive])
def test_a_later_layer_replaces_and_removes(tmp_path, write):
    lower = layer(*python(), *package("tokenizers", "0.19.1"), *package("torch", "2.5.0"))
    upper = layer((f"{SITE}/.wh.tokenizers-0.19.1.dist-info", b""), *package("tokenizers", "0.20.1"))
    write(tmp_path / "a.tar", [lower, upper])
    assert names(tmp_path / "a.tar") == ["tokenizers-0.20.1.dist-info", "torch-2.5.0.dist-info"]


def test_an_opaque_folder_hides_what_lies_below_it_wherever_it_stands_in_its_layer(tmp_path):
    lower = layer((f"{SITE}/old/__init__.py", b""))
    docker_archive(tmp_path / "a.tar", [lower, layer((f"{SITE}/new/__init__.py", b""), (f"{SITE}/.wh..wh..opq", b""))])
    assert names(tmp_path / "a.tar") == ["new"]


def test_entries_below_a_link_go_where_it_leads_in_the_image(tmp_path):
    entries = [("lib", ("link", "/usr/lib")), ("lib/python3/a.py", b"1"), ("up/b.py", b"2")]
    out = [("away", ("link", "/../../../../..")), ("away/up/c.py", b"3")]
    docker_archive(tmp_path / "a.tar", [layer(*entries), layer(*out)])
    assert read(tmp_path / "a.tar", "usr/lib/python3/a.py") == b"1" and read(tmp_path / "a.tar", "up/c.py") == b"3"
    assert names(tmp_path / "a.tar", "up") == ["b.py", "c.py"]


def test_hard_links_are_files_of_the_image_and_of_no_other_place(tmp_path):
    entries = [(f"{SITE}/a.py", b"1"), (f"{SITE}/b.py", ("same", f"{SITE}/a.py"))]
    docker_archive(tmp_path / "a.tar", [layer(*entries, (f"{SITE}/c.py", ("same", "/etc/passwd")))])
    assert names(tmp_path / "a.tar") == ["a.py", "b.py"] and read(tmp_path / "a.tar", f"{SITE}/b.py") == b"1"


@pytest.mark.parametrize("write", [docker_archive, oci_archive])
def test_libraries_are_read_when_somebody_opens_them_and_other_contents_stay(tmp_path, write):
    write(tmp_path / "a.tar", [layer((f"{SITE}/x/_C.so", b"\x7fELF"), (f"{SITE}/x/data.bin", b"12"))])
    assert read(tmp_path / "a.tar", f"{SITE}/x/_C.so") == b"\x7fELF"
    assert names(tmp_path / "a.tar", f"{SITE}/x") == ["_C.so", "data.bin"]
    with pytest.raises(OSError, match="left in the image"):
        read(tmp_path / "a.tar", f"{SITE}/x/data.bin")


def test_the_environment_is_that_of_its_path(tmp_path):
    venv = [("srv/env/pyvenv.cfg", b"home = /usr/local/bin\nversion = 3.11.9\n")]
    inner = package("torch", "2.6.0", site="srv/env/lib/python3.11/site-packages")
    config = {"architecture": "arm64", "config": {"Env": ["PATH=/srv/env/bin:/usr/local/bin", 1, "ODD"]}}
    docker_archive(tmp_path / "a.tar", [layer(*python(), *package("torch", "2.5.0"), *venv, *inner)], config)
    image = open_image(str(tmp_path / "a.tar"))
    layout = inside(image, "--image", image.variables["PATH"])
    assert layout.because == "--image, /srv/env inside it" and image.machine == "aarch64"
    image.cleanup()


def _sparse():
    info = tarfile.TarInfo(f"{SITE}/x.py")
    info.type = tarfile.GNUTYPE_SPARSE
    return info.tobuf(tarfile.GNU_FORMAT)[:483] + b"77777777777\0" + bytes(1041)


def _claims(size, kind=tarfile.REGTYPE):
    info = tarfile.TarInfo(f"{SITE}/x.py")
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (layer(("../../up.py", b"")), "has an entry whose name no image has: ../../up.py"),
        (layer(("a/" * 800 + "x.py", b"")), "has an entry whose name no image has"),
        (layer(("a", ("link", "b")), ("b", ("link", "a")), ("a/x.py", b"")), "has links that lead to each other: a"),
        (_claims(1 << 62), "is damaged, cut off, or no image"),
        (_claims(1 << 33, b"x"), "has a header that is too large"),
        (_claims(5, b"L") * 5000, "is damaged, cut off, or no image"),
        (_sparse(), "is damaged, cut off, or no image"),
        (layer((f"{SITE}/x.py", b"1"))[:512], "is damaged, cut off, or no image"),
        (gzip.compress(layer((f"{SITE}/x.py", b"1" * 9999)))[:-20], "is damaged, cut off, or no image"),
        (b"\x28\xb5\x2f\xfd" + bytes(99), "compressed with zstd|is damaged, cut off, or no image"),
        (b"", "is damaged, cut off, or no image"),
    ],
)
def test_hostile_layers_are_a_sentence(tmp_path, content, said):
    docker_archive(tmp_path / "a.tar", [content])
    with pytest.raises(EnvironmentNotFound, match=said):
        open_image(str(tmp_path / "a.tar"))


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"manifest.json": b'[{"Config": [], "Layers": {"a": 1}}]'}, "has a manifest that cannot be read"),
        ({"manifest.json": b"[" * 100_000}, "is damaged, cut off, or no image"),
        ({"manifest.json": b'[{"Config": "a"}, {"Config": "b"}]'}, "holds 2 images: one is expected"),
        ({"manifest.json": b'[{"Config": "c", "Layers": ["x"]}]', "c": b"{}"}, "lacks x, which its manifest names"),
        ({"manifest.json": b'[{"Config": "c", "Layers": ["c"]}]', "c": ("link", "c")}, "lead to each other"),
        ({"index.json": b'{"manifests": []}'}, "holds no image"),
    ],
)
def test_hostile_manifests_are_a_sentence(tmp_path, members, said):
    (tmp_path / "a.tar").write_bytes(layer(*members.items()))
    with pytest.raises(EnvironmentNotFound, match=said):
        open_image(str(tmp_path / "a.tar"))


def test_what_is_no_image_is_a_sentence(tmp_path):
    written = io.BytesIO(gzip.compress(layer(("a", b""))))
    for content, said in (
        (b"no tar" * 999, "damaged"),
        (b"", "damaged"),
        (written.getvalue(), "compressed as a whole"),
    ):
        (tmp_path / "a.tar").write_bytes(content)
        with pytest.raises(EnvironmentNotFound, match=said):
            open_image(str(tmp_path / "a.tar"))


def test_more_than_any_image_holds_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("envdoctor.observe.locate.image.layers._MOST_KEPT", 10)
    docker_archive(tmp_path / "a.tar", [gzip.compress(layer(*((f"{SITE}/{number}", None) for number in range(11))))])
    with pytest.raises(EnvironmentNotFound, match="too many files and entries"):
        open_image(str(tmp_path / "a.tar"))
