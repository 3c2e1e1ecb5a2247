"""The SDKs of clouds: big, and not part of the default installation.

OCI.check()         # when the operator starts: whether it is there, without loading it
raise OCI.lacking(error)
"""

import importlib.util
from dataclasses import dataclass

from haulout.errors import ConfigError


@dataclass(frozen=True, slots=True)
class OptionalSdk:
    """What is needed to listen to one cloud."""

    cloud: str
    package: str
    extra_name: str  # of the extra, and of the image that has it

    def check(self) -> None:
        """Raise `ConfigError` if it is not installed."""
        if importlib.util.find_spec(self.package) is None:
            raise self.missing_error(f"there is no module {self.package}")

    def missing_error(self, problem: object) -> ConfigError:
        """Return the error that says what to install."""
        where = f"pip install 'haulout[{self.extra_name}]', or the image with the tag -{self.extra_name}"
        return ConfigError(f"to listen to {self.cloud} its SDK is needed: {where} ({problem})")


AWS = OptionalSdk("AWS", "boto3", "aws")
OCI = OptionalSdk("OCI", "oci", "oci")
