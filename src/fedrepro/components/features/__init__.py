"""Features that stand for the pixels of images, one file each, found by themselves."""
