"""Features that stand for the pixels of images, found by themselves."""
