"""The terminal: what it sends, and what may be drawn on it."""
