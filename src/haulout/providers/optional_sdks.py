"""The SDKs of clouds: large, and not part of the default installation.

OCI.check()         # at startup: raises if the SDK is missing, without importing it
raise OCI.missing_error(error)
"""

import importlib.util
from dataclasses import dataclass

from haulout.errors import ConfigError


@dataclass(frozen=True, slots=True)
class OptionalSdk:
    """The SDK package that is needed to listen to one cloud."""

    cloud: str
    package: str
    extra_name: str  # of the Python extra, and of the image that includes it

    def check(self) -> None:
        """Raise `ConfigError` if the SDK is not installed."""
        if importlib.util.find_spec(self.package) is None:
            raise self.missing_error(f"there is no module {self.package}")

    def missing_error(self, problem: object) -> ConfigError:
        """Return the error that says how to install the SDK."""
        where = f"pip install 'haulout[{self.extra_name}]', or the image with the tag -{self.extra_name}"
        return ConfigError(f"the SDK for {self.cloud} is not installed: use {where} ({problem})")


AWS = OptionalSdk("AWS", "boto3", "aws")
OCI = OptionalSdk("OCI", "oci", "oci")
