"""From images to embeddings."""
