"""Images on their way to the model: mixing and corruptions, in batches, on any device."""
