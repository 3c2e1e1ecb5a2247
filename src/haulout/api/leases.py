"""The names of the leases of leader election.

They are the predecessors' names, so that a predecessor and Haulout never work at the same time.
"""

LEADER_LEASE = "135b1886.medik8s.io"  # of the Node Maintenance Operator
PROFILES_LEASE = "maintenance-controller-leader-election.cloud.sap"  # of the SAP maintenance-controller
