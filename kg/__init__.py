"""kg/ — the multimodal knowledge graph and the agents that walk it (MH-MMKG, section 4)."""
