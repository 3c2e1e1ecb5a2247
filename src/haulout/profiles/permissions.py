"""What profiles must be allowed to do, whatever is configured. Whoever adds a request there adds its line here.

Not granted is what one has to be asked about: Secrets, which the check `kubernikusCount` reads. Whoever configures it
grants `get` on that one Secret.
"""

from haulout.drain import permissions as drain
from haulout.kube.access import Permission
from haulout.kube.ledger import LEDGERS
from haulout.profiles.performing import HYPERVISORS
from haulout.profiles.workloads import KINDS

_READ = ("get", "list", "watch")


def permissions(*, namespace: str) -> tuple[Permission, ...]:
    """Return what profiles need; budgets are kept in `namespace`."""
    leases = "coordination.k8s.io", "leases"
    return (
        Permission(_READ, "", "nodes", None, "see nodes"),
        Permission(("patch",), "", "nodes", None, "cordon, taint and label nodes"),
        *drain.permissions(),
        Permission(("get", "create", "patch"), LEDGERS.group, LEDGERS.plural, namespace, "keep budgets"),
        Permission((*_READ, "create", "patch"), *leases, None, "stagger, and keep threads"),
        Permission(("list", "watch"), "apps", "daemonsets", None, "see DaemonSets"),
        *(Permission(("list", "watch"), it.group, it.plural, None, f"see {it.kind}s") for it in KINDS.values()),
        Permission((*_READ, "patch"), HYPERVISORS.group, HYPERVISORS.plural, None, "see and change hypervisors"),
    )
