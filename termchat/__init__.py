"""The application: command line, terminal UI, conversation store and model registry."""
