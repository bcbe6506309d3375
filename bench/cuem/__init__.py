"""The CUE-M benchmark: six ablation rows on a question set. Entry: bench/cuem/suite.py."""
