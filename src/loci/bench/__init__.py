"""How fast the very steps are that training and tracking run, and how fast they could be."""
