"""loci finds every object in video from a still camera, without labels, and keeps track of it."""

from loci.config import Config, ModelConfig
from loci.model import Code, Loci, State, StepOutput

__all__ = ["Code", "Config", "Loci", "ModelConfig", "State", "StepOutput"]
