"""What is watched in a training: watchpoints, the slots on which they hit, and the hits for which it stops."""
