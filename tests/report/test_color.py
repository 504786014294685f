"""Colour, width, language and encoding of the output."""

import io

from tables import rows

from envdoctor.report import choose_lang, choose_width, decide, harden_stdout


@rows("option environ isatty expected")
def test_colour_follows_the_option_then_the_environment_then_the_terminal(
    option: str, environ: dict[str, str], isatty: bool, expected: bool
) -> None:
    assert decide(option, environ, isatty) is expected


def test_a_notebook_has_no_colour_and_eighty_columns() -> None:
    assert not decide("auto", {}, True, notebook=True)
    assert choose_width({}, False, notebook=True) == 80


def test_pipes_are_not_wrapped_unless_columns_is_set() -> None:
    assert choose_width({}, False) is choose_width({"COLUMNS": "x"}, False) is None
    assert choose_width({"COLUMNS": "100"}, False) == 100
    assert choose_width({"COLUMNS": "5"}, True) == 40
    assert choose_width({}, True, descriptor=-1) == 80, "a terminal without a size"


@rows("option environ encoding expected")
def test_language_follows_the_locale_where_the_output_can_show_it(
    option: str, environ: dict[str, str], encoding: str | None, expected: str
) -> None:
    assert choose_lang(option, environ, encoding) == expected


def test_characters_that_an_encoding_lacks_are_escaped() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="gbk")
    harden_stdout(stream, object())
    stream.write("模型 \U0001f600")
    stream.flush()
    assert raw.getvalue() == "模型 ".encode("gbk") + b"\\U0001f600"
