"""The sample world: seeded, made-up creatures, their clips, their knowledge graph and questions about them."""
