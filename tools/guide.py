"""Build the guide as a site: the READMEs and chapters in both languages, and a page for each rule.

    python tools/guide.py SITE [START]        needs sphinx, myst-parser and furo (`pip install .[docs]`)

Of the rules those whose id begins with START have pages, without it all.

The chapters are read in a checkout as well, so their links are those of files. What is built is a copy in which links
lead to pages, and files of the checkout that a page links to are offered beside them. A warning, such as a link that
leads nowhere, ends the build with exit code 1.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

from sphinx.cmd.build import build_main

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]
from rule_pages import pages as rule_pages  # noqa: E402
from update_examples import documents  # noqa: E402

from envdoctor.matrix import load_matrix  # noqa: E402

ROOT = HERE.parent
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)#\s]+)(#[^)]*)?\)")
_CHAPTER = re.compile(r"^\| \[[^\]]+\]\(([\w-]+)\.md\)")
_GROUP = re.compile(r"^\| \*\*(.+)\*\* \|")
#: Of each language: what Sphinx calls it, and where the site of the other is.
_LANGUAGES = {"en": ("en", "zh/"), "zh": ("zh_CN", "../")}
#: What the menu and the contents of a page are called for those who hear them.
_ASIDES = {"en": ("Chapters", "On this page"), "zh": ("目录", "本页内容")}
#: What the theme says in English alone.
_OF_THE_THEME = {
    "Previous": "上一页",
    "Next": "下一页",
    "On this page": "本页内容",
    "Menu": "菜单",
    "Expand": "展开",
    "Skip to content": "跳到正文",
    "Back to top": "回到顶部",
    "Made with": "主题",
    "Light mode": "浅色",
    "Dark mode": "深色",
    "Auto light/dark, in light mode": "自动，当前为浅色",
    "Auto light/dark, in dark mode": "自动，当前为深色",
    "Toggle Light / Dark / Auto color theme": "切换浅色、深色和自动",
    "Toggle site navigation sidebar": "显示或隐藏目录",
    "Toggle table of contents sidebar": "显示或隐藏本页内容",
    "Please activate JavaScript to enable the search functionality.": "搜索需要 JavaScript。",
}
_CONF = """
extensions = ["myst_parser"]
html_theme = "furo"
project = html_title = "envdoctor"
html_copy_source = html_show_sphinx = html_show_copyright = html_use_index = False
myst_heading_anchors = 4
"""


def write(source: Path, lang: str, start: str) -> None:
    """Write what Sphinx builds the site of a language from: its chapters, the README, in English the rules too."""
    spelled = _LANGUAGES[lang][0]
    pages = _pages(lang)
    for page, name in pages.items():
        text = _LINK.sub(partial(_turned, page, lang, source), page.read_text(encoding="utf-8"))
        (source / f"{name}.md").write_text(text, encoding="utf-8")
    rules = rule_pages(load_matrix().only(lambda rule: rule.id.startswith(start))) if lang == "en" else {}
    (source / "rules").mkdir()
    for name, text in rules.items():
        (source / "rules" / name).write_text(f"---\norphan: true\n---\n{text}", encoding="utf-8")
    with (source / "index.md").open("a+", encoding="utf-8") as file:
        file.seek(0)
        file.write(_menu(file.read(), ["rules/README"] if rules else []))
    (source / "conf.py").write_text(f"language = {spelled!r}{_CONF}", encoding="utf-8")


def _pages(lang: str) -> dict[Path, str]:
    """Return the name of each page of a language by its file in the checkout."""
    files = [ROOT / name for name, of in documents().items() if of == lang]
    return {file: "start" if file.parent == ROOT else file.stem.replace("README", "index") for file in files}


def _turned(page: Path, lang: str, source: Path, link: re.Match[str]) -> str:
    """Lead a link of a page to a page of the site, or a file to a copy; where the site has neither, leave the words."""
    picture, words, path, heading = link.groups()
    target = Path(os.path.normpath(page.parent / path))
    if name := _pages(lang).get(target):
        return f"[{words}]({name}.md{heading or ''})"
    if name := _pages("en" if lang == "zh" else "zh").get(target):
        return f'<a href="{_LANGUAGES[lang][1]}{name}.html">{words}</a>'
    if target.is_dir() or target.suffix == ".md":
        return words
    copy = Path("files", target.relative_to(ROOT))
    (source / copy).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(target, source / copy)
    return f"{picture}[{words}]({copy.as_posix()})"


def _menu(contents: str, last: list[str]) -> str:
    """Return the menu of the site: the groups and chapters of the table of contents."""
    groups: dict[str, list[str]] = {"": ["start"]}
    for line in contents.splitlines():
        if group := _GROUP.match(line):
            groups[f":caption: {group[1]}\n"] = []
        elif chapter := _CHAPTER.match(line):
            groups[[*groups][-1]].append(chapter[1])
    groups[[*groups][-1]] += last
    trees = (f":hidden:\n{caption}\n" + "\n".join(names) for caption, names in groups.items())
    return "".join(f"\n```{{toctree}}\n{tree}\n```\n" for tree in trees)


def accessible(page: str, lang: str) -> str:
    """Return a page with what the theme leaves out: the level of headings in the menu, names of the two asides, the
    keyboard's way into what scrolls by itself, and its own words in Chinese."""
    for place, name in zip(("sidebar-drawer", "toc-drawer"), _ASIDES[lang], strict=True):
        page = re.sub(f'<aside class="{place}[^"]*"', rf'\g<0> aria-label="{name}"', page)
    page = page.replace('<p class="caption" role="heading">', '<p class="caption" role="heading" aria-level="2">')
    for english, chinese in _OF_THE_THEME.items() if lang == "zh" else ():
        page = re.sub(rf'(?<=[">])(\s*){re.escape(english)}(?=\s*["<])', rf"\g<1>{chinese}", page)
    return re.sub(r'<pre(?=>)|<div class="table-wrapper[^"]*"', r'\g<0> tabindex="0"', page)


def main(site: Path, start: str = "") -> int:
    """Build both languages: the English at the top, the Chinese in zh/."""
    for lang, place in (("en", site), ("zh", site / "zh")):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "source")
            source.mkdir()
            write(source, lang, start)
            if build_main(["-q", "-W", "--keep-going", "-n", "-d", f"{folder}/read", str(source), str(place)]):
                return 1
        for page in place.rglob("*.html"):
            if lang == "zh" or "zh" not in page.relative_to(site).parts:
                page.write_text(accessible(page.read_text(encoding="utf-8"), lang), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
