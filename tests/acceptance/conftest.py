"""The loopback Hub, for acceptance tests that speak to a Hub."""

from hub_fixtures import hub

__all__ = ["hub"]
