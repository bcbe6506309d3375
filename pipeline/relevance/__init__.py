"""The relevance classifier of CUE-M (its appendix on training): an ELECTRA cross-encoder over (query, passage)."""

from pathlib import Path

SHIPPED = Path(__file__).parent / "adapter.safetensors"  # may be missing: then the encoder's similarity ranks
