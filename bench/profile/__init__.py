"""Latency profiles of the benchmark's own agent rounds."""
