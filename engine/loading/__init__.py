"""Model files -> specification, canonical weights, and what the files say about generating."""
