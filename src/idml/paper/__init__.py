"""What the paper prints, beside what was measured here: its numbers, our tables, our figures."""
