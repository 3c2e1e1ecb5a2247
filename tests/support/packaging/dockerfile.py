"""Parses a Dockerfile and runs its stages in a folder, without a container engine.

    build = Build(tmp_path)
    build.stage(REPOSITORY / "Dockerfile", "wheel", context=REPOSITORY)

Absolute paths in commands are below the folder, and `python` is the one that runs the tests. All stages share the
folder, so files copied from another stage are already there.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

_ABSOLUTE = re.compile(r"(?<![\w/.])/(?=(?:opt|wheel|source|plugin|requirements)\b)")
_TIMEOUT_SECONDS = 300


class Instruction(NamedTuple):
    """A line of a Dockerfile."""

    stage: str
    keyword: str
    arguments: str


def instructions(file: Path) -> list[Instruction]:
    """Return the lines of a Dockerfile; what is before the first stage belongs to none."""
    text = re.sub(r"\\\n\s*", "", file.read_text())
    found, stage = [], ""
    for line in filter(None, (candidate.partition("#")[0].strip() for candidate in text.splitlines())):
        keyword, _, arguments = line.partition(" ")
        if keyword == "FROM":
            stage = arguments.rpartition(" AS ")[2]
        found.append(Instruction(stage, keyword, arguments))
    return found


@dataclass
class Build:
    """Stages, in a folder that stands for the root of all of them."""

    root: Path
    workdir: str = "/"

    def stage(self, file: Path, name: str, *, context: Path, without: str = "") -> None:
        """Run a stage, without the commands that contain `without`."""
        for instruction in instructions(file):
            if instruction.stage != name or (without and without in instruction.arguments):
                continue
            if instruction.keyword == "WORKDIR":
                self.workdir = instruction.arguments
                self.path_in_root(".").mkdir(parents=True, exist_ok=True)
            elif instruction.keyword == "COPY" and not instruction.arguments.startswith("--from="):
                self._copy(*instruction.arguments.split(), context=context)
            elif instruction.keyword == "RUN":
                self.run(instruction.arguments)

    def run(self, command: str) -> str:
        """Run a command that can install only local packages; return its output."""
        # A build in isolation would fetch the build backend; the tests have it.
        offline = command.replace("pip wheel ", "pip wheel --no-build-isolation ")
        done = subprocess.run(
            ["/bin/sh", "-ec", _ABSOLUTE.sub(f"{self.root}/", offline)],
            cwd=self.path_in_root("."),
            env={"PATH": f"{Path(sys.executable).parent}{os.pathsep}/usr/bin:/bin", "PIP_NO_INDEX": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_SECONDS,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def path_in_root(self, path: str) -> Path:
        """Return where a path of the image is."""
        return self.root / os.path.join(self.workdir, path).lstrip("/")  # noqa: PTH118 - as an engine joins them

    def _copy(self, *paths: str, context: Path) -> None:
        *sources, target = paths
        to = self.path_in_root(target)
        for source in sources:
            into = to / Path(source).name if target.endswith("/") else to
            into.parent.mkdir(parents=True, exist_ok=True)
            if (context / source).is_dir():
                shutil.copytree(context / source, to, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
            else:
                shutil.copy(context / source, into)
