"""The screens: the main one, and what opens above it."""
