"""The operator in a process of its own, seen from outside: started, asked for its numbers, ended."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from haulout.app.manifests.workload import LOW_MEMORY_ENVIRONMENT

Numbers = dict[str, float]

ENVIRONMENT = {**os.environ, **LOW_MEMORY_ENVIRONMENT}  # of its Deployment


class OperatorHandle:
    """A running operator."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def numbers(self) -> Numbers:
        """Return how many requests it has sent, the CPU seconds it has used, its memory and its peak."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the operator was started without a way to ask it")
        self._process.stdin.write(b"\n")
        numbers: Numbers = json.loads(await self._process.stdout.readline())
        return numbers


@asynccontextmanager
async def operator(
    kubeconfig: str, *, config: Path | None = None, port: int | None = None
) -> AsyncIterator[OperatorHandle]:
    """Run one with the environment of its Deployment; with profiles and a dashboard, if wished."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).with_name("operator_program.py")),
        kubeconfig,
        "" if config is None else str(config),
        "" if port is None else str(port),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=ENVIRONMENT,
    )
    try:
        yield OperatorHandle(process)
    finally:
        process.kill()
        await process.wait()
