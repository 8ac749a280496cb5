"""Rollouts that go on while the policy trains."""
