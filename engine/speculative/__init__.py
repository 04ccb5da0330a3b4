"""More than one token out of a step: drafts, and which of them are accepted."""
