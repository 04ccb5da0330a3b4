"""`termchat bench`: how fast a model answers, alone and together with others."""
