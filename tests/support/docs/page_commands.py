"""Parses the commands of a documentation page, and runs them in a shell as a reader would.

    ```console
    $ kubectl get nodes
    NAME   STATUS
    n1     Ready…
    ```

Lines that begin with `$ ` are commands; they continue after a backslash or until the end of a `<<EOF`. The following
lines are expected output: each must appear, in this order; other lines may appear between them, and `…` matches
anything. A command that only reads is repeated until its output matches. Exported variables persist. The word after
`console` changes the meaning of a block:

    background      keeps running until a `stop` block or the end of the page
    stop            presses Ctrl-C before its first command
    fails           its commands exit with a non-zero code

Other blocks are not run.

`Reader` runs a whole page. A test that has to act between the commands runs them one by one, with `Shell`.
"""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from signal import SIGINT

from haulout.core.clock import RealClock

_BLOCK = re.compile(r"^( *)```console(?: (\w+))?\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
_QUERY_COMMANDS = re.compile(
    r"(kubectl (-n \S+ )?get|haulout (why|status|top|check|cluster-info|notice (list|show))) ?"
)
_HEREDOC = re.compile(r"<<(\w+)")
_EXPORTED = re.compile(r" (\w+)=")
_TIMEOUT_SECONDS = 60
# `kubectl delete` waits until namespaces are gone. On a busy machine that takes minutes: this only ends what hangs.
_COMMAND_TIMEOUT_SECONDS = 300
_RETRY_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class PageCommand:
    """A command of a page, and its expected output."""

    text: str
    expected_lines: tuple[str, ...] = ()
    mode: str = ""  # background, stop, fails or nothing


def page_commands(page: str) -> Iterator[PageCommand]:
    """Yield the commands of a page."""
    for indent, mode, block in _BLOCK.findall(page):
        first = mode
        for part in re.split(r"^\$ ", block.replace(f"\n{indent}", "\n").removeprefix(indent), flags=re.MULTILINE)[1:]:
            text, output = _split_heredoc(re.sub(r" *\\\n\s*", " ", part).splitlines())
            yield PageCommand(text, tuple(line.strip() for line in output if line.strip()), first)
            first = mode if mode in ("background", "fails") else ""


def _split_heredoc(lines: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return a command with its here-document, and the expected output after it."""
    heredoc = _HEREDOC.search(lines[0])
    length = lines.index(heredoc[1]) + 1 if heredoc else 1
    return "\n".join(lines[:length]), lines[length:]


class Shell:
    """A shell in a folder, which has `haulout`, and a cluster to which `kubectl` leads if there is one."""

    def __init__(self, folder: Path, *, kubeconfig: Path | None = None, kubectl: Path | None = None) -> None:
        self.folder = folder
        programs = folder / "bin"
        programs.mkdir()
        for name, target in (("haulout", f"{sys.executable} -m haulout"), ("kubectl", kubectl)):
            if target is not None:
                (programs / name).write_text(f'#!/bin/sh\nexec {target} "$@"\n')
                (programs / name).chmod(0o755)
        self._environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(folder),
            "KUBECONFIG": str(kubeconfig or folder / "no-kubeconfig"),
            "PYTHONIOENCODING": "utf-8",
        }

    def export(self, **variables: str) -> None:
        """Set environment variables."""
        self._environment |= variables

    def run(self, text: str, *, substitutions: Mapping[str, str] | None = None, fails: bool = False) -> str:
        """Run a command that must succeed, or fail.

        Return what it says. `substitutions` are words that the reader replaces.
        """
        for placeholder, value in (substitutions or {}).items():
            text = text.replace(placeholder, value)
        done = subprocess.run(
            ["/bin/bash", "-o", "pipefail", "-c", text],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_COMMAND_TIMEOUT_SECONDS,
            check=False,
        )
        assert (done.returncode != 0) is fails, f"$ {text}\n{done.stdout}\nended with code {done.returncode}"
        for name in _EXPORTED.findall(text) if text.startswith("export ") else ():
            self.export(**{name: self.run(f'true && {text} && printf %s "${name}"')})
        return done.stdout

    @contextmanager
    def running(self, text: str) -> Iterator[Path]:
        """Run a command until the context ends, with Ctrl-C; yield the file that has what it says."""
        log = self.folder / f"{re.sub(r'[^a-z0-9]+', '-', text)[:80]}.log"
        with log.open("ab") as log_file:
            process = subprocess.Popen(
                ["/bin/bash", "-c", f"exec {text}"],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
            )
            try:
                yield log
                assert process.poll() is None, f"$ {text}\n{log.read_text()}\nended with code {process.returncode}"
            finally:
                process.send_signal(SIGINT)
                process.wait(_TIMEOUT_SECONDS)


class Reader:
    """Runs the commands of a page."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def follow(self, page: str) -> None:
        """Run all commands of the page."""
        with self.followed(page):
            pass

    @contextmanager
    def followed(self, page: str) -> Iterator[None]:
        """Run all commands of the page, and keep background commands running until the context ends."""
        with ExitStack() as running:
            for command in page_commands(page):
                if command.mode == "background":
                    log = running.enter_context(self._shell.running(command.text))
                    _expect(command, log.read_text, again=True)
                    continue
                if command.mode == "stop":
                    running.close()
                self._run(command)
            yield

    def _run(self, command: PageCommand) -> None:
        fails = command.mode == "fails"
        _expect(
            command, lambda: self._shell.run(command.text, fails=fails), again=bool(_QUERY_COMMANDS.match(command.text))
        )


def _expect(command: PageCommand, output: Callable[[], str], *, again: bool) -> None:
    """Compare the output; with `again` repeat the command until it matches the page."""
    timer, clock = threading.Event(), RealClock()
    until = clock.now() + timedelta(seconds=_TIMEOUT_SECONDS)
    while not output_matches(last_output := output(), command.expected_lines):
        if not again or clock.now() > until:
            break
        timer.wait(_RETRY_SECONDS)
    else:
        return
    listed = "\n".join(command.expected_lines)
    raise AssertionError(f"$ {command.text}\n{last_output}\n\nThe page shows:\n{listed}")


def output_matches(output: str, expected_lines: Sequence[str]) -> bool:
    """Tell whether lines come in this order, others between them; blanks count as one."""
    patterns = [re.compile("".join(_pattern(line)) + r"\s*") for line in expected_lines]
    lines = iter(output.splitlines())
    return all(any(pattern.fullmatch(line.strip()) for line in lines) for pattern in patterns)


def _pattern(line: str) -> Iterator[str]:
    for number, part in enumerate(line.split("…")):
        yield ".*" if number else ""
        yield r"\s+".join(map(re.escape, re.split(r"\s+", part)))
