"""The health that Argo CD shows for an object, by the health check that Haulout ships for its kind.

    assert health(obj) == ("Degraded", "2 of 2 healthy pods needed")

Argo CD runs such scripts in Lua 5.1, with the base and table libraries (util/lua in its repository).
"""

import functools

import yaml
from lupa import lua51

from haulout.api.objects import RawObject
from support.expectations.kstatus import CURRENT, FAILED, IN_PROGRESS
from support.packaging.helm import DEPLOY

PATCH = DEPLOY / "argocd" / "argocd-cm.yaml"
HEALTH = {CURRENT: "Healthy", IN_PROGRESS: "Progressing", FAILED: "Degraded"}  # what kstatus says, in its words
_FORBIDDEN_LIBRARIES = ("io", "os", "string", "math", "debug", "package", "require", "python")


def health(obj: RawObject) -> tuple[str, str]:
    """Return status and message."""
    group = obj["apiVersion"].partition("/")[0]
    script = _scripts()[f"resource.customizations.health.{group}_{obj['kind']}"]
    lua = lua51.LuaRuntime(register_eval=False, register_builtins=False)
    names = lua.globals()
    for name in _FORBIDDEN_LIBRARIES:
        names[name] = None
    names["obj"] = lua.table_from(obj, recursive=True)
    found = lua.execute(script)
    return found["status"], found["message"]


@functools.cache
def _scripts() -> dict[str, str]:
    data: dict[str, str] = yaml.safe_load(PATCH.read_text())["data"]
    return data
