"""Code that is another release than the metadata beside it."""

from pathlib import Path

import pytest
from observing import choose, observe

OLD, NEW = b'__version__ = "4.46.3"\n', b'__version__ = "4.57.1"\n'


@pytest.fixture
def known(venv: Path, site: Path, make_dist):
    """The version of transformers and what is said of its metadata; ``there`` is its code."""

    def look(there: bytes, **files: str):
        make_dist(site, "transformers", "4.57.1", **files)
        (site / "transformers").mkdir()
        (site / "transformers" / "__init__.py").write_bytes(there)
        facts = observe(choose(venv / "bin" / "python")).known
        problems = [(item["kind"], item["versions"]) for item in facts.value("metadata_problem")]
        return facts.value("pkg.transformers"), problems

    return look


EDITABLE = {"direct_url__json": '{"url": "file:///src", "dir_info": {"editable": true}}'}


@pytest.mark.parametrize(
    ("there", "files", "found"),
    [
        (NEW, EDITABLE, "4.57.1"),
        (OLD, EDITABLE, "4.46.3"),  # a checkout that moved on
        (OLD, {}, "4.57.1"),  # makers who forgot to raise the version are believed
        # only plain text is read
        (b'__version__ = ".".join(("4", "46"))\n', EDITABLE, "4.57.1"),
        (b"from .v import __version__\n", EDITABLE, "4.57.1"),
        (b"", EDITABLE, "4.57.1"),
        (b"\xff", EDITABLE, "4.57.1"),
    ],
)
def test_code_that_is_another_release_than_its_metadata(known, there, files, found):
    problems = [] if found == "4.57.1" else [("mismatch", f"4.57.1, {found}")]
    assert known(there, **files) == (found, problems)
