"""The guide is built without a warning, in both languages, and a browser shows it on any screen."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from browser import Browser, chromium
from sharing import once
from update_examples import ROOT, documents

#: What is looked at in the browser.
PAGES = ["index", "start", "zh/index", "zh/memory", "rules/README", "rules/torch-2-5-0-glm4-batch-nan"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sphinx", reason="the guide's tools are for Python 3.11 and newer")

    def built(folder: Path) -> Path:
        # Rules of one letter: one form makes all their pages, and the workflow that publishes the guide builds all.
        command = [sys.executable, ROOT / "tools" / "guide.py", folder, "t"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return folder

    return once(tmp_path_factory, "guide", built)


@pytest.mark.slow
def test_each_chapter_is_a_page_and_no_link_leads_out_of_the_site(site: Path):
    names = {f"{'zh/' * ('zh' in name.lower())}{Path(name).stem}" for name in documents() if "README" not in name}
    pages = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    assert {f"{name}.html" for name in names} | {"index.html", "start.html", "zh/index.html", "zh/start.html"} <= pages
    for page in sorted(pages):
        text = (site / page).read_text(encoding="utf-8")
        # named, with a level, and reached by the keyboard: what axe asks for and the theme leaves out
        assert re.search(r'<pre>|role="heading">|<aside class="[^"]*">|<div class="table-wrapper[^"]*">', text) is None
        of_the_theme = re.search(r'[">]\s*(Next|Menu|Expand|Toggle [a-z ]+|Back to top)\s*["<]', text)
        assert of_the_theme is None or not page.startswith("zh/"), page
        for link in re.findall(r'(?:href|src)="([^"#?]+)', text):
            if not re.match(r"[a-z]+:", link):
                assert ((site / page).parent / link).exists(), (page, link)


@pytest.mark.slow
@pytest.mark.skipif(chromium() is None, reason="there is no Chromium here")
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_shows_it_without_overflow(site: Path, tmp_path: Path, width: int, dark: bool):
    with Browser(str(chromium()), tmp_path / "profile") as browser:
        for page in PAGES:
            browser.open(site / f"{page}.html", width, dark=dark)
            assert browser.value("document.documentElement.scrollWidth") <= width, page
            assert browser.value("document.querySelectorAll('h1').length") >= 1, page
        assert not [said for said in browser.said if not said.startswith("data:")]
