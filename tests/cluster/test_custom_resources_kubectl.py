"""kubectl prints the same about custom resources on the sandbox and on the real server."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from controlplane import ControlPlane
from haulout.core.clock import RealClock
from haulout_sandbox.apiserver import ApiServer
from support.builders.crds import INTEGER, STRING, a_crd, object_schema
from support.cli.kubectl import Kubectl, serve_sandbox

pytestmark = pytest.mark.real_time
GROUP = "kubectl.haulout.dev"
DEFINITION = a_crd(
    "maintenancenotices",
    "MaintenanceNotice",
    object_schema(
        required=["nodeName"],
        nodeName=STRING | {"description": "The node that needs maintenance."},
        kind={"type": "string", "enum": ["Reboot", "Stop"], "default": "Reboot", "description": "What happens."},
        start={"type": "string", "format": "date-time"},
        tries=INTEGER,
    ),
    group=GROUP,
    name="v1alpha1",
    status=object_schema(phase=STRING),
    additionalPrinterColumns=[
        {"name": "Node", "type": "string", "jsonPath": ".spec.nodeName"},
        {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
        {"name": "Tries", "type": "integer", "jsonPath": ".spec.tries", "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ],
)
DEFINITION["spec"]["scope"] = "Cluster"
DEFINITION["spec"]["names"] |= {"shortNames": ["mnk"], "categories": ["upkeep"]}
NAME = DEFINITION["metadata"]["name"]
NOTICE = f"""
apiVersion: {GROUP}/v1alpha1
kind: MaintenanceNotice
metadata: {{name: reboot-n1, labels: {{zone: a}}}}
spec: {{nodeName: n1, tries: 2}}
"""
FILES = {
    "crd.json": json.dumps(DEFINITION),
    "notice.yaml": NOTICE,
    "changed.yaml": NOTICE.replace("tries: 2", "tries: 3"),
    "odd.yaml": NOTICE.replace("tries: 2", "odd: 2"),
    "wrong.yaml": NOTICE.replace("tries: 2", "tries: x, kind: Other"),
}
COMMANDS = f"""
get mnk
apply -f crd.json
wait --for=condition=Established --timeout=60s crd/{NAME}
get crd {NAME}
get crd {NAME} -o jsonpath={{.status}}
api-resources --api-group={GROUP}
api-resources --api-group={GROUP} -o wide
explain mnk.spec
explain mnk.spec.kind
explain mnk.status --recursive
explain mnk.none
get mnk
create -f notice.yaml
create -f notice.yaml
apply -f notice.yaml
apply -f changed.yaml
apply -f changed.yaml
apply -f odd.yaml
apply -f odd.yaml --validate=warn
apply -f odd.yaml --validate=false
apply -f wrong.yaml
diff -f changed.yaml
apply --server-side --force-conflicts --field-manager=me -f notice.yaml
get mnk
get mnk -o wide
get upkeep
get maintenancenotices.{GROUP} -o name
get mnk -l zone=b
get mnk --field-selector=spec.tries=2
describe mnk reboot-n1
label mnk reboot-n1 tier=gold
annotate mnk reboot-n1 note=hello
patch mnk reboot-n1 --type=merge -p {{"spec":{{"tries":5}}}}
patch mnk reboot-n1 --type=json -p [{{"op":"remove","path":"/spec/tries"}}]
patch mnk reboot-n1 -p {{"spec":{{"tries":5}}}}
patch mnk reboot-n1 --subresource=status --type=merge -p {{"status":{{"phase":"Due"}}}}
wait --for=jsonpath={{.status.phase}}=Due mnk/reboot-n1 --timeout=5s
get mnk
delete mnk reboot-n1
get mnk reboot-n1
delete crd {NAME} --timeout=60s
get crd {NAME}
"""
VOLATILE = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "time"),
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "uid"),
    (re.compile(r'(resourceVersion: |Resource Version: +)"?\d+"?'), r"\1revision"),
    (re.compile(r"\b\d+s\b *$", re.MULTILINE), "age"),
    (re.compile(r'\\"managedFields\\":\[.*?\],(?=\\"name)'), ""),
    (re.compile(r'\\"resourceVersion\\":\\"\d+'), "revision"),
    (re.compile(r"^(---|\+\+\+|diff -u -N) .*$", re.MULTILINE), r"\1"),
)


@pytest_asyncio.fixture
async def kubectls(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[tuple[Kubectl, Kubectl]]:
    """Return a kubectl for the real server and one for a sandbox."""
    binary = control_plane.assets.path("kubectl")
    folders = [tmp_path / "real", tmp_path / "sandbox"]
    for folder in folders:
        folder.mkdir()
        for name, content in FILES.items():
            (folder / name).write_text(content)
    async with serve_sandbox(ApiServer(RealClock()), folders[1]) as kubeconfig:
        real = Kubectl(binary, kubeconfig=control_plane.kubeconfig(), folder=folders[0])
        yield real, Kubectl(binary, kubeconfig=kubeconfig, folder=folders[1])


def comparable(text: str) -> str:
    for pattern, word in VOLATILE:
        text = pattern.sub(word, text)
    return text


async def test_kubectl_output_for_custom_resources_is_identical(kubectls: tuple[Kubectl, Kubectl]) -> None:
    for command in COMMANDS.strip().splitlines():
        real_result, sandbox_result = await asyncio.gather(
            *(kubectl.run_until_published(*command.split()) for kubectl in kubectls)
        )
        assert comparable(sandbox_result.out) == comparable(real_result.out), command
        assert sandbox_result.code == real_result.code, command
