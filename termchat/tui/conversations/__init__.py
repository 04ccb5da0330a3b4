"""The conversations: begun, answered, saved, brought back. Knows no widgets."""
