"""What ours says of printed values and of claims, by the numbers of exhibits."""
