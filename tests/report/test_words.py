"""How facts are called, and what every value of theirs is called: the words of the registry on a page."""

from tables import rows

from envdoctor.facts import FactSpec, Registry
from envdoctor.report import Page
from envdoctor.system import Message


def every_spec(registry: Registry) -> list[FactSpec]:
    return [one for spec in registry for one in (spec, *spec.columns.values())]


def test_every_fact_and_column_has_a_name_in_both_languages(registry: Registry) -> None:
    for spec in every_spec(registry):
        if not spec.key.endswith(".*"):
            assert set(spec.label) == {"en", "zh"}, spec.key
            assert spec.label["en"].isascii() and spec.label["zh"].encode("gbk"), spec.key


def test_every_named_value_has_a_chinese_name_a_console_can_show(registry: Registry) -> None:
    for spec in every_spec(registry):
        for value, names in spec.values.items():
            assert value.isascii() and set(names) <= {"en", "zh"}, spec.key
            assert names.get("zh", "").encode("gbk") is not None


@rows("key value expected")
def test_facts_are_said_in_words(registry: Registry, key: str, value: str, expected: str) -> None:
    assert Page(registry, "en" if expected.isascii() else "zh").fact(key, value) == expected


def test_what_is_not_known_says_why_unless_nobody_gave_it(registry: Registry) -> None:
    assert Page(registry).not_known("GPU", "not given") == "GPU not known"
    assert Page(registry, "zh").not_known("GPU", Message("--no-gpu was given")) == "GPU 未知（给出了 --no-gpu）"


def test_answers_are_marked_and_plain_facts_are_not(registry: Registry) -> None:
    """Beside the words of a rule that asks whether they fit, "fits no" says nothing."""
    answers = ("gpu.gap", "driver.fits", "extension.python_ok", "torch_companion.apart", "cuda_library.order")
    plain = ("gpu.cc", "driver.version", "extension.python_tag", "recipe.batch_size")
    marked = {key: spec.answer for key in (*answers, *plain) if (spec := registry.find(key)) is not None}
    assert [key for key, answer in marked.items() if answer] == list(answers)


def test_advice_is_written_in_both_languages_and_names_facts_that_exist(registry: Registry) -> None:
    for name, entry in registry.help_texts.items():
        assert entry["en"].isascii() and entry["zh"].encode("gbk"), name
        assert "given_with" not in entry or registry.find(entry["given_with"]) is not None, name


def test_packages_that_people_ask_for_first_begin_with_torch(registry: Registry) -> None:
    assert registry.first("pkg")[:2] == ("torch", "transformers")
    assert registry.first("env") == registry.first("nothing") == ()
