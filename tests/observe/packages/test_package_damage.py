"""Packages whose files are not those that were installed, though their metadata is there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from observing import choose, observe, one
from rooms import observer

from envdoctor.facts import Records

package_damage = observer("package_damage")

EXTENSION = "tokenizers/tokenizers.abi3.so"
ELF = b"\x7fELF"


@pytest.fixture
def wheel(site: Path, make_dist):
    """Unpack a wheel: ``wheel("tokenizers", "0.22.1", {"tokenizers/__init__.py": b""}, compiled=True)``."""

    def unpack(name: str, version: str, files: dict[str, bytes], *, compiled: bool, installer: str = "pip") -> Path:
        for path, content in files.items():
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            (site / path).write_bytes(content)
        record = "".join(f"{path},sha256={'x' * 43},{len(content)}\n" for path, content in files.items())
        tag = "cp39-abi3-manylinux_2_17_x86_64" if compiled else "py3-none-any"
        return make_dist(
            site, name, version, INSTALLER=f"{installer}\n", WHEEL=f"Wheel-Version: 1.0\nTag: {tag}\n", RECORD=record
        )

    return unpack


@pytest.fixture
def tokenizers(wheel) -> Path:
    return wheel("tokenizers", "0.22.1", {"tokenizers/__init__.py": b"", EXTENSION: ELF}, compiled=True)


@pytest.fixture
def damage(venv: Path, tmp_path: Path):
    """What is found: (package, kind, file, whether the import must fail)."""

    def look() -> list[tuple[object, ...]]:
        layout = choose(str(venv / "bin" / "python"), None, None, environ={}, cwd=str(tmp_path))
        value = one(package_damage, layout, observe(layout).seen, cwd=str(tmp_path)).value
        assert isinstance(value, Records)
        return [tuple(item.get(column) for column in ("package", "kind", "file", "fails")) for item in value]

    return look


def test_a_whole_installation_has_no_damage(tokenizers, damage):
    assert damage() == []


def test_an_extension_module_that_is_gone_ends_the_import(tokenizers, site, damage):
    (site / EXTENSION).unlink()
    assert damage() == [("tokenizers", "files-gone", EXTENSION, True)]


def test_a_module_of_windows_that_is_gone_ends_the_import(wheel, site, damage):
    module = "tokenizers/tokenizers.cp311-win_amd64.pyd"
    wheel(
        "tokenizers", "0.22.1", {"tokenizers/__init__.py": b"", module: b"MZ", "tokenizers/a.dll": b"MZ"}, compiled=True
    )
    (site / module).unlink()
    assert damage() == [("tokenizers", "files-gone", module, True)]


def test_a_library_that_is_cut_off_ends_the_import(wheel, site, damage):
    wheel("tokenizers", "0.22.1", {"tokenizers/__init__.py": b"", EXTENSION: ELF * 100}, compiled=True)
    (site / EXTENSION).write_bytes(ELF)
    assert damage() == [("tokenizers", "files-damaged", EXTENSION, True)]


def test_what_only_tests_use_may_be_removed(wheel, site, damage):
    spare = "numpy/_core/_umath_tests.cpython-311-x86_64-linux-gnu.so"
    wheel("numpy", "2.4.6", {"numpy/__init__.py": b"", spare: ELF}, compiled=True)
    (site / spare).unlink()
    assert damage() == []


def test_a_library_for_other_hardware_may_be_missed_without_failing(wheel, site, damage):
    files = {f"bitsandbytes/libbitsandbytes_cuda{cuda}.so": ELF for cuda in (118, 126)}
    wheel("bitsandbytes", "0.48.0", {"bitsandbytes/__init__.py": b"", **files}, compiled=True)
    (site / "bitsandbytes" / "libbitsandbytes_cuda118.so").unlink()
    assert damage() == [("bitsandbytes", "files-gone", "bitsandbytes/libbitsandbytes_cuda118.so", False)]


def test_the_lists_of_conda_are_not_taken_at_their_word(wheel, site, damage):
    wheel("tokenizers", "0.22.1", {"tokenizers/__init__.py": b"", EXTENSION: ELF}, compiled=True, installer="conda")
    (site / EXTENSION).unlink()
    assert damage() == []


def test_what_the_stack_needs_is_looked_at_and_other_packages_are_not(wheel, site, make_dist, damage):
    gone = "pydantic_core/_pydantic_core.cpython-311-x86_64-linux-gnu.so"
    wheel("pydantic_core", "2.50.4", {"pydantic_core/__init__.py": b"", gone: ELF}, compiled=True)
    (site / gone).unlink()
    assert damage() == []
    header = "Metadata-Version: 2.1\nName: wandb\nVersion: 0.22.0\nRequires-Dist: pydantic-core>=2\n\n"
    make_dist(site, "wandb", "0.22.0", header=header)
    assert damage() == [("pydantic-core", "files-gone", gone, False)]


def test_flash_attn_without_its_extension_cannot_be_imported(wheel, site, damage):
    wheel("flash_attn", "2.8.3", {"flash_attn/__init__.py": b""}, compiled=False)
    assert damage() == [("flash-attn", "files-gone", "flash_attn_2_cuda.*.so", True)]
    (site / "flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so").write_bytes(ELF)
    assert damage() == []


def test_a_package_whose_folder_was_removed(wheel, site, damage):
    wheel("peft", "0.17.1", {"peft/__init__.py": b""}, compiled=False)
    shutil.rmtree(site / "peft")
    assert damage() == [("peft", "module-gone", "peft/__init__.py", True)]


def test_a_namespace_package_has_no_init_file_by_design(wheel, damage):
    wheel("optimum", "2.0.0", {"optimum/exporters/__init__.py": b""}, compiled=False)
    assert damage() == []


def test_a_folder_that_an_uninstall_left_can_be_imported_and_is_empty(site, damage):
    (site / "peft").mkdir()
    (site / "peft" / "notes.txt").write_text("mine")
    assert damage() == [("peft", "left-behind", str(site / "peft"), False)]


def test_a_folder_that_other_packages_share_was_not_left_behind(wheel, damage):
    wheel("optimum_onnx", "0.1.0", {"optimum/onnxruntime/__init__.py": b""}, compiled=False)
    assert damage() == []


def test_a_library_that_somebody_put_beside_those_of_a_package(wheel, site, damage):
    header = "Metadata-Version: 2.1\nName: torch\nVersion: 2.9.0\nRequires-Dist: nvidia-cudnn-cu12\n\n"
    wheel("nvidia_cudnn_cu12", "9.10.2.21", {"nvidia/cudnn/lib/libcudnn.so.9": ELF}, compiled=True)
    wheel("nvidia_nccl_cu12", "2.27.5", {"nvidia/cudnn/lib/libnccl.so.2": ELF}, compiled=True)
    folder = wheel("torch", "2.9.0", {"torch/__init__.py": b"", "torch/lib/libc10.so": ELF}, compiled=True)
    (folder / "METADATA").write_text(header)
    assert damage() == []
    (site / "torch/lib/libcudnn.so.8").write_bytes(ELF)
    (site / "nvidia/cudnn/lib/libcudnn.so.8").write_bytes(ELF)
    assert damage() == [
        ("torch", "dropped-in", "torch/lib/libcudnn.so.8", False),
        ("nvidia-cudnn-cu12", "dropped-in", "nvidia/cudnn/lib/libcudnn.so.8", False),
    ]


@pytest.fixture
def editable(site: Path, tmp_path: Path, make_dist) -> Path:
    """The folder of an editable install of peft."""
    source = tmp_path / "src dir"
    (source / "peft").mkdir(parents=True)
    (source / "peft" / "__init__.py").write_text("")
    said = {"url": source.as_uri(), "dir_info": {"editable": True}}
    make_dist(site, "peft", "0.17.1", direct_url__json=json.dumps(said))
    return source


def test_an_editable_install_whose_folder_is_there(editable, damage):
    assert damage() == []


def test_an_editable_install_whose_folder_is_gone(editable, damage):
    shutil.rmtree(editable)
    assert damage() == [("peft", "source-gone", str(editable), True)]


def test_an_editable_install_that_is_found_elsewhere(editable, tmp_path, damage):
    shutil.rmtree(editable)
    (tmp_path / "peft").mkdir()
    (tmp_path / "peft" / "__init__.py").write_text("")
    assert damage() == []


def test_an_egg_link_to_a_folder_that_is_gone(site, tmp_path, damage):
    (site / "peft.egg-link").write_text(f"{tmp_path / 'gone'}\n.")
    assert damage() == [("peft", "source-gone", str(tmp_path / "gone"), True)]
