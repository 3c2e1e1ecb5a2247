"""Names of the leader election leases: those of the predecessors, so that none of them works at the same time."""

LEADER_LEASE = "135b1886.medik8s.io"  # of the Node Maintenance Operator
PROFILES_LEASE = "maintenance-controller-leader-election.cloud.sap"  # of the SAP maintenance-controller
