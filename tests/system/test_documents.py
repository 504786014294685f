"""Documents that are no plain file: pipes with and without somebody who writes, devices without an end."""

import os
import subprocess
import sys
import threading

import pytest

from envdoctor.system import read_bounded

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="FIFOs")


@pytest.fixture
def fifo(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def test_a_file_is_read_up_to_its_limit_and_not_beyond(tmp_path):
    (tmp_path / "a").write_bytes(b"12345")
    assert read_bounded(tmp_path / "a", 5) == b"12345"
    assert read_bounded(tmp_path / "a", 4) is None


def test_a_pipe_that_nobody_writes_to_is_given_up(fifo):
    with pytest.raises(TimeoutError, match=r"nothing was written to it \(0.2 s\)"):
        read_bounded(fifo, 10, until_a_writer=0.2)


def test_a_writer_may_come_later_and_in_parts(fifo):
    def write():
        with open(fifo, "wb", buffering=0) as stream:
            for _ in range(3):
                stream.write(b"x" * 70_000)

    writer = threading.Thread(target=write)
    writer.start()
    assert read_bounded(fifo, 1 << 20) == b"x" * 210_000
    writer.join()


def test_a_writer_that_stays_silent_is_given_up(fifo):
    keep = os.open(fifo, os.O_RDWR)
    try:
        with pytest.raises(TimeoutError, match=r"its end did not come in time \(0.2 s\)"):
            read_bounded(fifo, 10, until_a_writer=0.1, until_the_end=0.2)
        os.write(keep, b"12345678901")
        assert read_bounded(fifo, 10) is None
    finally:
        os.close(keep)


def test_a_device_without_an_end_is_more_than_the_limit(tmp_path):
    (tmp_path / "zero").symlink_to("/dev/zero")
    assert read_bounded(tmp_path / "zero", 1 << 20) is None
    (tmp_path / "null").symlink_to("/dev/null")
    assert read_bounded(tmp_path / "null", 1 << 20) == b""


@pytest.mark.parametrize("before", ["", "sleep 0.3; "], ids=["written before it is read", "written while it is read"])
def test_the_check_reads_what_a_command_writes(script, before):
    if not os.path.exists("/bin/bash"):
        pytest.skip("process substitution is bash's")
    document = '{"schema": "envdoctor.facts/1", "facts": {"pkg.torch": "2.5.0"}}'
    command = f"exec {sys.executable} {script} check -v --format json --facts <({before}echo '{document}')"
    done = subprocess.run(["/bin/bash", "-c", command], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 1), done.stderr
    assert '"2.5.0"' in done.stdout
