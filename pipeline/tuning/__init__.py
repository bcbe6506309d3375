"""Automatic prompt tuning (CUE-M, appendix on prompt tuning; deep language networks): better templates from labelled samples."""
