"""Settings for OCI: those of the OCI Node Maintenance Handler work unchanged."""

import pytest

from haulout.errors import ConfigError
from haulout.providers.oci.settings import Auth, OciSettings, read

STREAM = "ocid1.stream.oc1.eu-frankfurt-1.amaaaaaaexample"
ENDPOINT = "https://cell-1.streaming.eu-frankfurt-1.oci.oraclecloud.com"
COMPARTMENT = "ocid1.compartment.oc1..aaaaexample"


def test_oci_is_disabled_by_default() -> None:
    assert read({"HOME": "/root", "WD_NODEPOOL": "pool", "WD_STREAM_ENDPOINT": ENDPOINT}) is None


@pytest.mark.parametrize("name", ["WD_STREAM_OCID", "WD_STREAM_ID"])
def test_case_16_stream_variable_is_accepted_in_both_spellings(name: str) -> None:
    assert read({name: STREAM, "WD_STREAM_ENDPOINT": ENDPOINT}) == OciSettings(stream=STREAM, endpoint=ENDPOINT)


def test_wd_stream_ocid_takes_precedence_and_a_difference_is_reported() -> None:
    other = f"{STREAM}2"
    found = read({"WD_STREAM_OCID": STREAM, "WD_STREAM_ID": other, "WD_STREAM_ENDPOINT": ENDPOINT})
    assert found is not None
    assert found.stream == STREAM
    assert found.ignored == ("WD_STREAM_ID differs from WD_STREAM_OCID, which is used",)


def test_config_map_of_the_handler_is_accepted() -> None:
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
def test_authentication_method_is_configurable(written: str) -> None:
    found = read({"HAULOUT_OCI_COMPARTMENTS": COMPARTMENT, "HAULOUT_OCI_AUTH": written})
    assert found is not None
    assert found.auth is Auth.WORKLOAD_IDENTITY


@pytest.mark.parametrize(
    ("changed", "message"),
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
def test_invalid_oci_settings_are_rejected_with_key_and_expected_format(changed: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^environment: {message}"):
        read({"WD_STREAM_ID": STREAM, "WD_STREAM_ENDPOINT": ENDPOINT} | changed)
