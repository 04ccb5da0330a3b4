"""One decoder, the specification and weights of a model, and the families that declare them."""
