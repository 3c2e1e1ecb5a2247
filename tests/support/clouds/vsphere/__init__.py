"""The SOAP API of the sandbox's vCenter, for tests with pyVmomi."""
