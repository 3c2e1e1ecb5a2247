"""The validating admission webhook of NodeMaintenances, with its certificates and its registration."""
