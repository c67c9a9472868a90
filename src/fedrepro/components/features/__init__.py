"""Features that replace the pixels of images. Modules of this folder are imported when needed."""
