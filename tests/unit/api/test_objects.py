"""Provider IDs: all formats of the ID of one machine have the same key."""

import pytest

from haulout.api.objects import machine_key

_AZURE = "azure:///subscriptions/S/resourceGroups/RG/providers/Microsoft.Compute/virtualMachines/vm1"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ocid1.instance.oc1.fra.abc", "oci://ocid1.instance.oc1.fra.abc"),
        ("aws:///eu-west-1a/i-0abc", "i-0abc"),
        (_AZURE, _AZURE.lower()),
        ("gce://project/zone/vm", "project/zone/vm"),
        ("openstack:///2f1b-uuid", "openstack://region-1/2f1b-uuid"),
        ("vsphere://4237-uuid", "4237-uuid"),
        (" i-0abc\n", "i-0abc"),
    ],
)
def test_machine_key_is_equal_for_all_formats_of_a_provider_id(one: str, other: str) -> None:
    assert machine_key(one) == machine_key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("aws:///eu-west-1a/i-0abc", "aws:///eu-west-1a/i-0abd"),
        ("gce://project/zone-a/vm", "gce://project/zone-b/vm"),
        ("metal3://ns/host/machine", "metal3://other/host/machine"),
        ("ocid1.instance.oc1.fra.abc", "ocid1.instance.oc1.fra.ABC"),
    ],
)
def test_machine_key_differs_for_different_machines(one: str, other: str) -> None:
    assert machine_key(one) != machine_key(other)
