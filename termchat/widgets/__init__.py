"""The widgets of the terminal interface. Each depends on plain data only, not on the engine or the store."""
