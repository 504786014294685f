"""Formats are found by the name of their file."""

import subprocess
import sys

import pytest

from envdoctor.report import FORMATS, Report, UnknownFormatError, load


def test_every_format_renders_a_report_that_ends_with_a_newline(report: Report) -> None:
    assert next(iter(FORMATS)) == "terminal" and "json" in FORMATS
    assert all(load(name)(report).endswith("\n") for name in FORMATS)


@pytest.mark.parametrize("name", ["yaml", "", "../json", "json_report", "os"])
def test_an_unknown_format_is_refused_with_the_list(name: str) -> None:
    with pytest.raises(UnknownFormatError, match="there are terminal, concise"):
        load(name)


def test_listing_the_formats_imports_none_of_them() -> None:
    code = (
        "import sys; from envdoctor.report import FORMATS; len(FORMATS);"
        "print([m for m in sys.modules if m.endswith(('_report', '_reports'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
