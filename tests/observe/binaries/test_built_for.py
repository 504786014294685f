"""What packages say of the torch and CUDA they were built for."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tables import cases

from envdoctor.facts import ABSENT

CASES = cases("built-for.toml")

FLASH, OWN = "flash_attn_2_cuda.so", {"xformers": "cpp_lib.json", "deepspeed": "git_version_info_installed.py"}
NOTHING = (ABSENT, ABSENT, ABSENT)


def said(item: Mapping[str, Any]) -> tuple[object, ...]:
    return tuple(item[column] for column in ("built_torch", "built_cuda", "built_says"))


@pytest.mark.parametrize(("tag", "torch", "cuda"), CASES["local_versions_wheels"])
def test_local_versions_and_wheels_are_named_in_many_ways(install, item, tag: str, torch: object, cuda: object) -> None:
    install("flash-attn", f"2.8.3+{tag}" if tag else "2.8.3", {FLASH: "good.so"})
    assert said(item()) == (torch, cuda, ABSENT if torch is cuda is ABSENT else "its local version")


def test_the_name_of_the_wheel_counts_where_the_metadata_dropped_it_and_a_source_folder_says_nothing(
    install, item
) -> None:
    info = install("flash-attn", "2.8.3+pt24cu121", {FLASH: "good.so"})
    wheel = "https://host/v2.8.3/flash_attn-2.8.3%2Bcu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl"
    for url, found in (
        (wheel, ("2.8", "12", "the name of its wheel")),
        ("file:///src/torch2.5cu126", ("2.4", "12.1", "its local version")),
    ):
        (info / "direct_url.json").write_text(json.dumps({"url": url, "archive_info": {}}))
        assert said(item()) == found


@pytest.mark.parametrize(("name", "text", "torch", "cuda"), CASES["xformers_deepspeed_say"])
def test_xformers_and_deepspeed_say_it_in_a_file(install, item, name: str, text: str, torch, cuda) -> None:
    install(name, "0.33", {f"{name}/_C.so": "good.so", f"{name}/{OWN[name]}": text.encode()})
    assert said(item()) == (torch, cuda, ABSENT if torch is ABSENT else f"{name}/{OWN[name]}")


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
def test_a_file_that_is_not_what_it_should_be_says_nothing(install, extensions, content: bytes) -> None:
    for name, file in OWN.items():
        info = install(name, "1.0", {f"{name}/_C.so": "good.so", f"{name}/{file}": content})
        (info / "direct_url.json").write_bytes(content)
    assert [said(item) for item in extensions()] == [NOTHING, NOTHING]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(
    st.text(st.characters(codec="utf-8"), max_size=40)
    | st.from_regex(r"(cu|pt|torch)[0-9.]{0,8}[a-z0-9.]{0,12}", fullmatch=True)
)
def test_whatever_a_tag_is_the_answer_is_a_version_or_nothing(site: Path, install, item, tag: str) -> None:
    info = site / "flash_attn-2.8.3.dist-info"
    if not info.exists():
        install("flash-attn", "2.8.3", {FLASH: "good.so"})
    url = f"https://host/flash_attn-2.8.3+{tag}-cp39-none-any.whl"
    (info / "direct_url.json").write_text(json.dumps({"url": url}))
    for version in said(item())[:2]:
        assert version is ABSENT or all(part.isdigit() for part in str(version).split("."))
