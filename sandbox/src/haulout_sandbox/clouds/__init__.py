"""Simulated clouds: models of cloud APIs, in this process and over HTTP for the real SDKs."""
