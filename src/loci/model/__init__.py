"""The network, in the order in which a frame flows through it.

    seed        slots that have claimed nothing look where the error is
    encoder     what each slot sees (12 channels) -> what, where, depth order
    transition  attention across slots, a recurrent cell in each; the same for t+1
    decoder     what times where -> mask and colour logits
    compose     slots and background compete -> the predicted frame
    loss        what it is trained by

`loci.Loci` ties them together; `state` is all that is carried from one frame to the next.
"""

from loci.model.loci import Draws, Loci
from loci.model.state import Code, Layers, State, StepOutput

__all__ = ["Code", "Draws", "Layers", "Loci", "State", "StepOutput"]
