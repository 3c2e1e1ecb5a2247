"""Nodes that are virtual machines on ESX hosts: emptied and shut down while their host is in maintenance."""
