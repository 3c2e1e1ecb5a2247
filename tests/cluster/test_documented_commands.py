"""All commands that are anywhere in the documentation, and in no page that is followed, on a sandbox.

They are run one by one, page by page, on one sandbox with an operator at work, and must succeed. What they would show
is on the page of each command and in its own tests.
"""

import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from controlplane import ControlPlane
from support.docs.documented_commands import DocumentedCommand, all_documented_commands, documented_commands
from support.docs.page_commands import Shell
from support.docs.repository_clone import a_shell, create_maintenance, delete_webhook, install, page_text
from support.servers.sandbox_process import SandboxProcess, running_sandbox

# Nodes of the pages, and their substitutes, each of which may be drained.
SUBSTITUTIONS = {
    "REGISTRY/haulout:TAG": "registry.example.com/haulout:1",
    "…": "example",
    "NODE": "general-12",
    "n1": "general-09",
    "n2": "general-10",
    "b1": "general-11",
    "gpu1": "large-01",
    "oci-e1": "e1",
}
# Programs that this machine may lack.
FOREIGN = ("curl", "jq")
ENDLESS = re.compile(r"^haulout (run|maintenance-controller)|^make run")

pytestmark = pytest.mark.real_time


@pytest.fixture(scope="module")
def docs_sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxProcess]:
    """Yield a sandbox with an operator at work, for all pages."""
    with running_sandbox(tmp_path_factory.mktemp("home")) as running:
        yield running


RUN = [it for it in all_documented_commands() if not (it.is_followed or it.is_synopsis or it.reason)]


@pytest.mark.parametrize("name", sorted({it.page for it in RUN}))
def test_documented_commands_succeed(
    name: str, docs_sandbox: SandboxProcess, control_plane: ControlPlane, tmp_path: Path
) -> None:
    shell = a_shell(tmp_path, control_plane, kubeconfig=docs_sandbox.kubeconfig)
    prepare(shell, name)
    for command in documented_commands(name, page_text(name)):
        if command in RUN:
            run(shell, command, docs_sandbox)


def prepare(shell: Shell, name: str) -> None:
    """Create the objects that a page mentions, whatever the page before has done."""
    if any("-n haulout" in item.text or "clusterrole" in item.text for item in RUN if item.page == name):
        install(shell)
    else:
        delete_webhook(shell)
    shell.run("kubectl -n haulout delete configmap haulout-profiles haulout-clouds --ignore-not-found")
    (shell.folder / "aws.env").write_text("QUEUE_URL=https://sqs.eu-west-1.amazonaws.com/1/maintenance\n")
    scenario = re.search(r"```yaml\n(description.*?)```", page_text("docs/reference/sandbox-scenarios.md"), re.DOTALL)
    assert scenario
    (shell.folder / "storm.yaml").write_text(scenario[1])
    if name.endswith(("budget.md", "why.md")):
        create_maintenance(shell, "patch-general-10", "general-10")
    if name.endswith("business-hours.md"):
        shell.run("kubectl -n haulout apply -f - <<EOF\n" + LEASE + "EOF")
    if name.endswith("/machine-maintenance.md"):
        shell.run("kubectl create namespace openshift-machine-api")
    if name.endswith("/kubernikus.md"):
        (shell.folder / "kubernikus.yaml").write_text(page_text(name).partition("```yaml\n")[2].partition("```")[0])
    if name.endswith("/alerts.md"):
        shell.run("kubectl -n haulout create configmap haulout-profiles --from-file=maintenance.yaml")
    if name.endswith(("/gitops.md", "/node-maintenance.md")):
        create_maintenance(shell, "patch-general-09", "general-09")
    if name.endswith("/gitops.md"):
        shell.run("kubectl create namespace argocd && kubectl -n argocd create configmap argocd-cm")
    if name.endswith("notice-timing.md"):
        shell.run("kubectl apply -f - <<EOF\n" + NOTICE + "EOF")


LEASE = "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: business-hours-0}\n"
NOTICE = """apiVersion: haulout.dev/v1alpha1
kind: MaintenanceNotice
metadata: {name: e1}
spec: {nodeName: general-13, source: people, kind: Reboot, start: "2040-01-01T00:00:00Z"}
"""


def run(shell: Shell, command: DocumentedCommand, docs_sandbox: SandboxProcess) -> None:
    """Run a command; an endless one is stopped after its first output."""
    text = command.text
    if any(re.search(rf"\b{item} ", text) and not shutil.which(item) for item in FOREIGN):
        return
    for placeholder, value in SUBSTITUTIONS.items():
        text = re.sub(rf"\b{placeholder}\b" if placeholder.isalnum() else re.escape(placeholder), value, text)
    if ENDLESS.match(text):
        with ExitStack() as until:
            shell.export(KUBECONFIG=str(docs_sandbox.kubeconfig))
            log = until.enter_context(shell.running(text.replace("make run", "haulout run --sandbox")))
            shell.run(f"for i in $(seq 600); do test -s '{log}' && exit; sleep 0.1; done; exit 1")
            shell.run("sleep 2")  # what it said may be why it ends
        return
    if "--watch" in text or text.startswith("curl -sN"):
        text = f"timeout -s INT 2 {text} || test $? -eq 124"
    if text.startswith("haulout top") and "--from" not in text:  # it would look for a pod, and none runs a container
        text = text.replace("haulout top", f"haulout top --from {dashboard_address(docs_sandbox)}")
    shell.run(text.replace("http://127.0.0.1:8080", dashboard_address(docs_sandbox)))


def dashboard_address(docs_sandbox: SandboxProcess) -> str:
    """Return where the operator of the sandbox answers: another port, if that of the pages was taken."""
    return next(line.split()[-1].rstrip("/") for line in docs_sandbox.output_lines if line.startswith("Dashboard"))
