"""In which order the files of `make test-cluster` are begun.

A worker takes one file after the other. Those that take longest are begun first, or one worker would be left with a
long one when all others have ended.
"""

from pathlib import Path

# Half a minute and more, where the cores are busy.
LONGEST = (
    "cluster/test_listener_attacks.py",
    "cluster/test_history_faults.py",
    "cluster/test_failover.py",
    "cluster/test_hostile_clusters.py",
    "cluster/test_doctor.py",
    "behaviour/test_tampering.py",
    "cluster/test_documented_commands.py",
    "behaviour/test_bad_input.py",
    "cluster/test_documented_stories.py",
    "cluster/test_helm.py",
    "behaviour/test_drain_cases.py",
    "behaviour/test_onmh_story.py",
    "behaviour/test_permissions.py",
    "behaviour/test_budget.py",
    "behaviour/test_machine_notices.py",
    "behaviour/test_cookbook.py",
    "cluster/test_coming_from_onmh.py",
    "cluster/test_kubectl_matches.py",
    "cluster/test_authorization_match.py",
    "behaviour/test_caches.py",
    "behaviour/test_machine_maintenance.py",
    "cluster/test_install_page.py",
    "cluster/test_migrating_from_mmo.py",
    "cluster/test_coming_from_remc.py",
    "cluster/test_control_plane.py",
    "behaviour/test_profiles_end_to_end.py",
    "cluster/test_coming_from_smc.py",
    "cluster/test_hub.py",
    "behaviour/test_node_maintenance.py",
    "behaviour/test_esx.py",
    "behaviour/test_node_maintenance_superset.py",
    "cluster/test_drain_matches.py",
    "cluster/test_coming_from_nth.py",
    "behaviour/test_history.py",
    "behaviour/test_metal3.py",
    "cluster/test_migrating_from_nmo.py",
)


def longest_first(file: Path) -> int:
    """Return what files are sorted by; those that are not long keep their order."""
    name = f"{file.parent.name}/{file.name}"
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)
