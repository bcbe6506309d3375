"""The safety filter of CUE-M (section on safety, its figure): cheapest stages first, early exit, every verdict with its reason."""
