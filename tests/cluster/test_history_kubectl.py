"""The output of kubectl for records, identical on the sandbox and on the real server."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from controlplane import ControlPlane
from haulout.api.maintenancerecord import NODE_DELETED_ANNOTATION, custom_resource_definition
from haulout.core.clock import RealClock
from haulout_sandbox.apiserver import ApiServer
from support.cli.kubectl import Kubectl, serve_sandbox

pytestmark = pytest.mark.real_time
NAME = "history-of-n1"
RECORD = {
    "apiVersion": "haulout.dev/v1alpha1",
    "kind": "MaintenanceRecord",
    "metadata": {"name": NAME, "annotations": {NODE_DELETED_ANNOTATION: "2026-01-01T00:06:00Z"}},
    "total": 12,
    "entries": [
        {
            "time": "2026-01-01T00:00:00Z",
            "object": "profile/os",
            "to": "maintenance-required",
            "reason": "wanted passed",
        },
        {
            "time": "2026-01-01T00:05:00.123456Z",
            "object": "profile/os",
            "from": "maintenance-required",
            "to": "in-maintenance",
            "reason": "room passed",
        },
    ],
}
FILES = {"crd.json": json.dumps(custom_resource_definition()), "record.json": json.dumps(RECORD)}
COMMANDS = f"""
apply -f crd.json
wait --for=condition=Established --timeout=60s crd/{custom_resource_definition()["metadata"]["name"]}
create -f record.json
get mr {NAME}
get mr {NAME} -o wide
explain mr.entries.drain
delete mr {NAME}
"""
AGE = re.compile(r"\b\d+[smhdy](\d+[smhd])?\b")


def comparable(text: str) -> str:
    """Return it without ages, and without whether the definition was there before."""
    lines = (re.sub(r" {2,}", "  ", AGE.sub("age", line)) for line in text.splitlines())
    return "\n".join(line for line in lines if not line.startswith("customresourcedefinition"))


async def test_kubectl_table_has_the_last_change_and_the_entry_count(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    binary = control_plane.assets.path("kubectl")
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    async with serve_sandbox(ApiServer(RealClock()), tmp_path) as kubeconfig:
        real = Kubectl(binary, kubeconfig=control_plane.kubeconfig(), folder=tmp_path)
        sandbox = Kubectl(binary, kubeconfig=kubeconfig, folder=tmp_path)
        outputs = {}
        for command in COMMANDS.strip().splitlines():
            real_result, sandbox_result = await asyncio.gather(
                *(item.run_until_published(*command.split()) for item in (real, sandbox))
            )
            assert comparable(sandbox_result.out) == comparable(real_result.out), command
            assert (real_result.code, real_result.err) == (0, ""), command
            outputs[command] = real_result.out.splitlines()
    header, row = outputs[f"get mr {NAME}"]
    assert re.split(r" {2,}", header) == [
        "NAME",
        "LAST CHANGE",
        "OBJECT",
        "FROM",
        "TO",
        "ENTRIES",
        "NODE DELETED",
        "AGE",
    ]
    assert re.split(r" {2,}", row)[2:6] == ["profile/os", "maintenance-required", "in-maintenance", "12"]
    assert AGE.fullmatch(re.split(r" {2,}", row)[6])
    assert "room passed" in outputs[f"get mr {NAME} -o wide"][1]
