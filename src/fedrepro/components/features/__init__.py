"""Features that replace the pixels of images. Files of this folder are found on import."""
