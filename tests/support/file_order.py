"""The order in which `make test-cluster` starts test files.

A worker runs one file after the other. The slowest files start first; otherwise one worker would still run a slow file
after all others have finished.
"""

from pathlib import Path

# Files that take half a minute or more on a busy machine.
LONGEST_FILES = (
    "cluster/test_listener_attacks.py",
    "cluster/test_history_faults.py",
    "cluster/test_failover.py",
    "cluster/test_hostile_clusters.py",
    "cluster/test_doctor.py",
    "behaviour/test_tampering.py",
    "cluster/test_documented_commands.py",
    "behaviour/test_bad_input.py",
    "cluster/test_documented_walkthroughs.py",
    "cluster/test_helm.py",
    "behaviour/test_drain_cases.py",
    "behaviour/test_oci_handler_end_to_end.py",
    "behaviour/test_permissions.py",
    "behaviour/test_budget.py",
    "behaviour/test_machine_notices.py",
    "behaviour/test_cookbook.py",
    "cluster/test_migrating_from_onmh.py",
    "cluster/test_kubectl_conformance.py",
    "cluster/test_authorization_conformance.py",
    "behaviour/test_informers.py",
    "behaviour/test_machine_maintenance.py",
    "cluster/test_install_docs.py",
    "cluster/test_migrating_from_mmo.py",
    "cluster/test_migrating_from_remc.py",
    "cluster/test_control_plane.py",
    "behaviour/test_profiles_end_to_end.py",
    "cluster/test_migrating_from_smc.py",
    "cluster/test_hub.py",
    "behaviour/test_node_maintenance.py",
    "behaviour/test_esx.py",
    "behaviour/test_node_maintenance_superset.py",
    "cluster/test_drain_conformance.py",
    "cluster/test_migrating_from_nth.py",
    "behaviour/test_history.py",
    "behaviour/test_metal3.py",
    "cluster/test_migrating_from_nmo.py",
)


def duration_rank(file: Path) -> int:
    """Return the sort key of a file; short files keep their order."""
    name = f"{file.parent.name}/{file.name}"
    return LONGEST_FILES.index(name) if name in LONGEST_FILES else len(LONGEST_FILES)
