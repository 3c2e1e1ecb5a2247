"""Nodes that are virtual machines on ESX hosts: drain and shut them down while their host is in maintenance."""
