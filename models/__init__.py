"""models/ — what a model is asked and what it answers; engines, drivers, journal. Knows nothing of graphs or benchmarks."""
