"""Whether extensions fit this C library and this Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from known import keyed
from rooms import derivation

from envdoctor.facts import ABSENT, Records, Unknown, Value

compute = derivation("extension_fits").compute


def fits(item: Mapping[str, Value], **facts: Value) -> Mapping[str, Any]:
    known: dict[str, Value] = keyed(**facts)
    known["extension"] = Records((item,))
    derived = compute(lambda key: known.get(key, Unknown("not given")), None)["extension"].value  # type: ignore[arg-type]
    assert isinstance(derived, Records)
    return derived.items[0]


@pytest.mark.parametrize(("needs", "ok"), [("2.31", True), ("2.32", False), ("2.4", True), (ABSENT, True)])
def test_glibc_versions_are_compared_as_numbers(needs: Value, ok: bool) -> None:
    assert fits({"glibc_needs": needs}, os__libc="glibc", os__libc_version="2.31")["glibc_ok"] is ok


def test_musl_and_an_unknown_system_are_not_judged() -> None:
    assert isinstance(fits({"glibc_needs": "2.17"}, os__libc="musl", os__libc_version="1.2")["glibc_ok"], Unknown)
    assert isinstance(fits({"glibc_needs": "2.17"})["glibc_ok"], Unknown)


@pytest.mark.parametrize(
    ("tags", "ok"), [("cp311", True), ("cp310", False), ("cp310, cp311", True), ("cp31", False), (ABSENT, True)]
)
def test_one_module_for_this_python_is_enough(tags: Value, ok: bool) -> None:
    found = fits({"python_tag": tags}, python__version="3.11.9", python__implementation="cpython")
    assert found["python_ok"] is ok


def test_a_given_answer_stands_where_none_can_be_computed() -> None:
    assert fits({"glibc_ok": False})["glibc_ok"] is False
    assert fits({"glibc_ok": False, "glibc_needs": ABSENT})["glibc_ok"] is True


@pytest.mark.parametrize(("needs", "ok"), [("3.4.28", True), ("3.4.29", False), ("3.4.9", True), (ABSENT, True)])
def test_glibcxx_versions_are_compared_as_numbers(needs: Value, ok: bool) -> None:
    assert fits({"glibcxx_needs": needs}, os__libstdcxx="3.4.28")["glibcxx_ok"] is ok


def test_a_libstdcxx_that_is_not_known_or_odd_decides_nothing() -> None:
    assert isinstance(fits({"glibcxx_needs": "3.4.28"})["glibcxx_ok"], Unknown)
    assert isinstance(fits({"glibcxx_needs": "odd"}, os__libstdcxx="3.4.28")["glibcxx_ok"], Unknown)


@pytest.mark.parametrize(
    ("archs", "machine", "ok"),
    [
        ("aarch64", "x86_64", False),
        ("aarch64", "aarch64", True),
        ("aarch64, x86_64", "x86_64", True),
        (ABSENT, "x86_64", True),
    ],
)
def test_a_file_for_this_machine_is_enough(archs: Value, machine: str, ok: bool) -> None:
    assert fits({"arch": archs}, os__arch=machine, os__platform="linux")["arch_ok"] is ok


def test_other_machines_and_systems_are_not_judged() -> None:
    assert isinstance(fits({"arch": "x86_64"}, os__arch="ppc64le", os__platform="linux")["arch_ok"], Unknown)
    assert isinstance(fits({"arch": "x86_64"}, os__arch="x86_64", os__platform="darwin")["arch_ok"], Unknown)
    assert isinstance(fits({"arch": "x86_64"}, os__platform="linux")["arch_ok"], Unknown)


@pytest.mark.parametrize(
    ("built", "torch", "ok"),
    [
        ("2.8", "2.8.0+cu128", True),
        ("2.8.0", "2.8.1", True),
        ("2.8", "2.9.1+cu130", False),
        ("2.1", "2.10.0", False),
        ("2.5", "2.5.0a0+872d972e41.nv24.08", True),
        (ABSENT, "2.8.0", ABSENT),
    ],
)
def test_a_patch_release_of_torch_is_the_same_torch(built: Value, torch: str, ok: Value) -> None:
    assert fits({"built_torch": built}, pkg__torch=torch)["built_ok"] is ok


@pytest.mark.parametrize(
    ("built", "cuda", "ok"),
    [
        ("12", "12.8", True),
        ("12.3", "12.8", True),
        ("12", "13.0", False),
        ("11.8", "12.1", False),
        ("12", ABSENT, False),
        (ABSENT, "13.0", ABSENT),
        (ABSENT, ABSENT, ABSENT),
    ],
)
def test_one_cuda_major_serves_all_its_minor_versions(built: Value, cuda: Value, ok: Value) -> None:
    assert fits({"built_cuda": built}, torch__cuda=cuda)["cuda_ok"] is ok


def test_without_torch_or_a_version_nothing_is_said() -> None:
    assert isinstance(fits({"built_torch": "2.8"}, pkg__torch=ABSENT)["built_ok"], Unknown)
    assert isinstance(fits({"built_torch": "2.8"})["built_ok"], Unknown)
    assert isinstance(fits({}, pkg__torch="2.8.0", torch__cuda="12.8")["cuda_ok"], Unknown)
    assert isinstance(fits({"built_cuda": "12"})["cuda_ok"], Unknown)
