"""Models that other programs have brought to this machine: used where they lie, never written to."""

PROGRAMS = ("ollama", "lmstudio", "llamacpp")
"""What stands before the colon in the name of a model of theirs. The Hub's own cache goes by hf:."""
