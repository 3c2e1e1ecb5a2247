"""The trigger `alterHypervisor`."""

from dataclasses import dataclass

from haulout.kube.objects import RawObject
from haulout.profiles.options import option
from haulout.profiles.plugin import Effect, PatchHypervisor, Scene, Trigger


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterHypervisor(Trigger):
    """Sets fields in the `spec` of the Hypervisor (`kvm.cloud.sap/v1`) that has the node's name.

    What is not given stays as it is. If there is no such Hypervisor the trigger fails, and is tried again.
    """

    type = "alterHypervisor"
    example = """\
maintenance: manual
maintenanceReason: kernel update
customTraits: [CUSTOM_DRAINING]
"""

    version: str | None = option("The version of its operating system.", default=None)
    reboot: bool | None = option("Whether it is to be rebooted.", default=None)
    evacuate_on_reboot: bool | None = option("Whether it is emptied before a reboot.", default=None)
    lifecycle_enabled: bool | None = option("Whether its operator brings it in and out of service.", default=None)
    skip_tests: bool | None = option("Whether it goes into service without being tested.", default=None)
    high_availability: bool | None = option("Whether its machines are started elsewhere if it fails.", default=None)
    create_cert_manager_certificate: bool | None = option("Whether it asks for a certificate.", default=None)
    install_certificate: bool | None = option("Whether its certificate is put in place.", default=None)
    custom_traits: tuple[str, ...] | None = option("All traits that it has beside its own.", default=None)
    aggregates: tuple[str, ...] | None = option("All aggregates that it belongs to.", default=None)
    allowed_projects: tuple[str, ...] | None = option("All projects that may use it.", default=None)
    maintenance: str | None = option(
        "Its kind of maintenance: `manual`, `auto`, `ha`, `termination`, or empty for none.", default=None
    )
    maintenance_reason: str | None = option("Why it is in maintenance.", default=None)

    def effects(self, scene: Scene) -> tuple[Effect, ...]:
        """Return the one change; none if nothing is to be set."""
        del scene
        spec = self._spec()
        return (PatchHypervisor(spec),) if spec else ()

    def _spec(self) -> RawObject:
        fields = {
            "version": self.version,
            "reboot": self.reboot,
            "evacuateOnReboot": self.evacuate_on_reboot,
            "lifecycleEnabled": self.lifecycle_enabled,
            "skipTests": self.skip_tests,
            "highAvailability": self.high_availability,
            "createCertManagerCertificate": self.create_cert_manager_certificate,
            "installCertificate": self.install_certificate,
            "customTraits": _listed(self.custom_traits),
            "aggregates": _listed(self.aggregates),
            "allowedProjects": _listed(self.allowed_projects),
            "maintenance": self.maintenance,
            "maintenanceReason": self.maintenance_reason,
        }
        return {name: value for name, value in fields.items() if value is not None}


def _listed(values: tuple[str, ...] | None) -> list[str] | None:
    return None if values is None else list(values)
