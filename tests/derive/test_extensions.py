"""Whether extensions fit this system, this Python and this torch, and whether they can be built here."""

from typing import Any

from known import answer, derived, following, given
from observing import shipped
from tables import rows

from envdoctor.facts import Fact, Records, Unknown


@rows("item facts column ok")
def test_what_an_extension_needs(item: dict[str, Any], facts: dict[str, Any], column: str, ok: Any) -> None:
    (found,) = following(extension=[item], **facts).value("extension")
    assert answer(found.get(column, Unknown(""))) is ok


def test_a_version_that_a_file_spells_oddly_decides_nothing() -> None:
    facts = given({"os.libstdcxx": "3.4.28"}, shipped().registry)
    facts.add(Fact("extension", Records(({"glibcxx_needs": "odd"},)), "x.so", "environment"))
    (found,) = derived(facts, shipped()).value("extension")  # type: ignore[misc,union-attr]
    assert answer(found["glibcxx_ok"]) is Unknown


@rows("facts ops", tuples=True)
def test_deepspeed_and_the_optimizer_decide_which_op_is_compiled(facts: dict[str, Any], ops: Any) -> None:
    given = {key: list(value) if isinstance(value, tuple) else value for key, value in facts.items()}
    assert answer(following(**given).value("build.needed")) == ops


@rows("toolkit cuda fit")
def test_the_toolkit_is_compared_with_the_cuda_of_torch(toolkit: str, cuda: str, fit: Any) -> None:
    assert answer(following(cuda__toolkit=toolkit, torch__cuda=cuda).value("cuda.toolkit_fits")) == fit


@rows("torch gcc")
def test_the_headers_ask_for_a_gcc(torch: str, gcc: Any) -> None:
    assert answer(following(pkg__torch=torch).value("build.gcc_min")) == gcc


@rows("gcc toolkit torch fit")
def test_gcc_lies_between_torchs_headers_and_nvcc(gcc: str, toolkit: Any, torch: Any, fit: Any) -> None:
    known = {"cuda__toolkit": toolkit, "pkg__torch": torch}
    given = {key: value for key, value in known.items() if value is not None}
    assert answer(following(build__gcc=gcc, **given).value("build.gcc_fits")) == fit


def test_a_given_bound_is_used() -> None:
    found = following(build__gcc="14", build__gcc_max="15", build__gcc_min="9")
    assert found.value("build.gcc_fits") == "yes"
