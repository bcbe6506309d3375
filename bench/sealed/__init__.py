"""Carrying the project to machines without a network: bundles are made here, and checked and unpacked there."""
