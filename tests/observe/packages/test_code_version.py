"""Code that is another release than the metadata beside it."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import sha256
from pathlib import Path

import pytest
from observing import choose, observe

OLD, NEW = b'__version__ = "4.46.3"\n', b'__version__ = "4.57.1"\n'


@pytest.fixture
def known(venv: Path, site: Path, tmp_path: Path, make_dist):
    """The version of transformers and what is said of its metadata: installed as ``recorded``, now ``there``."""

    def look(recorded: bytes, there: bytes, **files: str):
        digest = urlsafe_b64encode(sha256(recorded).digest()).decode().rstrip("=")
        record = f"transformers/__init__.py,sha256={digest},{len(recorded)}\n"
        make_dist(site, "transformers", "4.57.1", **{"RECORD": record, **files})
        (site / "transformers").mkdir()
        (site / "transformers" / "__init__.py").write_bytes(there)
        layout = choose(str(venv / "bin" / "python"), None, None, environ={}, cwd=str(tmp_path))
        facts = observe(layout).known
        problems = [(item["kind"], item["versions"]) for item in facts.value("metadata_problem")]
        return facts.value("pkg.transformers"), problems

    return look


def test_code_as_it_was_installed(known):
    assert known(NEW, NEW) == ("4.57.1", [])


def test_an_old_release_copied_over_a_new_one_is_what_is_imported(known):
    assert known(NEW, OLD) == ("4.46.3", [("mismatch", "4.57.1, 4.46.3")])


def test_makers_who_forgot_to_raise_the_version_are_believed(known):
    assert known(OLD, OLD) == ("4.57.1", [])


def test_where_nothing_lists_the_file_nothing_is_said(known):
    assert known(NEW, OLD, RECORD="") == ("4.57.1", [])


def test_an_editable_checkout_that_moved_on(known):
    assert known(NEW, OLD, direct_url__json='{"url": "file:///src", "dir_info": {"editable": true}}') == (
        "4.46.3",
        [("mismatch", "4.57.1, 4.46.3")],
    )


@pytest.mark.parametrize(
    "text", [b'__version__ = ".".join(("4", "46"))\n', b"from .v import __version__\n", b"", b"\xff"]
)
def test_only_plain_text_is_read(known, text):
    assert known(NEW, text) == ("4.57.1", [])
