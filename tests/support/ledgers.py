"""The text of a small ledger file, without what every such file has."""


def ledger(package: str, releases: str, lines: str = "", depth: str = "names") -> str:
    """A package of that name with these releases (``1.2.0?`` was not read) and the lines of its sections."""
    module = package.partition("-")[0]
    head = f"envdoctor-ledger\t1\npackage\t{package}\nmodules\t{module}\ndepth\t{depth}\n[releases]\n"
    known = "metadata\tread" if depth == "names" else "metadata"
    for number, version in enumerate(releases.split(), 1):
        head += f"{version.strip('?')}\t2023-{number:02}-05\t-\t{'' if version.endswith('?') else known}\n"
    return head + lines
