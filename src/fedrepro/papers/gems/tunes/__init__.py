"""Fine-tuning of a method's global model on a public sample, as in the paper GEMS."""
