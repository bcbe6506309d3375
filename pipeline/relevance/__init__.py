"""The relevance classifier of CUE-M (its appendix on training): an ELECTRA cross-encoder over (query, passage)."""
