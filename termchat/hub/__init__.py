"""Models of the Hugging Face Hub by name: what a name asks for, and which files of a repository answer it."""

PREFIX = "hf:"
"""What a name of the Hub begins with."""
