"""Runs the commands of a page, in their order, as a reader pastes them.

    ```console
    $ kubectl get nodes
    NAME   STATUS
    n1     Ready…
    ```

Lines that begin with `$ ` are commands, and go on after a backslash. What follows them is what the reader is to see:
each of these lines must come, in this order; others may come between, and `…` stands for anything. What only looks is
run again until it shows that. A block `console background` goes on running until a block `console stop` begins, which
stands for Ctrl-C. Other blocks are only for reading.
"""

import re
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import SIGINT

_BLOCK = re.compile(r"^( *)```console(?: (\w+))?\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
_LOOKS = re.compile(r"(kubectl (-n \S+ )?get|haulout (why|status|check|cluster-info)) ")
_PATIENCE_SECONDS = 60
_LOOKS_AGAIN_AFTER_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a page, and what is to be seen."""

    text: str
    shows: tuple[str, ...] = ()
    how: str = ""  # background, stop or nothing


def commands(page: str) -> Iterator[Command]:
    """Yield the commands of a page."""
    for indent, how, block in _BLOCK.findall(page):
        first = how
        for part in re.split(r"^\$ ", block.replace(f"\n{indent}", "\n").removeprefix(indent), flags=re.MULTILINE)[1:]:
            lines = re.sub(r" *\\\n\s*", " ", part).splitlines()
            yield Command(lines[0], tuple(it.strip() for it in lines[1:] if it.strip()), first)
            first = how if how == "background" else ""


class Reader:
    """One who does what a page says, in a folder, with a shell."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self._environment = environment
        self._running: subprocess.Popen[str] | None = None
        self._heard: list[str] = []

    def follow(self, page: str) -> None:
        """Do it all."""
        try:
            for command in commands(page):
                self._do(command)
        finally:
            self._interrupt()

    def _do(self, command: Command) -> None:
        if command.how == "background":
            self._start(command)
            return
        if command.how == "stop":
            self._interrupt()
        said = self._run(command.text)
        waits = threading.Event()
        for _ in range(round(_PATIENCE_SECONDS / _LOOKS_AGAIN_AFTER_SECONDS)):
            if shows(said, command.shows) or not _LOOKS.match(command.text):
                break
            waits.wait(_LOOKS_AGAIN_AFTER_SECONDS)
            said = self._run(command.text)
        assert shows(said, command.shows), f"$ {command.text}\n{said}\n\nThe page shows:\n{_listed(command.shows)}"

    def _run(self, text: str) -> str:
        done = subprocess.run(
            ["/bin/bash", "-o", "pipefail", "-c", text],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_PATIENCE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"$ {text}\n{done.stdout}\nended with code {done.returncode}"
        return done.stdout

    def _start(self, command: Command) -> None:
        """Start what goes on running, and wait for what it is to say."""
        self._heard = []
        self._running = running = subprocess.Popen(
            ["/bin/bash", "-c", f"exec {command.text}"],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        threading.Thread(target=self._listen, args=[running], daemon=True).start()
        waits = threading.Event()
        for _ in range(round(_PATIENCE_SECONDS / _LOOKS_AGAIN_AFTER_SECONDS)):
            if shows("".join(self._heard), command.shows):
                return
            waits.wait(_LOOKS_AGAIN_AFTER_SECONDS)
        raise AssertionError(f"$ {command.text}\n{''.join(self._heard)}\n\nThe page shows:\n{_listed(command.shows)}")

    def _listen(self, running: "subprocess.Popen[str]") -> None:
        for line in running.stdout or ():
            self._heard.append(line)

    def _interrupt(self) -> None:
        if self._running is None:
            return
        self._running.send_signal(SIGINT)
        self._running.wait(_PATIENCE_SECONDS)
        if self._running.stdout:
            self._running.stdout.close()
        self._running = None


def shows(said: str, wanted: Sequence[str]) -> bool:
    """Tell whether lines come in this order, others between them; blanks count as one."""
    patterns = [re.compile("".join(_pattern(line)) + r"\s*") for line in wanted]
    lines = iter(said.splitlines())
    return all(any(pattern.fullmatch(line.strip()) for line in lines) for pattern in patterns)


def _pattern(line: str) -> Iterator[str]:
    for number, part in enumerate(line.split("…")):
        yield ".*" if number else ""
        yield r"\s+".join(map(re.escape, re.split(r"\s+", part)))


def _listed(wanted: Sequence[str]) -> str:
    return "\n".join(wanted)
