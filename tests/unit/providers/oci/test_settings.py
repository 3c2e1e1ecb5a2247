"""Settings for OCI: those of the OCI Node Maintenance Handler work unchanged."""

import pytest

from haulout.errors import ConfigError
from haulout.providers.oci.settings import Auth, OciSettings, read

STREAM = "ocid1.stream.oc1.eu-frankfurt-1.amaaaaaaexample"
ENDPOINT = "https://cell-1.streaming.eu-frankfurt-1.oci.oraclecloud.com"
COMPARTMENT = "ocid1.compartment.oc1..aaaaexample"


def test_without_settings_oci_is_not_listened_to() -> None:
    assert read({"HOME": "/root", "WD_NODEPOOL": "pool", "WD_STREAM_ENDPOINT": ENDPOINT}) is None


@pytest.mark.parametrize("name", ["WD_STREAM_OCID", "WD_STREAM_ID"])
def test_case_16_a_stream_may_be_named_as_documented_or_as_coded(name: str) -> None:
    assert read({name: STREAM, "WD_STREAM_ENDPOINT": ENDPOINT}) == OciSettings(stream=STREAM, endpoint=ENDPOINT)


def test_if_both_differ_the_coded_one_counts_and_that_is_said() -> None:
    other = f"{STREAM}2"
    found = read({"WD_STREAM_OCID": STREAM, "WD_STREAM_ID": other, "WD_STREAM_ENDPOINT": ENDPOINT})
    assert found is not None
    assert found.stream == STREAM
    assert found.ignored == ("WD_STREAM_ID differs from WD_STREAM_OCID, which is used",)


def test_the_whole_config_map_of_the_handler_is_accepted() -> None:
    data = {
        "WD_STREAM_ID": STREAM,
        "WD_STREAM_ENDPOINT": "private.example.oci.customer-oci.com/",
        "WD_NODEPOOL": "wd-pool",
        "WD_NAMESPACE": "wd",
        "WD_TTL_SECONDS_AFTER_FINISHED": "3600",
        "WD_BACKOFF_LIMIT": "four",
    }
    found = read(data, place_name="ConfigMap wd/wd")
    assert found is not None
    assert found.endpoint == "https://private.example.oci.customer-oci.com"
    assert (found.group, found.auth) == ("wd-group", Auth.INSTANCE_PRINCIPAL)
    assert found.handler_namespace == "wd"
    assert [item.split()[0] for item in found.ignored] == [
        "WD_NODEPOOL",
        "WD_TTL_SECONDS_AFTER_FINISHED",
        "WD_BACKOFF_LIMIT",
    ]


def test_compartments_alone_are_enough() -> None:
    found = read({"HAULOUT_OCI_COMPARTMENTS": f"{COMPARTMENT}, ocid1.tenancy.oc1..aaaa\n"})
    assert found is not None
    assert (found.stream, found.compartments) == ("", (COMPARTMENT, "ocid1.tenancy.oc1..aaaa"))


@pytest.mark.parametrize("written", ["workload-identity", "WORKLOAD_IDENTITY", " workload-identity "])
def test_credentials_may_be_chosen(written: str) -> None:
    found = read({"HAULOUT_OCI_COMPARTMENTS": COMPARTMENT, "HAULOUT_OCI_AUTH": written})
    assert found is not None
    assert found.auth is Auth.WORKLOAD_IDENTITY


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"WD_STREAM_ID": "<OCID of your OCI Stream>"}, "WD_STREAM_ID: expected the OCID of a stream, .* found '<OCID"),
        ({"WD_STREAM_OCID": COMPARTMENT}, "WD_STREAM_OCID: expected the OCID of a stream"),
        ({"WD_STREAM_ENDPOINT": ""}, "WD_STREAM_ENDPOINT: expected the Messages endpoint of the stream"),
        (
            {"WD_STREAM_ENDPOINT": "<Messages Endpoint URL>"},
            "WD_STREAM_ENDPOINT: expected an address such as https://host",
        ),
        ({"WD_STREAM_ENDPOINT": "ftp://host"}, "WD_STREAM_ENDPOINT: expected an address"),
        ({"HAULOUT_OCI_COMPARTMENTS": "prod"}, "HAULOUT_OCI_COMPARTMENTS: expected the OCID of a compartment"),
        ({"HAULOUT_OCI_AUTH": "password"}, "HAULOUT_OCI_AUTH: expected one of instance-principal, workload-identity"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_key_and_what_was_expected(changed: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=f"^environment: {told}"):
        read({"WD_STREAM_ID": STREAM, "WD_STREAM_ENDPOINT": ENDPOINT} | changed)
