"""Clouds that are not there: models of what their APIs do, in this process and over HTTP for their real SDKs."""
