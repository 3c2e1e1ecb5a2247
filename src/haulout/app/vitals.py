"""How a replica is doing, as kubelets, Prometheus and people at a terminal are told.

One of it is made for a process and outlives its leadership. It says what is so at the moment it is asked.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from haulout.app.names import LEADER_LEASE, PROFILES_LEASE
from haulout.app.profiles import Profiles
from haulout.kube.objects import RawObject
from haulout.profiles.tallies import Tally

if TYPE_CHECKING:
    from haulout.web.webhook import Webhook


@dataclass(slots=True)
class Vitals:
    """A replica: what it serves, and whether it leads."""

    profiles: Profiles | None = None
    webhook: "Webhook | None" = None
    leads: bool = False

    def unready(self) -> Sequence[str]:
        """Return why this replica cannot do its part, a line each. That another leads is no reason."""
        reasons = [*(() if self.webhook is None else self.webhook.unready())]
        controller = None if self.profiles is None else self.profiles.controller
        if controller is not None and (why := controller.unready()):
            reasons.append(f"profiles wait: {why}")
        return reasons

    def troubles(self) -> Sequence[str]:
        """Return what somebody should look after, though this replica does its part."""
        found = [*(() if self.webhook is None else self.webhook.troubles())]
        if self.profiles is not None:
            found += self.profiles.troubles()
        return found

    def told(self) -> Sequence[str]:
        """Return how it stands, a line each, with a plus if that is good and a minus if it is not."""
        return tuple(self._told())

    def _told(self) -> Iterator[str]:
        yield f"[+] leader: {'this replica leads' if self.leads else 'another replica leads, or nobody does yet'}"
        if self.webhook is not None:
            bad = self.webhook.unready()
            yield f"[-] webhook: {bad[0]}" if bad else "[+] webhook: it listens"
        if self.profiles is not None:
            yield from self._told_of(self.profiles)

    def _told_of(self, profiles: Profiles) -> Iterator[str]:
        file, problem = profiles.configured.path, profiles.configured.problem
        if problem is None:
            yield f"[+] configuration: {file} is in force"
        else:
            yield f"[-] configuration: what {file} said before is in force"
        controller = profiles.controller
        if controller is None:
            who = "nobody has yet, or a SAP maintenance-controller does" if self.leads else "the leader does"
            yield f"[+] profiles: this replica does not see to them; {who}"
        elif why := controller.unready():
            yield f"[-] profiles: {why}"
        else:
            yield f"[+] profiles: this replica sees to them; nodes that are due: {controller.due}"

    def infos(self) -> list[RawObject] | None:
        """Return what `/api/v1/info` answers; None: another must be asked."""
        return [] if self.profiles is None else self.profiles.infos()

    def tallies(self) -> Iterator[Tally]:
        """Yield all numbers, as they are now."""
        leads = Tally("leader_election_master_status", "1 if this replica holds a lease.", ("name",), kind="gauge")
        leads.set(LEADER_LEASE, to=self.leads)
        if self.profiles is not None:
            leads.set(PROFILES_LEASE, to=self.profiles.controller is not None)
            yield from self.profiles.counted()
        yield leads
