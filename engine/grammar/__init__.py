"""Replies that keep to a schema, a regular expression or a grammar: which tokens may come next.

What may come is worked out by llguidance, which is imported when the first such reply is asked for.
"""
