"""The clouds whose instances are the nodes of a scenario, behind one interface.

    instance = aws.launch_instance("large-01", pool="large", zone="zone-a")
    event = aws.announce_maintenance(instance.name, "Reboot", start=…, duration=…, can_reschedule=True)
    aws.end_maintenance(event)

Clients of the clouds receive notices as from the real ones: as messages of a stream or a queue, or by polling.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from haulout.core.clock import Clock
from haulout_sandbox.clouds.aws import AwsCloud
from haulout_sandbox.clouds.azure import AzureCloud
from haulout_sandbox.clouds.azure.cloud import SUBSCRIPTION
from haulout_sandbox.clouds.gcp import GcpCloud
from haulout_sandbox.clouds.oci import OciCloud
from haulout_sandbox.clouds.oci.cloud import COMPARTMENT
from haulout_sandbox.clouds.oci.time_format import parse_time
from haulout_sandbox.scenarios.model import Cloud

_OCI_ACTIONS = {"Reboot": "REBOOT_MIGRATION", "Stop": "STOP", "Terminate": "TERMINATE", "Migrate": "NONE"}
_AWS_CODES = {
    "Reboot": "system-reboot",
    "Stop": "instance-stop",
    "Terminate": "instance-retirement",
    "Freeze": "system-maintenance",
}
_AWS_DESCRIPTIONS = {"Freeze": "The network of the host needs maintenance"}
_RESCHEDULE_WINDOW = timedelta(days=7)

SUPPORTED_KINDS: Mapping[Cloud, tuple[str, ...]] = {  # the maintenance kinds of each cloud
    "oci": tuple(_OCI_ACTIONS),
    "aws": tuple(_AWS_CODES),
    "azure": ("Reboot", "Terminate", "Freeze"),
    "gcp": ("Reboot", "Stop", "Migrate"),
}
TITLES: Mapping[Cloud, str] = {  # display names
    "oci": "OCI",
    "aws": "AWS",
    "azure": "Azure",
    "gcp": "Google Cloud",
}


@dataclass(frozen=True, slots=True)
class LaunchedInstance:
    """An instance: its name in the cloud, and the providerID and labels of its node."""

    instance_id: str
    provider_id: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str] = field(default_factory=dict)


class CloudProvider(Protocol):
    @property
    def title(self) -> str: ...

    def launch_instance(self, name: str, *, pool: str, zone: str) -> LaunchedInstance: ...

    def announce_maintenance(
        self, instance: str, kind: str, *, start: datetime, duration: timedelta, can_reschedule: bool
    ) -> str: ...

    def maintenance_start(self, event: str) -> datetime:
        """Return the start of a maintenance, which a client of the cloud may have changed."""
        ...

    def reschedule(self, event: str, *, start: datetime) -> None: ...

    def cancel_maintenance(self, event: str) -> None: ...

    def discard_maintenance(self, event: str) -> None:
        """End a maintenance because its machine no longer exists."""
        ...

    def start_maintenance(self, event: str) -> None:
        """Report the start of a maintenance, if the cloud does so."""
        ...

    def end_maintenance(self, event: str) -> None: ...

    def stop_instance(self, instance: str) -> None: ...

    def start_instance(self, instance: str) -> None: ...

    def terminate_instance(self, instance: str) -> None: ...


class OciProvider:
    title = TITLES["oci"]

    def __init__(self, clock: Clock) -> None:
        self.cloud = OciCloud(clock)

    def launch_instance(self, name: str, *, pool: str, zone: str) -> LaunchedInstance:
        del zone  # not part of the name
        instance_id = self.cloud.launch(name)
        labels = {"hostname": name, "displayName": name, "name": pool}
        return LaunchedInstance(instance_id, instance_id, labels, {"oci.oraclecloud.com/compartment-id": COMPARTMENT})

    def announce_maintenance(
        self, instance: str, kind: str, *, start: datetime, duration: timedelta, can_reschedule: bool
    ) -> str:
        return self.cloud.schedule(
            instance,
            start=start,
            window=None,
            estimate=duration,
            action=_OCI_ACTIONS[kind],
            can_reschedule=can_reschedule,
        )

    def maintenance_start(self, event: str) -> datetime:
        return parse_time(self.cloud.compute_service.events[event]["timeWindowStart"])

    def reschedule(self, event: str, *, start: datetime) -> None:
        self.cloud.reschedule(event, start)

    def cancel_maintenance(self, event: str) -> None:
        self.cloud.end_maintenance(event, state="CANCELED")

    def discard_maintenance(self, event: str) -> None:
        self.cancel_maintenance(event)

    def start_maintenance(self, event: str) -> None:
        self.cloud.start_maintenance(event)

    def end_maintenance(self, event: str) -> None:
        self.cloud.end_maintenance(event)

    def stop_instance(self, instance: str) -> None:
        self._set_state(instance, "STOPPED")

    def start_instance(self, instance: str) -> None:
        self._set_state(instance, "RUNNING")

    def terminate_instance(self, instance: str) -> None:
        self.cloud.terminate(instance)

    def _set_state(self, instance: str, state: str) -> None:
        instances = self.cloud.compute_service.instances
        instances[instance] = instances[instance] | {"lifecycleState": state}


class AwsProvider:
    title = TITLES["aws"]

    def __init__(self, clock: Clock, *, realm: str) -> None:
        self.cloud = AwsCloud(clock, id_seed=realm)
        self._instance_by_event: dict[str, str] = {}  # instances by event

    def launch_instance(self, name: str, *, pool: str, zone: str) -> LaunchedInstance:
        instance_id = self.cloud.launch(tags={"Name": name, "aws:autoscaling:groupName": pool})
        return LaunchedInstance(instance_id, f"aws:///{zone}/{instance_id}", {"eks.amazonaws.com/nodegroup": pool})

    def announce_maintenance(
        self, instance: str, kind: str, *, start: datetime, duration: timedelta, can_reschedule: bool
    ) -> str:
        event = self.cloud.schedule(
            instance,
            _AWS_CODES[kind],
            start=start,
            duration=2 * duration,  # the maintenance ends within its window
            deadline=start + _RESCHEDULE_WINDOW if can_reschedule else None,
            description=_AWS_DESCRIPTIONS.get(kind, "The host needs maintenance"),
        )
        self._instance_by_event[event] = instance
        return event

    def maintenance_start(self, event: str) -> datetime:
        (status,), _ = self.cloud.ec2_instances.statuses([self._instance_by_event[event]], page="")
        start: datetime = next(
            event_document["NotBefore"]
            for event_document in status["Events"]
            if event_document["InstanceEventId"] == event
        )
        return start

    def reschedule(self, event: str, *, start: datetime) -> None:
        self.cloud.reschedule(self._instance_by_event[event], event, start=start)

    def cancel_maintenance(self, event: str) -> None:
        self.cloud.cancel_event(self._instance_by_event[event], event)

    def discard_maintenance(self, event: str) -> None:
        """Complete the event: for EC2 it is completed once the instance has left the host."""
        self.end_maintenance(event)

    def start_maintenance(self, event: str) -> None:
        """Do nothing: EC2 does not report the start."""

    def end_maintenance(self, event: str) -> None:
        self.cloud.complete_event(self._instance_by_event[event], event)

    def stop_instance(self, instance: str) -> None:
        self.cloud.set_state(instance, "stopped")

    def start_instance(self, instance: str) -> None:
        self.cloud.set_state(instance, "running")

    def terminate_instance(self, instance: str) -> None:
        self.cloud.set_state(instance, "terminated")


class AzureProvider:
    """Azure. Each pool is a scale set, all of whose machines see the events of all of them."""

    title = TITLES["azure"]

    def __init__(self, clock: Clock, *, realm: str) -> None:
        self.cloud = AzureCloud(clock, id_seed=realm)
        self._last_numbers: dict[str, int] = {}  # the last machine number, by pool

    def launch_instance(self, name: str, *, pool: str, zone: str) -> LaunchedInstance:
        del name, zone  # not part of the name in Azure
        number = self._last_numbers[pool] = self._last_numbers.get(pool, -1) + 1
        scale_set = f"aks-{pool}-31415926-vmss"
        instance_id = self.cloud.launch(f"{scale_set}_{number}", group=scale_set)
        resource_prefix = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/sandbox/providers/Microsoft.Compute"
        provider_id = f"azure://{resource_prefix}/virtualMachineScaleSets/{scale_set}/virtualMachines/{number}"
        return LaunchedInstance(instance_id, provider_id, {"kubernetes.azure.com/agentpool": pool})

    def announce_maintenance(
        self, instance: str, kind: str, *, start: datetime, duration: timedelta, can_reschedule: bool
    ) -> str:
        """Announce a maintenance; return its name. It cannot be rescheduled, but it can be approved to start early."""
        del can_reschedule
        return self.cloud.schedule([instance], kind, start=start, duration_seconds=round(duration.total_seconds()))

    def maintenance_start(self, event: str) -> datetime:
        """Return the start, which is earlier if a client has approved the event."""
        scheduled = self.cloud.events[event]
        return min(scheduled.start, self.cloud.clock.now()) if scheduled.has_started else scheduled.start

    def reschedule(self, event: str, *, start: datetime) -> None:
        self.cloud.reschedule(event, start)

    def cancel_maintenance(self, event: str) -> None:
        self.cloud.remove_event(event)

    def discard_maintenance(self, event: str) -> None:
        self.cancel_maintenance(event)

    def start_maintenance(self, event: str) -> None:
        self.cloud.start_event(event)

    def end_maintenance(self, event: str) -> None:
        self.cloud.remove_event(event)

    def stop_instance(self, instance: str) -> None:
        """Do nothing: scheduled events do not report it."""

    def start_instance(self, instance: str) -> None:
        """Do nothing: scheduled events do not report it."""

    def terminate_instance(self, instance: str) -> None:
        self.cloud.delete(instance)


class GcpProvider:
    """Google Cloud. How maintenance affects a machine is a setting of the instance, made when it is announced.

    A machine has at most one maintenance, whose name is the name of the machine.
    """

    title = TITLES["gcp"]

    def __init__(self, clock: Clock) -> None:
        self.cloud = GcpCloud(clock)

    def launch_instance(self, name: str, *, pool: str, zone: str) -> LaunchedInstance:
        instance_id = self.cloud.launch(name, zone=zone, labels={"goog-k8s-node-pool-name": pool})
        return LaunchedInstance(
            instance_id, self.cloud.provider_id(instance_id), {"cloud.google.com/gke-nodepool": pool}
        )

    def announce_maintenance(
        self, instance: str, kind: str, *, start: datetime, duration: timedelta, can_reschedule: bool
    ) -> str:
        """Announce a maintenance; return its name. It cannot be rescheduled, but it can start early."""
        gcp_instance = self.cloud.instances.by_name[instance]
        gcp_instance.live_migrates, gcp_instance.is_spot = kind == "Migrate", kind == "Stop"
        self.cloud.schedule(instance, start=start, duration=2 * duration, can_start_early=can_reschedule)
        return instance

    def maintenance_start(self, event: str) -> datetime:
        """Return the start, which is earlier if a client of the cloud has asked for that."""
        upcoming = self.cloud.instances.by_name[event].upcoming_maintenance or {}
        return parse_time(upcoming["windowStartTime"])

    def reschedule(self, event: str, *, start: datetime) -> None:
        self.cloud.reschedule(event, start=start)

    def cancel_maintenance(self, event: str) -> None:
        self.cloud.cancel_maintenance(event)

    def discard_maintenance(self, event: str) -> None:
        """Do nothing: the maintenance is deleted with the machine."""

    def start_maintenance(self, event: str) -> None:
        self.cloud.start_maintenance(event)

    def end_maintenance(self, event: str) -> None:
        if event in self.cloud.instances.by_name:
            self.cloud.end_maintenance(event)

    def stop_instance(self, instance: str) -> None:
        self.cloud.set_status(instance, "TERMINATED")

    def start_instance(self, instance: str) -> None:
        self.cloud.set_status(instance, "RUNNING")

    def terminate_instance(self, instance: str) -> None:
        self.cloud.remove(instance)
