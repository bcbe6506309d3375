"""Training and evaluation of the tiny Qwen2.5-VL on the sample world."""
