"""The pictures of docs/output.md, made from what the program prints.

    python tools/pictures.py [--chromium PROGRAM]

``pictures/terminal.svg`` is the example of docs/output.md with its colours, as far as it does not count rules and
seconds. ``pictures/report.png`` is the HTML page of the same run in a headless Chromium; it carries the digest of what
it shows (:func:`shown`), by which a test sees that it is out of date.
"""

from __future__ import annotations

import argparse
import hashlib
import html
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TERMINAL, REPORT = ROOT / "pictures" / "terminal.svg", ROOT / "pictures" / "report.png"
ARGUMENTS = ["check", "--facts", "fixtures/environments/glm4-batch-nan.json"]
#: Columns of text; pixels of a character and a line; pixels of the page.
COLUMNS, CHARACTER, LINE, MARGIN = 80, 8.4, 18, 16
WIDTH, HEIGHT = 900, 1000
#: Colours on dark ground by the number that the terminal gets.
COLOURS = {"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "1": "#ffffff"}


def main() -> None:
    """Write both pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chromium", default=shutil.which("chromium"))
    options = parser.parse_args()
    TERMINAL.write_text(terminal(), encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        REPORT.write_bytes(report(options.chromium, Path(folder)))


def printed(*more: str) -> str:
    """Return what envdoctor prints of the example."""
    environ = {**os.environ, "COLUMNS": str(COLUMNS), "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-m", "envdoctor", *ARGUMENTS, "--no-config", "--lang", "en", *more]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, encoding="utf-8", check=False)
    if done.returncode != 1:
        raise SystemExit(done.stderr)
    return done.stdout


def terminal() -> str:
    """Return the example on a terminal as SVG: text that can be selected, without fonts and scripts from elsewhere."""
    text = printed("--color", "always")
    text = text[: text.index("\n1 error.")].rstrip()
    lines = ["\x1b[1m$ envdoctor " + " ".join(ARGUMENTS) + "\x1b[0m", *text.split("\n")]
    width, height = COLUMNS * CHARACTER + 2 * MARGIN, len(lines) * LINE + 2 * MARGIN
    rows = [
        f'<text x="{MARGIN}" y="{MARGIN + LINE * number + 13}" textLength="{len(_bare(line)) * CHARACTER:g}">'
        f"{_spans(line)}</text>"
        for number, line in enumerate(lines)
        if line
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" width="{width:g}">',
            f"<title>{html.escape(_bare(lines[0]))}</title>",
            '<rect width="100%" height="100%" rx="8" fill="#0d1117"/>',
            '<g font-size="14" fill="#c9d1d9" font-family="Menlo, Consolas, DejaVu Sans Mono, monospace">',
            *rows,
            "</g>",
            "</svg>\n",
        ]
    )


def _bare(line: str) -> str:
    return re.sub(r"\x1b\[\d+m", "", line)


def _spans(line: str) -> str:
    first, *rest = re.split(r"\x1b\[(\d+)m", line.replace(" ", "\u00a0"))  # SVG folds blanks
    spans = [html.escape(first)]
    for style, text in zip(rest[::2], rest[1::2], strict=True):
        shown = html.escape(text)
        spans.append(f'<tspan fill="{COLOURS[style]}">{shown}</tspan>' if style in COLOURS and text else shown)
    return "".join(spans)


def page(folder: Path) -> Path:
    """Return the example as an HTML page."""
    path = folder / "report.html"
    printed("--output", f"html={path}")
    return path


def shown(path: Path) -> str:
    """Return the digest of what a picture of the page always shows: its style and its findings; no counts and times."""
    text = path.read_text(encoding="utf-8")
    findings = text[text.index("<h2>Errors") : re.search("<h2>[0-9]+ rules", text).start()]
    return hashlib.sha256((text[text.index("<style") : text.index("</style>")] + findings).encode()).hexdigest()


def report(chromium: str, folder: Path) -> bytes:
    """Return the page as PNG, with its digest in a chunk of text."""
    path = page(folder)
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"]
    sizes = [f"--window-size={WIDTH},{HEIGHT}", f"--user-data-dir={folder / 'profile'}"]
    image = folder / "report.png"
    command = [chromium, *options, *sizes, f"--screenshot={image}", path.as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    data, body = image.read_bytes(), b"tEXtenvdoctor\0" + shown(path).encode()
    head = 8 + 25  # the signature, and the first chunk with the size
    return data[:head] + struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body)) + data[head:]


if __name__ == "__main__":
    main()
