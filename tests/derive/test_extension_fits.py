"""Whether extensions fit this C library and this Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from envdoctor.derive.extension_fits import compute
from envdoctor.facts.values import ABSENT, Records, Unknown, Value


def fits(item: Mapping[str, Value], **facts: Value) -> Mapping[str, Any]:
    known: dict[str, Value] = {key.replace("__", "."): value for key, value in facts.items()}
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
