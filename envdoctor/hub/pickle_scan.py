"""What a pickle would import and build, found by walking its opcodes: no class is imported and nothing is called."""

import re
from dataclasses import dataclass, field

from envdoctor.hub.pickle_machine import Broken, Machine, names_only, step
from envdoctor.text.message import Message, said_by

#: Bytes of one pickle that are looked at. The state of a model with 10,000 tensors takes about 1.5 MB.
LARGEST_PICKLE = 32 << 20
#: Opcodes of one pickle that are followed, some seconds' worth. A tensor takes about 35.
MOST_OPCODES = 4_000_000

_LONG_NUMBER = re.compile(rb"(?<![0-9])[0-9]{4301}")


@dataclass
class Scan:
    """The outcome. ``globals`` in the order of their first use; ``problem`` is None, or says why the walk ended early.

    ``result`` is the object that would come out, made of the classes of the machine; ``end`` the position behind it.
    With a problem ``globals`` still holds what was found until there, and what the opcodes behind it name. ``cut`` is
    True when the bytes ended first, ``limited`` when the walk was given up: then the list of globals may be too short.
    Otherwise an unpickler fails where the walk did.
    """

    globals: dict[str, None] = field(default_factory=dict)
    problem: str | None = None
    result: object = None
    end: int = 0
    cut: bool = False
    limited: bool = False


def scan_pickle(data: bytes, start: int = 0) -> Scan:
    """Walk the pickle that begins at ``start``. Never raises for bad input: see :attr:`Scan.problem`."""
    import warnings

    scan = Scan()
    if _LONG_NUMBER.search(data):
        scan.problem = Message("it holds a number of thousands of digits")
        scan.limited = True
        return scan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pickletools' own, about odd escapes in texts of protocol 0
        _walk(scan, data, start)
    return scan


def _walk(scan: Scan, data: bytes, start: int) -> None:
    import io
    import pickletools

    machine = Machine(scan.globals)
    stream = io.BytesIO(data)
    stream.seek(start)
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
            if count >= MOST_OPCODES:
                scan.problem = scan.problem or Message("it has more than {} opcodes", f"{MOST_OPCODES:,}")
                scan.limited = True
                break
            if scan.problem is None:
                try:
                    step(machine, opcode.name, argument)
                except Broken as error:
                    scan.problem = said_by(error)
            else:
                names_only(machine, opcode.name, argument)
    except ValueError as error:
        scan.cut = stream.tell() >= len(data)
        scan.problem = scan.problem or Message("it is no complete pickle ({})", str(error)[:80])
    if scan.problem is None:
        scan.result = machine.stack[-1] if machine.stack else None
        scan.end = stream.tell()
