"""Ensures that no server outlives the process that started it, however that ends; runs as a separate program.

It waits for the end of its standard input, the other end of which only its parent holds. Then it kills its own process
group, to which every server belongs, and removes their folder.

Linux can signal children when their parent dies (PR_SET_PDEATHSIG), but the parent in that sense is the thread that
started them: a server restarted from a worker thread would die with that thread. A pipe does not have this problem,
lets the folder be removed as well, and works on every POSIX system.
"""

import os
import shutil
import signal
import sys
from pathlib import Path


def main() -> None:
    """Wait for the starter's end, then clean up."""
    data_folder = Path(sys.argv[1])
    group = os.getpgrp()
    sys.stdin.buffer.read()
    if os.fork():
        os.wait()  # and be killed with the group
        return
    os.setpgid(0, 0)
    os.killpg(group, signal.SIGKILL)
    while data_folder.exists():  # a server may still write a last file while it dies
        shutil.rmtree(data_folder, ignore_errors=True)


if __name__ == "__main__":
    main()
