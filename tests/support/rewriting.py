"""Files whose content is replaced, thousands of times in some tests."""

from pathlib import Path


def rewrite(path: Path, content: bytes) -> None:
    """Put a new file in the place of one, if there is one; its hard links stay what they are. A file that is emptied
    and filled again goes to the disk at once on ext4 (``auto_da_alloc``), which each time takes a millisecond."""
    path.unlink(missing_ok=True)
    path.write_bytes(content)
