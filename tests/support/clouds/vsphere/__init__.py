"""SOAP in front of the sandbox's vCenter, for tests with pyVmomi."""
