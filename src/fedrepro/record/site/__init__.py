"""The site: pages of a scale, from the files of its exhibits and the guides of docs/ alone."""
