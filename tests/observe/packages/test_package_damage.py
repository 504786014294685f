"""Packages whose files are not those that were installed, though their metadata is there."""

import json
import shutil
from base64 import urlsafe_b64encode
from hashlib import sha256
from pathlib import Path

import pytest
from observing import choose, observe, one, write
from rooms import observer

from envdoctor.facts import Records

package_damage = observer("package_damage")

EXTENSION = "tokenizers/tokenizers.abi3.so"
ELF = b"\x7fELF"


def digest(content: bytes) -> str:
    return urlsafe_b64encode(sha256(content).digest()).decode().rstrip("=")


@pytest.fixture
def wheel(site: Path, make_dist):
    """Unpack a wheel: ``wheel("peft", "0.22.1", {"peft/__init__.py": b""})``; one with a library is compiled."""

    def unpack(name: str, version: str, files: dict[str, bytes], installer: str = "pip", **more) -> None:
        write(site, files)
        record = "".join(f"{path},sha256={digest(content)},{len(content)}\n" for path, content in files.items())
        tag = "cp39-abi3-manylinux_2_17_x86_64" if any(files.values()) else "py3-none-any"
        wheel = f"Wheel-Version: 1.0\nTag: {tag}\n"
        make_dist(site, name, version, INSTALLER=f"{installer}\n", WHEEL=wheel, RECORD=record, **more)

    return unpack


@pytest.fixture
def damage(venv: Path, tmp_path: Path):
    """What is found: (package, kind, file, whether the import must fail)."""

    def look() -> list[tuple[object, ...]]:
        layout = choose(venv / "bin" / "python", cwd=tmp_path)
        value = one(package_damage, layout, observe(layout).seen, cwd=str(tmp_path)).value
        assert isinstance(value, Records)
        return [tuple(item.get(column) for column in ("package", "kind", "file", "fails")) for item in value]

    return look


TOKENIZERS = {"tokenizers/__init__.py": b"", EXTENSION: ELF}
PYD = "tokenizers/tokenizers.cp311-win_amd64.pyd"
TESTS = "numpy/_core/_umath_tests.cpython-311-x86_64-linux-gnu.so"
CUDA = {f"bitsandbytes/libbitsandbytes_cuda{cuda}.so": ELF for cuda in (118, 126)}


@pytest.mark.parametrize(
    ("name", "files", "installer", "gone", "found"),
    [
        ("tokenizers", TOKENIZERS, "pip", None, None),
        ("tokenizers", TOKENIZERS, "pip", EXTENSION, True),
        ("tokenizers", {**TOKENIZERS, PYD: b"MZ", "tokenizers/a.dll": b"MZ"}, "pip", PYD, True),
        ("tokenizers", TOKENIZERS, "pex 2.1", EXTENSION, True),
        ("tokenizers", TOKENIZERS, "conda", EXTENSION, None),  # its lists are not taken at their word
        ("tokenizers", TOKENIZERS, "installer 0.7.0", EXTENSION, None),
        ("numpy", {"numpy/__init__.py": b"", TESTS: ELF}, "pip", TESTS, None),  # what only tests use
        ("bitsandbytes", {"bitsandbytes/__init__.py": b"", **CUDA}, "pip", next(iter(CUDA)), False),  # other hardware
    ],
)
def test_a_compiled_file_that_is_gone_may_end_the_import(wheel, site, damage, name, files, installer, gone, found):
    wheel(name, "1.0", files, installer)
    if gone is not None:
        (site / gone).unlink()
    assert damage() == ([] if found is None else [(name, "files-gone", gone, found)])


@pytest.mark.parametrize("listed", [True, False])
def test_a_list_that_names_an_installer_that_is_gone_holds(wheel, site, damage, listed):
    wheel("tokenizers", "0.22.1", TOKENIZERS)
    (metadata,) = site.glob("tokenizers-*.dist-info")
    (metadata / "INSTALLER").unlink()
    if listed:
        with (metadata / "RECORD").open("a") as record:
            record.write(f"{metadata.name}/INSTALLER,,\n")
    (site / EXTENSION).unlink()
    assert damage() == ([("tokenizers", "files-gone", EXTENSION, True)] if listed else [])


PATCHED = f"{EXTENSION} (its content is not what was installed, and its size is)"


@pytest.mark.parametrize(
    ("content", "kind", "file"), [(ELF, "files-damaged", EXTENSION), (ELF * 99 + b"\x7fELG", "unread", PATCHED)]
)
def test_a_library_that_is_cut_off_ends_the_import_and_a_wrong_byte_may(wheel, site, damage, content, kind, file):
    wheel("tokenizers", "0.22.1", {**TOKENIZERS, EXTENSION: ELF * 100})
    (site / EXTENSION).write_bytes(content)
    assert damage() == [("tokenizers", kind, file, kind != "unread")]


def test_of_two_packages_with_one_file_the_last_one_has_it(wheel, damage):
    wheel("tokenizers", "0.22.1", TOKENIZERS)
    wheel("tokenizers_fast", "1.0", {EXTENSION: ELF * 2, "tokenizers/__init__.py": b"x = 1\n"})
    assert damage() == []


def test_what_the_stack_needs_is_looked_at_and_other_packages_are_not(wheel, site, make_dist, damage):
    gone = "pydantic_core/_pydantic_core.cpython-311-x86_64-linux-gnu.so"
    wheel("pydantic_core", "2.50.4", {"pydantic_core/__init__.py": b"", gone: ELF})
    (site / gone).unlink()
    assert damage() == []
    wheel("wandb", "0.22.0", {"wandb/__init__.py": b""}, lines=["Requires-Dist: pydantic-core>=2"])
    assert damage() == [("pydantic-core", "files-gone", gone, True)]


def test_flash_attn_without_its_extension_cannot_be_imported(wheel, site, damage):
    wheel("flash_attn", "2.8.3", {"flash_attn/__init__.py": b""})
    assert damage() == [("flash-attn", "files-gone", "flash_attn_2_cuda.*.so", True)]
    (site / "flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so").write_bytes(ELF)
    assert damage() == []


@pytest.mark.parametrize("name", ["peft", "gradio"])
def test_a_package_whose_folder_was_removed(wheel, site, damage, name):
    wheel(name, "0.17.1", {f"{name}/__init__.py": b""})
    shutil.rmtree(site / name)
    assert damage() == [(name, "module-gone", f"{name}/__init__.py", True)]


@pytest.mark.parametrize("file", ["optimum/exporters/__init__.py", "optimum/onnxruntime/__init__.py"])
def test_a_namespace_package_has_no_init_file_and_was_not_left_behind(wheel, damage, file):
    wheel("optimum" if "exporters" in file else "optimum_onnx", "2.0.0", {file: b""})
    assert damage() == []


def test_a_folder_that_an_uninstall_left_can_be_imported_and_is_empty(site, damage):
    (site / "peft").mkdir()
    (site / "peft" / "notes.txt").write_text("mine")
    assert damage() == [("peft", "left-behind", str(site / "peft"), False)]


def test_an_editable_install_whose_folder_is_gone_unless_it_is_found_elsewhere(site, tmp_path, make_dist, damage):
    source = tmp_path / "src dir"
    (source / "peft").mkdir(parents=True)
    (source / "peft" / "__init__.py").write_text("")
    said = {"url": source.as_uri(), "dir_info": {"editable": True}}
    make_dist(site, "peft", "0.17.1", direct_url__json=json.dumps(said))
    for line, reached in (("", True), ("import os\n", True), ("import _peft\n", False), ("import site  # ", True)):
        (site / f"{'_peft' if '#' not in line else 'peft-editable'}.pth").write_text(f"{line}{source}\n")
        assert damage() == [("peft", "source-unreached", str(source), True)] * (not reached)
    (source / "peft").rename(tmp_path / "moved")
    source.rmdir()
    assert damage() == [("peft", "source-gone", str(source), True)]
    (tmp_path / "moved").rename(tmp_path / "peft")
    assert damage() == []


FINDER = "MAPPING: dict[str, str] = {{'other': '/gone', 'peft': '{}/peft'}}\nNAMESPACES: dict[str, list[str]] = {{}}\n"


@pytest.mark.parametrize(
    ("file", "text"),
    [("__editable__.peft-0.17.1.pth", "{}\n"), ("_peft.pth", "{}\n"), ("__editable___peft_0_17_1_finder.py", FINDER)],
)
def test_an_editable_install_whose_code_was_moved_within_its_folder(site, tmp_path, make_dist, damage, file, text):
    source = tmp_path / "project" / "src"
    write(source, {"peft/__init__.py": ""})
    said = {"url": (tmp_path / "project").as_uri(), "dir_info": {"editable": True}}
    make_dist(site, "peft", "0.17.1", direct_url__json=json.dumps(said))
    (site / file).write_text(text.format(source))
    if text == FINDER:
        (site / "peft.pth").write_text("import __editable___peft_0_17_1_finder as finder; finder.install()\n")
    assert damage() == []
    shutil.rmtree(source)
    gone = source / "peft" if text == FINDER else source
    assert damage() == [("peft", "source-gone", str(gone), True)]
