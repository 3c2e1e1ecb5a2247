"""A clone of the repository, prepared as the documentation tells readers to."""

import re
from pathlib import Path

from controlplane import ControlPlane
from support.docs.documented_commands import ROOT
from support.docs.page_commands import Shell

_COOKBOOK = ROOT / "examples" / "cookbook"
_MAKE_SCRIPT = """#!/bin/sh
case "$1" in
run) exec haulout run --sandbox ;;
*) grep -qE "^${1:-help}:" MAKEFILE ;;
esac
"""


def page_text(name: str) -> str:
    """Return the text of a page."""
    return (ROOT / name).read_text(encoding="utf-8")


def a_shell(folder: Path, control_plane: ControlPlane, *, kubeconfig: Path | None = None) -> Shell:
    """Return a shell in a clone of the repository; of `make` it has what is not about the clone itself."""
    shell = Shell(folder, kubeconfig=kubeconfig, kubectl=control_plane.assets.path("kubectl"))
    make = folder / "bin" / "make"
    make.write_text(_MAKE_SCRIPT.replace("MAKEFILE", str(ROOT / "Makefile")))
    make.chmod(0o755)
    shell.export(PYTHONUNBUFFERED="1", XDG_CACHE_HOME="")
    for name in ("deploy", "examples"):
        (folder / name).symlink_to(ROOT / name)
    for file in _COOKBOOK.iterdir():
        (folder / file.name).symlink_to(file)
    (folder / "maintenance.yaml").write_text(
        re.findall(r"```yaml\n(.*?)```", page_text("docs/concepts/profiles.md"), re.DOTALL)[0]
    )
    return shell


def create_maintenance(shell: Shell, name: str, node: str) -> None:
    """Order the maintenance of a node."""
    shell.run(
        f"kubectl apply -f - <<EOF\napiVersion: nodemaintenance.medik8s.io/v1beta1\nkind: NodeMaintenance\n"
        f"metadata: {{name: {name}}}\nspec: {{nodeName: {node}}}\nEOF"
    )


def install(shell: Shell) -> None:
    """Apply the manifests of an installation."""
    shell.run("kubectl apply -f deploy/manifests/haulout.yaml")
    delete_webhook(shell)


def delete_webhook(shell: Shell) -> None:
    """Delete the webhook configuration, because no pod of the installation runs that could answer."""
    shell.run("kubectl delete validatingwebhookconfiguration --all")
