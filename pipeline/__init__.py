"""pipeline/ — the CUE-M retrieval flow for questions about pictures."""
