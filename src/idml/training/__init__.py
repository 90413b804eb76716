"""From prepared images to a trained model: what to do (config), doing it (loop), and keeping it safe (checkpoint)."""
