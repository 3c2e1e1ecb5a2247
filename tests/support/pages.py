"""The commands of a page of the documentation, and a shell in which a reader would type them.

shell = Shell(folder, kubeconfig=kubeconfig, kubectl=binary)
for command in commands_of(page):
shell.run(command)
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_PROGRAMS = ("haulout", "kubectl")
_PROMPT = re.compile(r"^(\$ )?")
_WITHIN_SECONDS = 60


def commands_of(page: Path) -> list[str]:
    """Return the command lines of a page in their order: lines of code blocks that begin with one of the programs."""
    found: list[str] = []
    for block in _blocks(page.read_text(encoding="utf-8")):
        lines = "\n".join(_PROMPT.sub("", line) for line in block).replace("\\\n", " ").splitlines()
        found += [" ".join(line.split()) for line in lines if line.split(" ")[0] in _PROGRAMS]
    return found


def _blocks(text: str) -> Iterator[list[str]]:
    """Yield the lines of code blocks, without their indentation: fenced ones, and those that are indented."""
    block: list[str] = []
    is_fenced = False
    before = ""
    for line in [*text.splitlines(), ""]:
        if line.lstrip().startswith("```"):
            is_fenced = not is_fenced
            yield block
            block = []
        elif is_fenced or (line.startswith("    ") and (block or not before.strip())):
            block.append(line.strip())
        else:
            yield block
            block = []
        before = line


class Shell:
    """A shell that has `haulout` and `kubectl`, and a cluster."""

    def __init__(self, folder: Path, *, kubeconfig: Path, kubectl: Path) -> None:
        programs = folder / "bin"
        programs.mkdir()
        for name, target in (("haulout", f"{sys.executable} -m haulout"), ("kubectl", str(kubectl))):
            (programs / name).write_text(f'#!/bin/sh\nexec {target} "$@"\n')
            (programs / name).chmod(0o755)
        self._folder = folder
        self._environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "KUBECONFIG": str(kubeconfig),
            "HOME": str(folder),
            "PYTHONIOENCODING": "utf-8",
        }

    def run(self, command: str, *, fills: Mapping[str, str] | None = None) -> str:
        """Run a command that must succeed; return what it printed. `fills` are words that the reader replaces."""
        for word, value in (fills or {}).items():
            command = command.replace(word, value)
        done = subprocess.run(
            ["/bin/bash", "-o", "pipefail", "-c", command],
            env=self._environment,
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=_WITHIN_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    @contextmanager
    def running(self, command: str) -> Iterator[Path]:
        """Run a command that does not end by itself while the context lasts; yield where it writes what it says."""
        log = self._folder / f"{command.replace(' ', '-')}.log"
        with log.open("ab") as said:
            process = subprocess.Popen(
                ["/bin/bash", "-c", f"exec {command}"],
                env=self._environment,
                cwd=self._folder,
                stdout=said,
                stderr=said,
            )
            try:
                yield log
                assert process.poll() is None, log.read_text()
            finally:
                process.terminate()
                process.wait(timeout=_WITHIN_SECONDS)
