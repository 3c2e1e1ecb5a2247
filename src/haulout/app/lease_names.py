"""The names that the operator leads under: those of the operators that it replaces, so that none works beside it."""

LEADER_LEASE = "135b1886.medik8s.io"  # of the Node Maintenance Operator
PROFILES_LEASE = "maintenance-controller-leader-election.cloud.sap"  # of the SAP maintenance-controller
