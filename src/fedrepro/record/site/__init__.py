"""The website: pages made from the files of figures and tables, and from the guides of docs/."""
