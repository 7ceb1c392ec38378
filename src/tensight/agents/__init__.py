"""Inside the training process: what is observed, watched, kept, recorded and reported to the debug server.

The core knows no framework; an adapter (`agents.torch`) answers what the nodes are, when a step ends, and how a tensor
is read. What adapters for eager frameworks have in common is in `agents.eager`. Nothing here raises into the training,
and of the server nothing is known here but its protocol.
"""
