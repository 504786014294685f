"""What packages say of the torch and CUDA they were built for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envdoctor.observe.binaries.reading.built_for import BuiltFor, built_for, said_by_tag
from envdoctor.text import Files


@pytest.mark.parametrize(
    ("tag", "torch", "cuda"),
    [
        ("cu12torch2.8cxx11abiTRUE", "2.8", "12"),
        ("cu122torch2.4cxx11abiFALSE", "2.4", "12.2"),
        ("cu13torch2.10cxx11abitrue", "2.10", "13"),
        ("cu128torch2.8.0cxx11abiFALSE", "2.8.0", "12.8"),
        ("cu128.torch2.9.0", "2.9.0", "12.8"),
        ("pt24cu121", "2.4", "12.1"),
        ("pt113cu117", "1.13", "11.7"),
        ("pt20cu118", "2.0", "11.8"),
        ("pt270cu126", "2.7.0", "12.6"),
        ("pt210cu128", None, "12.8"),  # 2.10 for PyG, 2.1.0 for others
        ("pt2.8cu12.8", "2.8", "12.8"),
        ("cu130", None, "13.0"),
        ("cu12", None, "12"),
        ("cpu", None, None),
        ("rocm6.4", None, None),
        ("git7f9c", None, None),
        ("focus12", None, None),
        ("script24", None, None),
        ("", None, None),
    ],
)
def test_local_versions_and_wheels_are_named_in_many_ways(tag: str, torch: str | None, cuda: str | None) -> None:
    assert said_by_tag(tag) == BuiltFor(torch, cuda)


def metadata(folder: Path, url: str | None = None) -> str:
    info = folder / "p.dist-info"
    info.mkdir(exist_ok=True)
    if url is not None:
        (info / "direct_url.json").write_text(json.dumps({"url": url, "archive_info": {}}))
    return str(info)


def test_the_name_of_the_wheel_counts_where_the_metadata_dropped_it(tmp_path: Path) -> None:
    url = "https://host/v2.8.3/flash_attn-2.8.3%2Bcu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl"
    said = built_for("flash-attn", "2.8.3", metadata(tmp_path, url), Files())
    assert said == BuiltFor("2.8", "12", "the name of its wheel")


def test_a_source_folder_says_nothing_and_the_local_version_stands(tmp_path: Path) -> None:
    where = metadata(tmp_path, "file:///src/torch2.4cu121")
    assert built_for("torch-scatter", "2.1.2", where, Files()) == BuiltFor()
    assert built_for("torch-scatter", "2.1.2+pt24cu121", where, Files()) == BuiltFor("2.4", "12.1", "its local version")


def test_xformers_says_it_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "xformers").mkdir()
    path = tmp_path / "xformers" / "cpp_lib.json"
    path.write_text(json.dumps({"version": {"cuda": 1208, "torch": "2.9.1+cu128", "python": "3.10.19"}}))
    assert built_for("xformers", "0.0.33", metadata(tmp_path), Files()) == BuiltFor(
        "2.9.1", "12.8", "xformers/cpp_lib.json"
    )
    path.write_text(json.dumps({"version": {"cuda": None, "hip": 60300, "torch": "2.9.1"}}))
    assert built_for("xformers", "0.0.33", metadata(tmp_path), Files())[:2] == ("2.9.1", None)


def test_deepspeed_says_it_in_a_file_and_zero_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "deepspeed").mkdir()
    path = tmp_path / "deepspeed" / "git_version_info_installed.py"
    line = "torch_info={'version': '%s', 'bf16_support': False, 'cuda_version': '%s', 'hip_version': '0.0'}\n"
    path.write_text("version='0.14.0'\n" + line % ("2.1", "12.1"))
    said = built_for("deepspeed", "0.14.0", metadata(tmp_path), Files())
    assert said == BuiltFor("2.1", "12.1", "deepspeed/git_version_info_installed.py")
    path.write_text(line % ("0.0", "0.0"))
    assert built_for("deepspeed", "0.14.0", metadata(tmp_path), Files()) == BuiltFor()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[" * 100_000,
        b'{"version": []}',
        b'{"version": {"torch": 2, "cuda": "x"}}',
        b'{"version": {"torch": "2.x"}}',
        b'{"version": {"torch": "9999.1", "cuda": 1e9}}',
        b"\xff\xfe",
        b"9" * 70_000,
    ],
)
def test_a_file_that_is_not_what_it_should_be_says_nothing(tmp_path: Path, content: bytes) -> None:
    for name, file in (("xformers", "cpp_lib.json"), ("deepspeed", "git_version_info_installed.py")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_bytes(content)
        where = metadata(tmp_path)
        (tmp_path / "p.dist-info" / "direct_url.json").write_bytes(content)
        assert built_for(name, "1.0", where, Files()) == BuiltFor()


@given(st.text(max_size=40) | st.from_regex(r"(cu|pt|torch)[0-9.]{0,8}[a-z0-9.]{0,12}", fullmatch=True))
def test_whatever_a_tag_is_the_answer_is_a_version_or_nothing(tag: str) -> None:
    said = said_by_tag(tag)
    for version in (said.torch, said.cuda):
        assert version is None or all(part.isdigit() for part in version.split("."))
