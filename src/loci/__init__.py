"""loci finds every object in video from a still camera, without labels, and keeps track of it."""
